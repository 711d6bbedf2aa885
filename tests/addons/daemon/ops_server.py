# SPDX-License-Identifier: Apache-2.0
"""An admin HTTP server in a process of its own, and plain HTTP requests to it."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import tempfile
from pathlib import Path

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])


class OpsServer:
    def __init__(self, entries: int = 0) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="cukiln-ops-")
        self.process = subprocess.Popen(
            [BINARIES / "ops_server", self.folder.name, str(entries)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.port = int(self.process.stdout.readline())
        self.unix_path = f"{self.folder.name}/ops.sock"

    def __enter__(self) -> OpsServer:
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()
        self.folder.cleanup()

    def command(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def get(self, path: str, method: str = "GET", timeout: float = 10) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def connect(self, tcp: bool = False) -> socket.socket:
        plug = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        plug.connect(("127.0.0.1", self.port) if tcp else self.unix_path)
        plug.settimeout(10)
        return plug

    def ask(self, head: bytes) -> bytes:
        with self.connect() as plug:
            try:
                plug.sendall(head)
            except OSError:
                pass  # the server has closed the connection: its response can be read
            return read_all(plug)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wakeups(self) -> int:
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
        return total

    def has_library(self, name: str) -> bool:
        return name in Path(f"/proc/{self.process.pid}/maps").read_text()

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def lowest_free_descriptor(self) -> int:
        taken = {int(name) for name in os.listdir(f"/proc/{self.process.pid}/fd")}
        return min(set(range(len(taken) + 1)) - taken)


def read_all(plug: socket.socket) -> bytes:
    parts = []
    try:
        while part := plug.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
