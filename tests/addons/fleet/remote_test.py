# SPDX-License-Identifier: Apache-2.0
"""Machines with one remote store: real nginx, real Redis, and servers that want to do harm."""

import os
import re
import subprocess
import time
import unittest
from pathlib import Path

from fleet import BINARIES, ENVIRONMENT, KERNELS, STORE, FleetTest
from servers import Hostile, Nginx, Redis

REPO = Path(__file__).resolve().parents[3]
FLEET_PAGE = (REPO / "examples/operations/fleet.md").read_text()
JOB = (REPO / "examples/containers/kubernetes/job.yaml").read_text()


class Http(FleetTest):
    def setUp(self):
        super().setUp()
        self.nginx = self.started(Nginx())

    def test_a_machine_that_never_compiled_hits_what_another_one_put(self):
        remote = f"{self.nginx.url}/cache"
        a, b = self.host("a", remote), self.host("b", remote, writer=False)
        self.assertEqual(self.outcome(a), "compiled")
        files = self.nginx.files()
        self.assertEqual(len(files), 3)  # the entry, its request's sets, its module's index
        for file in files:
            self.assertRegex(file, r"^cache/[0-9a-f]{2}/[0-9a-f]{62}$")
        self.assertEqual(self.outcome(b), "hit")
        (entry,) = self.run_json("ls", env=b)["entries"]
        self.assertEqual((entry["origin"], entry["signer"]), ("remote", self.public))
        self.assertEqual(self.remote_stats(a)["stored"], 1)
        self.assertEqual(self.remote_stats(b)["hits"], 1)
        self.assertIn("__global__ void add", self.run_cli("show", entry["key"], "--source", env=b).out)
        # Then it is b's own: the server is not asked.
        before = len(self.nginx.requests())
        self.assertEqual(self.outcome(b), "hit")
        self.assertEqual(len(self.nginx.requests()), before)

    def test_a_header_that_differs_is_no_hit(self):
        remote = f"{self.nginx.url}/cache"
        scale = ("scale.cu", "--arch", "sm_90a")
        self.assertEqual(self.outcome(self.host("a", remote), *scale), "compiled")
        self.write("tile.cuh", "#define TILE 32\n")
        self.assertEqual(self.outcome(self.host("b", remote), *scale), "compiled")
        # Both are there now, each for whose files it holds.
        self.assertEqual(self.outcome(self.host("c", remote), *scale), "hit")
        self.write("tile.cuh", "#define TILE 64\n")
        self.assertEqual(self.outcome(self.host("d", remote), *scale), "hit")

    def test_layouts_of_bazel_and_of_folders(self):
        # /bazel takes the paths that bazel-remote takes, and no others.
        for path, pattern in (("/bazel/ac", r"^bazel/ac/[0-9a-f]{64}$"), ("/bazel/team/ac/", r"^bazel/team/ac/[0-9a-f]{64}$"),
                              ("/deep/kernels", r"^deep/kernels/[0-9a-f]{2}/[0-9a-f]{62}$")):  # fmt: skip
            before = set(self.nginx.files())
            remote = self.nginx.url + path
            name = path.replace("/", "-")
            self.assertEqual(self.outcome(self.host("a" + name, remote)), "compiled")
            self.assertEqual(self.outcome(self.host("b" + name, remote, writer=False)), "hit")
            for file in set(self.nginx.files()) - before:
                self.assertRegex(file, pattern)

    def test_a_place_that_bazel_remote_does_not_have_costs_no_compile(self):
        host = self.host("a", f"{self.nginx.url}/bazel/elsewhere")
        self.assertEqual(self.outcome(host, expect=STORE), "compiled")
        self.assertEqual((self.nginx.files(), self.remote_stats(host)["dropped"]), ([], 1))

    def test_a_server_that_forbids_writing_costs_no_compile(self):
        host = self.host("a", f"{self.nginx.url}/readonly")
        result = self.run_cli("compile", *KERNELS, env=host, expect=STORE)
        self.assertIn("not acknowledged: HTTP status 403 (denied)", result.err)
        self.assertEqual(self.remote_stats(host)["dropped"], 1)

    def test_offline_takes_from_the_remote_and_compiles_nothing(self):
        remote = f"{self.nginx.url}/cache"
        b = self.host("b", remote)
        self.assertEqual(self.outcome(b, *KERNELS, "--offline", expect=1), "missing")
        self.outcome(self.host("a", remote))
        self.assertEqual(self.outcome(b, *KERNELS, "--offline"), "hit")

    def test_damaged_objects_are_compiled_again(self):  # fault 72
        remote = f"{self.nginx.url}/cache"
        self.outcome(self.host("a", remote))
        for file in self.nginx.files():
            path = self.nginx.folder / "www" / file
            path.write_bytes(path.read_bytes()[:-1] + b"?")
        b = self.host("b", remote)
        self.assertEqual(self.outcome(b), "compiled")
        self.assertEqual(self.remote_stats(b)["rejected"], 2)  # the list, by the lookup and by the upload
        # The machine that compiled has put good ones in their place.
        self.assertEqual(self.outcome(self.host("c", remote, writer=False)), "hit")

    def test_doctor_asks_every_store(self):
        remote = f"{self.nginx.url}/cache,redis://127.0.0.1:1"
        checks = self.run_json("doctor", env=self.host("a", remote), expect=ENVIRONMENT)["checks"]
        http, redis = [c for c in checks if c["name"] == "remote"]
        self.assertEqual((http["status"], redis["status"]), ("ok", "wrong"))
        self.assertIn("this machine writes, 1 trusted key", http["detail"])
        self.assertIn("unreachable", redis["detail"])
        reader = self.run_cli("doctor", env=self.host("b", remote, writer=False)).out  # it compiles without
        self.assertIn("Everything needed is in place, but a remote store is wrong; see above.", reader)
        checks = self.run_json("doctor")["checks"]
        self.assertEqual([c["status"] for c in checks if c["name"] == "remote"], ["missing"])
        for line, says in (f"{self.public} expires=2020-01-01", "2020"), (f"revoked {self.public}", "all keys are revoked"):
            trust = {"CUKILN_REMOTE_TRUST": str(self.write("trusted", line + "\n"))}
            checks = self.run_json("doctor", env=self.host("c", self.nginx.url, writer=False, **trust), expect=None)["checks"]
            (remote,) = [c for c in checks if c["name"] == "remote"]
            self.assertEqual(remote["status"], "wrong")
            self.assertIn(says, remote["detail"])


class InRedis(FleetTest):
    def test_a_machine_that_never_compiled_hits_what_another_one_put(self):
        redis = self.started(Redis())
        for remote, prefix in ((redis.url, "cukiln6:"), (redis.url + "/cukiln-team", "cukiln-team:")):
            name = prefix.rstrip(":")
            self.assertEqual(self.outcome(self.host("a" + name, remote)), "compiled")
            self.assertEqual(self.outcome(self.host("b" + name, remote, writer=False)), "hit")
            keys = [key for key in redis.keys() if key.startswith(prefix)]
            self.assertEqual(len(keys), 3)  # and no lease is left
            for key in keys:
                self.assertRegex(key, rf"^{prefix}[0-9a-f]{{64}}$")
                self.assertRegex(redis.ask("TTL", key), rb"^:[1-9]\d+\r\n")  # expires unless it is renewed

    def test_access_is_the_servers_to_decide(self):  # fault 69
        rules = [line.replace("…", line.split()[1][0]) for line in re.findall(r"(?m)^user .*$", FLEET_PAGE)]
        self.assertEqual([rule.split()[1] for rule in rules], ["reader", "writer", "default"])
        redis = self.started(Redis(*rules))
        url = lambda who: redis.url.replace("redis://", f"redis://{who}@")
        (job,) = re.findall(r"value: redis://(\S+)@\S+:6379$", JOB, re.MULTILINE)
        self.assertEqual(self.outcome(self.host("a", url(job.replace("$(REDIS_PASSWORD)", "w")))), "compiled")
        self.assertEqual(self.outcome(self.host("b", url("reader:r"), writer=False)), "hit")
        wrong = self.run_cli("compile", *KERNELS, env=self.host("c", url("writer:x")), expect=STORE)
        self.assertIn("denies access", wrong.err)
        self.assertNotIn("writer:x", wrong.err)
        # A reader that believes to be a writer.
        sly = self.host("d", url("reader:r"))
        self.assertEqual(self.outcome(sly, "add.cu", "-DADDEND=2", expect=STORE), "compiled")
        self.assertEqual(self.remote_stats(sly)["stored"], 0)

    def test_a_server_that_evicts_costs_a_compile(self):  # fault 69
        redis = self.started(Redis())
        self.outcome(self.host("a", redis.url))
        entry, *_ = sorted(redis.keys(), key=lambda key: -int(redis.ask("STRLEN", key)[1:-2]))
        redis.ask("DEL", entry)
        b = self.host("b", redis.url)
        self.assertEqual(self.outcome(b), "compiled")
        self.assertIn(entry, redis.keys())  # put there again
        self.assertEqual(self.outcome(self.host("c", redis.url, writer=False)), "hit")

    def test_a_full_server_costs_an_upload(self):  # fault 69
        redis = self.started(Redis("maxmemory 1", "maxmemory-policy noeviction"))
        host = self.host("a", redis.url)
        self.assertEqual(self.outcome(host, expect=STORE), "compiled")
        self.assertEqual(self.remote_stats(host)["dropped"], 1)

    def test_the_second_server_has_what_the_first_one_lost(self):
        first, second = self.started(Redis()), self.started(Nginx())
        both = f"{first.url}, {second.url}/cache"
        self.assertEqual(self.outcome(self.host("a", both)), "compiled")
        first.ask("FLUSHALL")
        self.assertEqual(self.outcome(self.host("b", both, writer=False)), "hit")
        first.stop()
        self.assertEqual(self.outcome(self.host("c", both, writer=False)), "hit")


class Blobs(FleetTest):
    """What other compilers keep, by a program that is a machine of the fleet for one blob."""

    def ask(self, op, remote, key, *, writer=True, kind="triton", value=b""):
        """What it printed, and the bytes of what it got."""
        file = self.write("value", value if op == "put" else b"")
        done = subprocess.run(
            [BINARIES / "remote_blobs", remote, self.public, "fleet.key" if writer else "", op, kind, key, file],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n"), file.read_bytes()

    def get(self, remote, key, **how):
        printed, data = self.ask("get", remote, key, writer=False, **how)
        return data if printed[0].startswith("found ") else None

    def test_nginx_and_redis_have_what_a_machine_put(self):
        nginx, redis = self.started(Nginx()), self.started(Redis())
        blobs = {"KEY/add.cubin": os.urandom(3 << 20), "empty": b"", "k" * 4096: b"\0\xff"}
        for remote in (f"{nginx.url}/cache", f"{nginx.url}/bazel/ac", redis.url, f"{redis.url}/cukiln-team"):
            self.assertIsNone(self.get(remote, "KEY/add.cubin"))
            for key, value in blobs.items():
                self.assertIn("hits=0 stored=1 dropped=0", self.ask("put", remote, key, value=value)[0])
            for key, value in blobs.items():
                printed, data = self.ask("get", remote, key, writer=False)
                self.assertEqual((printed[0], data), (f"found {self.public}", value))
            self.assertIsNone(self.get(remote, "KEY/add.cubin", kind="inductor"))
        for file in nginx.files():
            self.assertRegex(file, r"^cache/[0-9a-f]{2}/[0-9a-f]{62}$|^bazel/ac/[0-9a-f]{64}$")
        self.assertEqual(len(nginx.files()), 6)
        self.assertEqual(len(redis.keys()), 6)
        for key in redis.keys():
            self.assertRegex(key, r"^cukiln(6|-team):[0-9a-f]{64}$")
            self.assertRegex(redis.ask("TTL", key), rb"^:[1-9]\d+\r\n")

    def test_a_server_that_is_dead_or_full_costs_a_miss_and_an_upload(self):  # fault 284
        full = self.started(Redis("maxmemory 1", "maxmemory-policy noeviction"))
        self.assertIn("hits=0 stored=0 dropped=1", self.ask("put", full.url, "key", value=b"bytes")[0])
        full.stop()
        self.assertIsNone(self.get(full.url, "key"))
        self.assertIn("hits=0 stored=0 dropped=1", self.ask("put", full.url, "key", value=b"bytes")[0])


class Harm(FleetTest):
    """A start is never late, and never wrong, for a server."""

    def compiles_all(self, host, *files):
        report = self.run_json("compile", *files, "--arch", "sm_90a", env=host)
        self.assertEqual(report["compiled"], len(files))

    def fast(self, name, remote, writer=True):
        return self.host(name, remote, writer, CUKILN_REMOTE_TIMEOUT_MS="200")

    def test_a_start_is_not_late_for_a_dead_server(self):  # fault 68
        files = [self.write(f"k{i}.cu", f'extern "C" __global__ void k{i}() {{}}\n').name for i in range(8)]
        for i, scheme in enumerate(("url", "redis_url")):
            silent = Hostile(lambda connection: time.sleep(60))
            self.addCleanup(silent.stop)
            self.compiles_all(self.fast(f"silent{i}", getattr(silent, scheme), writer=False), *files)
            # A deadline for each of the compiles that are under way together, not for each kernel.
            self.assertIn(silent.connections, (1, 2))
        for i, remote in enumerate(("redis://127.0.0.1:1", "http://no-such-host.invalid/x")):
            self.compiles_all(self.fast(f"unreachable{i}", remote, writer=False), *files)

    def test_a_command_says_why_it_compiled_what_a_server_may_have(self):
        host = self.host("a", "redis://127.0.0.1:1", writer=False)
        self.assertIn("refused (111) (unreachable); 'cukiln doctor' says", self.run_cli("compile", *KERNELS, env=host).err)
        self.assertEqual(self.run_cli("compile", *KERNELS, env=host).err, "")  # a hit asks no server

    def test_a_hotel_network_is_not_believed(self):  # fault 71
        page = b"<html>Sign in</html>"
        def script(connection):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
        portal = Hostile(script)
        self.addCleanup(portal.stop)
        host = self.fast("a", portal.url)
        self.assertEqual(self.outcome(host), "compiled")
        self.assertGreater(self.remote_stats(host)["rejected"], 0)
        self.assertEqual(self.run_json("verify", env=host)["damaged"], 0)

    def test_addresses_and_keys_that_are_wrong_are_named_and_survived(self):
        for more in ({"CUKILN_REMOTE": "ftp://x"}, {"CUKILN_REMOTE_TRUST": "/no/such/file"},
                     {"CUKILN_REMOTE_SIGN": "/no/such/key"}):  # fmt: skip
            host = self.host("a", "redis://127.0.0.1:1", **more)
            self.assertIn("no remote store is used", self.run_cli("compile", *KERNELS, env=host, expect=STORE).err)


if __name__ == "__main__":
    unittest.main()
