# SPDX-License-Identifier: Apache-2.0
"""A fleet: stores that stand for machines, one pair of keys, and servers between them."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cli"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cli import BINARIES, CUKILN, ENVIRONMENT, STORE, CliTest  # noqa: E402, F401

KERNELS = ("add.cu", "-DADDEND=1", "--arch", "sm_90a")


class FleetTest(CliTest):
    def wait_until(self, holds):
        deadline = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

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
        return subprocess.Popen([CUKILN, "--json", *map(str, arguments)], cwd=self.folder, env=self.environment | host,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


class DaemonFleetTest(FleetTest):
    def setUp(self):
        super().setUp()
        self.processes = {}  # of daemons, by the names of their hosts

    def daemon(self, name, remote, writer=True, **more):
        """A daemon for a host, and the environment of the host's applications, which name no remote."""
        host = self.host(name, remote, writer, **more)
        run = Path(tempfile.mkdtemp(prefix="ckf-"))  # a socket's path is short
        self.addCleanup(lambda: os.rmdir(run) if not any(run.iterdir()) else None)
        socket = run / "s" / "cukilnd.sock"
        with open(self.folder / f"{name}.log", "w") as log:
            process = subprocess.Popen(
                [BINARIES / "cukilnd", "--socket", str(socket)], env=self.environment | host, cwd=self.folder,
                stdin=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        self.processes[name] = process
        self.addCleanup(self.stop, process, socket)
        self.wait_until(lambda: socket.exists() or process.poll() is not None)
        self.assertIsNone(process.poll(), (self.folder / f"{name}.log").read_text())
        return {"CUKILN_STORE": host["CUKILN_STORE"], "CUKILN_DAEMON": "require", "CUKILN_DAEMON_SOCKET": str(socket)}

    def stop(self, process, socket):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)
        for path in (socket.parent.iterdir() if socket.parent.exists() else ()):
            path.unlink()
        if socket.parent.exists():
            socket.parent.rmdir()
