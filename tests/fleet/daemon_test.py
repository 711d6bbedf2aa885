# SPDX-License-Identifier: Apache-2.0
"""Machines whose daemons know the remote store: their applications reach it without knowing of it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from fleet import BINARIES, CUKILN, FleetTest  # noqa: E402
from servers import Hostile, Redis  # noqa: E402
from service_user import as_service  # noqa: E402


class Daemons(FleetTest):
    def daemon(self, name, remote, *arguments, writer=True):
        """A daemon for a host, and the environment of the host's applications, which name no remote."""
        host = self.host(name, remote, writer)
        run = Path(tempfile.mkdtemp(prefix="ckf-"))  # a socket's path is short
        self.addCleanup(lambda: os.rmdir(run) if not any(run.iterdir()) else None)
        socket = run / "s" / "cukilnd.sock"
        with open(self.folder / f"{name}.log", "w") as log:
            command = [BINARIES / "cukilnd", "--socket", str(socket), *arguments]
            hosts = Path(host["CUKILN_STORE"]).parent
            hosts.mkdir(exist_ok=True)
            process = subprocess.Popen(
                as_service(command, self.folder, hosts, run) if "--system" in arguments else command, env=self.environment | host, cwd=self.folder,
                stdin=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        self.addCleanup(self.stop, process, socket)
        deadline = time.monotonic() + 20
        while not socket.exists():
            self.assertIsNone(process.poll(), (self.folder / f"{name}.log").read_text())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return {"CUKILN_STORE": host["CUKILN_STORE"], "CUKILN_DAEMON": "require", "CUKILN_DAEMON_SOCKET": str(socket)}

    def stop(self, process, socket):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)
        for path in (socket.parent.iterdir() if socket.parent.exists() else ()):
            path.unlink()
        if socket.parent.exists():
            socket.parent.rmdir()

    def test_what_one_machines_daemon_compiled_is_a_hit_on_another(self):
        redis = self.started(Redis())
        a = self.daemon("a", redis.url)
        self.assertEqual(self.outcome(a), "compiled")
        deadline = time.monotonic() + 20
        while len(redis.keys()) != 2:  # the upload goes on beside the answer
            self.assertLess(time.monotonic(), deadline, redis.keys())
            time.sleep(0.02)
        b = self.daemon("b", redis.url, writer=False)
        self.assertEqual(self.outcome(b), "hit")
        (entry,) = self.run_json("ls", env=b)["entries"]
        self.assertEqual((entry["origin"], entry["signer"]), ("remote", self.public))

    def test_a_daemon_for_all_users_takes_what_the_fleet_signed_for_who_asks(self):
        redis = self.started(Redis())
        self.assertEqual(self.outcome(self.daemon("a", redis.url)), "compiled")
        deadline = time.monotonic() + 20
        while len(redis.keys()) != 2:
            self.assertLess(time.monotonic(), deadline, redis.keys())
            time.sleep(0.02)
        b = self.daemon("b", redis.url, "--system", writer=False)
        theirs = Path(b["CUKILN_STORE"]) / "users" / str(os.getuid())
        self.assertEqual(self.outcome(b | {"CUKILN_STORE": str(self.folder / "own")}), "hit")
        listed = subprocess.run(as_service([CUKILN, "--json", "ls"]), env=self.environment | {"CUKILN_STORE": str(theirs)},
                                capture_output=True, check=True)  # fmt: skip
        (entry,) = json.loads(listed.stdout)["entries"]
        self.assertEqual((entry["origin"], entry["signer"]), ("remote", self.public))

    def test_a_header_that_differs_is_compiled_there(self):
        redis = self.started(Redis())
        scale = ("scale.cu", "--arch", "sm_90a")
        self.environment["CUKILN_DAEMON_WATCH"] = "0"  # or the first compiles what was edited, too
        self.assertEqual(self.outcome(self.daemon("a", redis.url), *scale), "compiled")
        deadline = time.monotonic() + 20
        while len(redis.keys()) != 2:
            self.assertLess(time.monotonic(), deadline, redis.keys())
            time.sleep(0.02)
        self.write("tile.cuh", "#define TILE 32\n")
        self.assertEqual(self.outcome(self.daemon("b", redis.url), *scale), "compiled")

    def test_a_dead_remote_costs_a_deadline(self):  # fault 68
        silent = Hostile(lambda connection: time.sleep(60))
        self.addCleanup(silent.stop)
        self.environment["CUKILN_REMOTE_TIMEOUT_MS"] = "200"
        host = self.daemon("a", silent.redis_url)
        start = time.monotonic()
        self.assertEqual(self.outcome(host), "compiled")
        self.assertLess(time.monotonic() - start, 30)
        self.assertLess(silent.connections, 3)


if __name__ == "__main__":
    unittest.main()
