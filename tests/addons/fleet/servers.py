# SPDX-License-Identifier: Apache-2.0
"""Servers on free ports of the loopback, each with a folder of its own, gone when the test ends."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path


MOTO = Path(__file__).resolve().parents[3] / ".cukiln-moto"
UNPACKED = Path(__file__).resolve().parents[3] / ".cukiln-servers" / "usr"


def find(program):
    """On this machine, where Debian keeps servers too, or where scripts/bootstrap unpacked them."""
    places = [os.environ.get("PATH", ""), "/usr/sbin", str(UNPACKED / "bin"), str(UNPACKED / "sbin")]
    found = shutil.which(program, path=":".join(places))
    if found is None:
        raise RuntimeError(f"{program} is not here: scripts/bootstrap --tests installs it")
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Authority:
    """Signs certificates: PEM files in `folder`."""

    def __init__(self, folder, name="authority"):
        self.folder, self.name = Path(folder), name
        self.file = self.openssl("req", "-x509", "-subj", f"/CN={name}", "-days", "2", out=f"{name}.pem",
                                 key=f"{name}.key")  # fmt: skip

    def openssl(self, *words, out, key):
        """An elliptic key, which takes no time, and what is made with it."""
        if words[0] == "req":
            words = [*words, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key]
        subprocess.run([find("openssl"), *words, "-out", out], cwd=self.folder, check=True, capture_output=True)
        return self.folder / out

    def issue(self, name, hosts="DNS:localhost,IP:127.0.0.1", days=2):
        """A certificate and its key, each a file, and both in one: NAME.crt, NAME.key, NAME.pem."""
        (self.folder / "extensions").write_text(f"subjectAltName={hosts}\n")
        self.openssl("req", "-subj", f"/CN={name}", out="request", key=f"{name}.key")
        self.openssl("x509", "-req", "-in", "request", "-CA", self.file, "-CAkey", f"{self.name}.key", "-days", str(days),
                     "-CAcreateserial", "-extfile", "extensions", out=f"{name}.crt", key=None)  # fmt: skip
        pem = self.folder / f"{name}.pem"
        pem.write_text((self.folder / f"{name}.crt").read_text() + (self.folder / f"{name}.key").read_text())
        return pem.with_suffix("")


class Server:
    """A program that listens on `port` soon after it was started."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"{command[0]} does not start") from None
                time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Server):
    def __init__(self, *lines, certificate=None, port=None):
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-redis-"))
        self.port = port or free_port()
        file = self.folder / "redis.conf"
        own = [f"port {self.port}"] if certificate is None else [
            "port 0", f"tls-port {self.port}", f"tls-cert-file {certificate}.crt", f"tls-key-file {certificate}.key"]  # fmt: skip
        own += ["bind 127.0.0.1", 'save ""', "appendonly no", f"dir {self.folder}"]
        file.write_text("\n".join([*own, *lines, ""]))
        super().__init__([find("redis-server"), str(file)])
        self.url = f"redis://127.0.0.1:{self.port}"
        self.login = ()  # user and password, where the rules leave the default user none

    def ask(self, *words):
        """One command, the raw reply."""
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            for command in (("AUTH", *self.login), words) if self.login else (words,):
                s.sendall(b"".join([b"*%d\r\n" % len(command)] + [b"$%d\r\n%s\r\n" % (len(w), w)
                          for w in (str(w).encode() for w in command)]))  # fmt: skip
                reply = s.recv(1 << 20)
            return reply

    def keys(self):
        return sorted(line.decode() for line in self.ask("KEYS", "*").split(b"\r\n") if line.startswith(b"cukiln"))


class Nginx(Server):
    """WebDAV: everybody reads and writes /cache, /ac and /bucket; /readonly is for reading. Or the `locations` of a page,
    whose files are in the folder of the server."""

    def __init__(self, certificate=None, locations=None):
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-nginx-"))
        self.port = free_port()
        self.log = self.folder / "access.log"
        (self.folder / "www").mkdir()
        tls = "" if certificate is None else "ssl"
        files = tls and f"ssl_certificate {certificate}.crt; ssl_certificate_key {certificate}.key;"
        user = "user root;" if os.geteuid() == 0 else ""
        if locations is not None:
            (self.folder / "www/cache").mkdir()
            (self.folder / "www/tmp").mkdir()
            locations = re.sub(r"/srv/kernels\b", f"{self.folder}/www", locations)
            locations = re.sub(r"/etc/nginx/kernels.htpasswd\b", f"{self.folder}/users", locations)
        (self.folder / "nginx.conf").write_text(f"""
{user}
daemon off;
worker_processes 1;
error_log {self.folder}/error.log;
pid {self.folder}/pid;
events {{ worker_connections 256; }}
http {{
  log_format short '$request_method $uri $status $body_bytes_sent';
  access_log {self.log} short;
  client_body_temp_path {self.folder}/body;
  proxy_temp_path {self.folder}/proxy;
  fastcgi_temp_path {self.folder}/fastcgi;
  uwsgi_temp_path {self.folder}/uwsgi;
  scgi_temp_path {self.folder}/scgi;
  client_max_body_size 64m;
  server {{
    listen 127.0.0.1:{self.port} {tls}; {files}
    {locations or self.own_locations()}
  }}
}}
""")
        super().__init__([find("nginx"), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")])
        self.url = f"http://127.0.0.1:{self.port}"

    def own_locations(self):
        return f"""
    root {self.folder}/www;
    dav_methods PUT;
    create_full_put_path on;
    location /bazel/ {{ return 400; }}
    location ~ "^/bazel/(.*/)?(ac|cas)/[a-f0-9]{{64}}$" {{ limit_except GET PUT {{ deny all; }} }}
    location /readonly/ {{ alias {self.folder}/www/cache/; limit_except GET {{ deny all; }} }}
"""

    def files(self):
        www = self.folder / "www"
        return sorted(str(p.relative_to(www)) for p in www.rglob("*") if p.is_file())

    def requests(self):
        return [line.split() for line in self.log.read_text().splitlines()]


class S3(Server):
    """moto, which speaks S3's protocol and checks signatures and policies. `users`: what each may do."""

    def __init__(self, bucket, users):
        if not MOTO.exists():
            raise RuntimeError("moto is not here: scripts/bootstrap --all-tests installs it")
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-s3-"))
        self.port = free_port()
        super().__init__(["env", f"PYTHONPATH={MOTO}", f"MOTO_S3_CUSTOM_ENDPOINTS=http://127.0.0.1:{self.port}", sys.executable,
                          "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)])  # fmt: skip
        self.address, self.bucket = f"http://127.0.0.1:{self.port}", bucket
        sys.path.insert(0, str(MOTO))
        import boto3

        def client(service):
            return boto3.client(service, endpoint_url=self.address, region_name="us-east-1",
                                aws_access_key_id="first", aws_secret_access_key="first")  # fmt: skip

        client("s3").create_bucket(Bucket=bucket)
        self.keys, iam = {}, client("iam")
        for user, actions in users.items():
            statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
            iam.create_user(UserName=user)
            iam.put_user_policy(UserName=user, PolicyName="all", PolicyDocument=json.dumps(
                {"Version": "2012-10-17", "Statement": [statement]}))  # fmt: skip
            key = iam.create_access_key(UserName=user)["AccessKey"]
            self.keys[user] = key["AccessKeyId"], key["SecretAccessKey"]
        # From here on requests without a signature are refused.
        reset = urllib.request.Request(f"{self.address}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
        urllib.request.urlopen(reset).close()

    def url(self, user, path="", secret=None):
        key, right = self.keys[user]
        secret = urllib.parse.quote(secret or right, safe="")
        return f"s3+http://{key}:{secret}@127.0.0.1:{self.port}/{self.bucket}{path}"

    def names(self, user):
        import boto3

        key, secret = self.keys[user]
        client = boto3.client("s3", endpoint_url=self.address, region_name="us-east-1",
                              aws_access_key_id=key, aws_secret_access_key=secret)  # fmt: skip
        return [item["Key"] for item in client.list_objects_v2(Bucket=self.bucket).get("Contents", [])]


class Hostile:
    """A server that runs `script(connection)` for each connection."""

    def __init__(self, script):
        self.script, self.connections = script, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/cache"
        self.redis_url = f"redis://127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection:
            try:
                self.script(connection)
            except OSError:
                pass

    def stop(self):
        self.listener.close()
