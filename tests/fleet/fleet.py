# SPDX-License-Identifier: Apache-2.0
"""A fleet: stores that stand for machines, one pair of keys, and servers between them."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cli import BINARIES, CUKILN, CliTest  # noqa: E402, F401

KERNELS = ("add.cu", "-DADDEND=1", "--arch", "sm_90a")


class FleetTest(CliTest):
    def setUp(self):
        super().setUp()
        self.public = self.run_json("keygen", "-o", "fleet.key")["public_key"]

    def started(self, server):
        self.addCleanup(server.stop)
        return server

    def host(self, name, remote, writer=True, **more):
        """The environment of a machine with a store of its own."""
        env = {"CUKILN_STORE": str(self.folder / "hosts" / name), "CUKILN_REMOTE": remote,
               "CUKILN_REMOTE_TRUST": self.public}  # fmt: skip
        if writer:
            env["CUKILN_REMOTE_SIGN"] = str(self.folder / "fleet.key")
        # The tests' machines are slower than any server: deadlines have tests of their own.
        return env | {"CUKILN_REMOTE_TIMEOUT_MS": "5000"} | more

    def outcome(self, host, *arguments, **options):
        (module,) = self.run_json("compile", *(arguments or KERNELS), env=host, **options)["modules"]
        return module["outcome"]

    def remote_stats(self, host):
        return self.run_json("stats", env=host)["remote"]

    def start_cli(self, host, *arguments):
        return subprocess.Popen(
            [CUKILN, "--json", *map(str, arguments)], cwd=self.folder, env=self.environment | host,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
