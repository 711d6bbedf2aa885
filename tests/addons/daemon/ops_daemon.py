# SPDX-License-Identifier: Apache-2.0
"""A real cukilnd with its admin HTTP server, over the fake NVRTC, and clients of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class DaemonCase(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-opsd-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("CUKILN_")} | {
            "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config"),
            "CUKILN_NVRTC_LIBRARY": str(BINARIES / "libnvrtc_fake.so"),
            "CUKILN_CUDA_LIBRARY": str(self.folder / "no-driver.so"),
            "CUKILN_STORE": str(self.folder / "store"), "CUKILN_SYSTEM_STORE": "",
            "CUKILN_DAEMON_SOCKET": str(self.folder / "run" / "cukilnd.sock")}  # fmt: skip
        self.daemon = None
        self.start()
        self.addCleanup(self.stop)

    def start(self, *arguments: str) -> None:
        command = [BINARIES / "cukilnd", "--verbose", "--http", "127.0.0.1:0", *arguments]
        self.daemon = subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True)
        for line in self.daemon.stderr:
            if match := re.search(r"http://localhost:(\d+)/", line):
                self.port = int(match[1])
                return
        self.fail("cukilnd has ended")

    def stop(self) -> None:
        if self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGCONT)
            self.daemon.terminate()
            self.daemon.wait(timeout=20)
        self.daemon.stderr.close()

    def get(self, path: str) -> tuple[int, str]:
        connection = UnixConnection(str(self.folder / "run" / "ops.sock"))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def status(self) -> dict:
        code, body = self.get("/api/status")
        self.assertEqual(code, 200, body)
        return json.loads(body)

    def client(self, name: str, text: str, **environment: str) -> subprocess.Popen:
        """A client that waits for the daemon's greeting, however busy the machine is, instead of compiling itself."""
        file = self.folder / f"{name}.cu"
        file.write_text(text)
        return subprocess.Popen([BINARIES / "cukiln", "compile", file, "--arch", "sm_90a", "--json"],
                                env=self.environment | {"CUKILN_DAEMON": "require"} | environment,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip

    def wait_until(self, condition, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
