# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: which settings a running cukilnd applies, and what it logs about the others."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
TIMEOUT = 30


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class ReloadTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="cukiln-reload-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "cukiln").mkdir()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(self.folder / "notify.sock"))
        self.notify.settimeout(TIMEOUT)
        self.addCleanup(self.notify.close)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("CUKILN_")} | {
            "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder),
            "CUKILN_NVRTC_LIBRARY": str(BINARIES / "libnvrtc_fake.so"),
            "CUKILN_STORE": str(self.folder / "store"), "CUKILN_SYSTEM_STORE": "",
            "CUKILN_DAEMON_SOCKET": str(self.folder / "run" / "cukilnd.sock"),
            "NOTIFY_SOCKET": str(self.folder / "notify.sock")}  # fmt: skip

    def start(self, settings: str) -> None:
        self.configure(settings)
        self.log = self.folder / "log"
        with self.log.open("w") as log:
            self.daemon = subprocess.Popen([BINARIES / "cukilnd"], env=self.environment, stderr=log)
        self.addCleanup(self.stop)
        self.wait_for("READY=1")

    def stop(self) -> None:
        if self.daemon.poll() is None:
            self.daemon.terminate()
        self.assertEqual(self.daemon.wait(timeout=TIMEOUT), 0)

    def wait_for(self, state: str) -> None:
        while not self.notify.recv(4096).decode().startswith(state):
            pass

    def wait_for_log(self, pattern: str, after: int = 0) -> None:
        """The log is written by a thread of its own, and so a little later than what it is about."""
        deadline = time.monotonic() + TIMEOUT
        while not re.search(pattern, self.log.read_text()[after:]):
            self.assertLess(time.monotonic(), deadline, self.log.read_text())
            time.sleep(0.01)

    def configure(self, settings: str) -> None:
        (self.folder / "cukiln" / "config.toml").write_text(settings)

    def reload(self, settings: str) -> None:
        self.configure(settings)
        self.daemon.send_signal(signal.SIGHUP)
        self.wait_for("RELOADING=1\nMONOTONIC_USEC=")
        self.wait_for("READY=1")

    def get(self, path: str) -> str:
        connection = UnixConnection(self.folder / "run" / "ops.sock")
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def cap(self) -> int:
        return int(re.search(r'cukiln_store_limit_bytes\{type="soft"\} (\d+)', self.get("/metrics"))[1])

    def public_key(self) -> str:
        made = subprocess.run([BINARIES / "cukiln", "keygen", "-o", self.folder / "key", "--json"],
                              env=self.environment, capture_output=True, check=True)  # fmt: skip
        return json.loads(made.stdout)["public_key"]

    def servers(self) -> list[str]:
        return [server["where"] for server in json.loads(self.get("/api/status"))["remotes"]["servers"]]

    def test_cap_log_level_and_remote_are_applied_while_it_runs(self) -> None:
        self.start('max_size = "64MiB"\nlog = "warn"\n')
        self.assertEqual((self.cap(), self.servers()), (64 << 20, []))
        trust = f'remote_trust = "{self.public_key()}"\n'
        self.reload('max_size = "32MiB"\nlog = "info"\nremote = "redis://:secret@127.0.0.1:1"\n' + trust)
        self.assertEqual((self.cap(), self.servers()), (32 << 20, ["redis://127.0.0.1:1/cukiln6"]))
        self.wait_for_log("reload: done")  # at level info
        self.reload('log = "info"\n')
        self.assertEqual((self.cap(), self.servers()), (2 << 30, []))
        self.assertNotIn("secret", self.log.read_text())

    def test_a_key_file_is_read_again_when_the_settings_are_unchanged(self) -> None:
        keys = self.folder / "trusted"
        keys.write_text(self.public_key() + "\n")
        settings = f'remote = "redis://127.0.0.1:1"\nremote_trust = "{keys}"\n'
        self.start(settings)
        self.assertEqual(len(self.servers()), 1)
        keys.write_text("no key at all\n")
        self.reload(settings)
        self.assertEqual(self.servers(), [])
        self.wait_for_log("the remote store cannot be used")

    def test_other_changes_need_a_restart_and_invalid_settings_change_nothing(self) -> None:
        self.start('max_size = "64MiB"\n')
        self.reload('max_size = "64MiB"\ninclude_path = ["/elsewhere"]\njobs = 3\nmemory = "9GiB"\n')
        for name in ("include_path", "jobs", "memory"):
            self.wait_for_log(rf"(?m)^cukilnd: reload: {name} has changed in .* and needs a restart of cukilnd$")
        for mistake in ('max_size = "much"\n', "max_size = \n", 'max_size = "1MiB"\nno_such_key = 1\n'):
            with self.subTest(mistake=mistake):
                before = self.log.stat().st_size
                self.reload(mistake)
                self.assertEqual(self.cap(), 64 << 20)
                self.wait_for_log("nothing has changed", before)

    def test_a_deleted_setting_is_a_warning_and_keeps_no_change_from_being_applied(self) -> None:  # fault 310
        old = 'worker_socket = "/run/w/worker.sock"\n'
        self.start('max_size = "64MiB"\n' + old)
        self.wait_for_log("worker_socket has no effect since 0.4, because cukilnd serves one user")
        self.reload('max_size = "32MiB"\n' + old)
        self.assertEqual(self.cap(), 32 << 20)
        before = self.log.stat().st_size
        self.reload('max_size = "16MiB"\nno_such_key = 1\n' + old)
        self.assertEqual(self.cap(), 32 << 20)
        self.wait_for_log("nothing has changed: .*no_such_key", before)

    def test_a_deleted_option_is_a_usage_error_that_says_why(self) -> None:  # fault 311
        options = (["--system"], ["--audit", "off"], ["--worker-socket", "/w"], ["--signer"], ["--signer-socket", "/s"],
                   ["--signer-accepts", "cukiln"])  # fmt: skip
        for option in options:
            with self.subTest(option=option):
                done = subprocess.run([BINARIES / "cukilnd", *option], env=self.environment, stderr=subprocess.PIPE,
                                      text=True, timeout=TIMEOUT)  # fmt: skip
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"cukilnd: {option[0]}: cukilnd serves one user now", done.stderr)
        self.assertFalse((self.folder / "run").exists())

    def test_the_last_of_many_signals_is_applied(self) -> None:
        self.start("")
        for _ in range(200):
            self.daemon.send_signal(signal.SIGHUP)
        self.configure('max_size = "16MiB"\n')
        self.daemon.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT
        while self.cap() != 16 << 20:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
