# SPDX-License-Identifier: Apache-2.0
"""The recipes of examples/ together: what job.yaml uploads the DaemonSet's daemon fetches and its pods use, with the
server's rules of fleet.md. Addresses and folders are the test's; users, prefixes, rules and commands are the pages'."""

import re
import shutil
import subprocess
import sys
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from fleet import DaemonFleetTest
from servers import Nginx, Redis

REPO = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPO / "tests/docs"))

from recipes import NAMES  # noqa: E402

CONTAINERS = REPO / "examples/containers"
FLEET = (REPO / "examples/operations/fleet.md").read_text()
JOB = (CONTAINERS / "kubernetes/job.yaml").read_text()
DAEMONS = (CONTAINERS / "kubernetes/daemonset.yaml").read_text()


def variables(manifest):
    """What a manifest sets for cukiln."""
    return dict(re.findall(r"- name: (CUKILN_\w+)\n\s+value: (\S+)$", manifest, re.MULTILINE))


def block(heading, language=""):
    """The first block of a section of fleet.md."""
    section = FLEET.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(rf"(?s)```{language}\n(.*?)```", section)[1]


class Recipes(DaemonFleetTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(CONTAINERS / "kernels", self.folder / "kernels")

    def run_job(self, remote):
        """What the Job's container does, as a host of its own; its report."""
        (command,) = re.findall(r"command: \[(cukiln, .*)\]", JOB)
        words = [quoted or word for quoted, word in re.findall(r'"([^"]*)"|([^\s,"]+)', command)][1:]
        words = [word.replace("/app/kernels", str(self.folder / "kernels")) for word in words]
        self.assertIn("CUKILN_REMOTE_SIGN", variables(JOB))
        return self.run_json(*words, env=self.host("job", remote))

    def daemon_of_node(self, remote):
        """The environment of pods beside the DaemonSet's daemon: their own store cannot be written."""
        self.assertNotIn("CUKILN_REMOTE_SIGN", variables(DAEMONS))
        node = self.daemon("node", remote, writer=False)
        self.node_store = node["CUKILN_STORE"]
        return {"CUKILN_DAEMON_SOCKET": node["CUKILN_DAEMON_SOCKET"], "CUKILN_STORE": "/dev/null/store"}

    def preload(self, pod, *more, expect=0):
        return self.run_json("preload", self.folder / "kernels/kernels.json", "--arch", "sm_90a", "--no-load", *more,
                             env=pod, expect=expect)  # fmt: skip

    def check(self, job, daemons, count):
        """A Job with the address `job`, a DaemonSet with `daemons`; `count()` is the number of objects on the server."""
        self.assertEqual(self.run_job(job)["compiled"], 4)
        uploaded = count()
        self.assertEqual(uploaded, 4 * 3)  # entries, sets, indices
        pod = self.daemon_of_node(daemons)
        report = self.preload(pod)
        self.assertEqual({m["outcome"] for m in report["modules"]}, {"hit"}, report)
        # What is new is compiled by the daemon, for this pod and the next, and not uploaded.
        header = self.folder / "kernels/vector.cuh"
        header.write_text(header.read_text() + "// edited\n")
        report = self.preload(pod)  # though its own store keeps nothing
        self.assertIn("compiled", {m["outcome"] for m in report["modules"]})
        entries = self.run_json("ls", env={"CUKILN_STORE": self.node_store})["entries"]
        self.assertEqual({entry["origin"] for entry in entries}, {"remote", "compiled"})
        self.assertEqual({m["outcome"] for m in self.preload(pod)["modules"]}, {"hit"})
        self.processes["node"].terminate()  # waits for uploads
        self.processes["node"].wait(30)
        self.assertEqual(count(), uploaded)
        # Nor could it: with a key of the fleet the server still refuses.
        sly = self.host("sly", daemons)
        self.preload(sly, expect=None)
        self.assertEqual((self.remote_stats(sly)["stored"], count()), (0, uploaded))

    def test_redis(self):  # fault 456
        passwords = {NAMES["reader"]: "read", NAMES["writer"]: "write"}
        rules = re.sub(r"(?m)^(user (\w+) on >)…", lambda found: found[1] + passwords[found[2]], block("Redis"))
        redis = self.started(Redis(*rules.splitlines(), "user admin on >admin ~* +@all"))
        redis.login = ("admin", "admin")

        def address(manifest, password):
            url = variables(manifest)["CUKILN_REMOTE"]
            self.assertTrue(url.endswith("@" + NAMES["redis"]), url)
            return url.replace("$(REDIS_PASSWORD)", password).replace(NAMES["redis"], f"127.0.0.1:{redis.port}")

        job, daemons = address(JOB, "write"), address(DAEMONS, "read")
        self.check(job, daemons, lambda: len(redis.keys()))
        self.assertEqual({key.split(":")[0] for key in redis.keys()}, {NAMES["prefix"]})
        self.assertIn(b"allkeys-lru", redis.ask("CONFIG", "GET", "maxmemory-policy"))

    def test_nginx(self):  # fault 456
        nginx = self.started(Nginx(locations=block("nginx", "nginx")))
        (line,) = re.findall(r"(?m)^(printf .*) > \S+$", FLEET)
        users = subprocess.run(["bash", "-c", line.replace("-apr1", "-apr1 password")], check=True, capture_output=True)
        (nginx.folder / "users").write_bytes(users.stdout)
        (address,) = re.findall(r'Builders have `remote = "(\S+)"`', FLEET)
        there = f"127.0.0.1:{nginx.port}"
        job = address.replace("https:", "http:").replace("kernels.example", there)
        self.assertIn(f"//{NAMES['writer']}:password@", job)
        self.check(job, f"http://{there}/cache", lambda: len([f for f in nginx.files() if f.startswith("cache/")]))
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{nginx.url}/cache/x", b"x", method="PUT"))
        self.assertEqual(refused.exception.code, 401)


if __name__ == "__main__":
    unittest.main()
