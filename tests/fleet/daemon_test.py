# SPDX-License-Identifier: Apache-2.0
"""Machines whose daemons know the remote store: their applications reach it without knowing of it."""

import json
import os
import subprocess
import time
import unittest
from pathlib import Path

from fleet import CUKILN, DaemonFleetTest
from servers import Hostile, Redis
from service_user import as_service


class Daemons(DaemonFleetTest):
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
