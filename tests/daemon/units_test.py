# SPDX-License-Identifier: Apache-2.0
"""The units for systemd, as systemd itself reads them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
UNITS = Path(__file__).resolve().parents[2] / "scripts" / "systemd"
MAX_EXPOSURE = {"cukilnd-system": 2.0, "cukiln-signer": 2.0, "cukiln-worker@": 2.0, "cukilnd": 4.0}  # of 10
DAEMONS = (("--system", "cukilnd-system"), ("--system", "cukiln-signer"), ("--user", "cukilnd"))
SERVICES = (*DAEMONS, ("--system", "cukiln-worker@"))


class UnitsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="cukiln-units-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for unit in UNITS.iterdir():  # what is started must be there
            text = unit.read_text().replace("=/usr/bin/cukilnd", f"={BINARIES}/cukilnd")
            text = text.replace("=/usr/libexec/cukiln/", f"={BINARIES}/")
            (self.folder / unit.name).write_text(text)

    def analyze(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(["systemd-analyze", *arguments], cwd=self.folder, text=True, capture_output=True,
                              env=os.environ | {"XDG_RUNTIME_DIR": str(self.folder)})  # fmt: skip

    def test_systemd_understands_every_line(self) -> None:
        for kind, name in SERVICES:
            socket = name.removesuffix("@")
            done = self.analyze("verify", kind, "--man=no", f"./{name}.service", f"./{socket}.socket")
            said = [line for line in done.stderr.splitlines() if self.folder.name in line or name in line]
            self.assertEqual((done.returncode, said), (0, []))

    def test_a_line_that_is_none_is_noticed(self) -> None:
        unit = self.folder / "cukilnd.service"
        unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))
        done = self.analyze("verify", "--user", "--man=no", "./cukilnd.service")
        self.assertIn("WatchdogSecs", done.stderr)

    def test_the_services_are_confined(self) -> None:  # fault 118
        for kind, name in SERVICES:
            with self.subTest(name):
                done = self.analyze("security", "--offline=yes", "--no-pager", kind, f"./{name}.service")
                exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
                self.assertIsNotNone(exposure, done.stderr)
                self.assertLessEqual(float(exposure[1]), MAX_EXPOSURE[name])

    def test_the_kill_of_one_worker_does_not_end_a_service(self) -> None:  # fault 118
        for _, name in DAEMONS:
            self.assertIn("\nOOMPolicy=continue\n", (UNITS / f"{name}.service").read_text())

    def test_tasks_and_memory_are_limited_each_and_in_total(self) -> None:  # fault 134
        for _, name in DAEMONS:
            lines = (UNITS / f"{name}.service").read_text().splitlines()
            self.assertTrue({"MemoryMax=75%", "TasksMax=512" if name == "cukiln-signer" else "TasksMax=4096"} <= set(lines))
            # Without these two a worker cannot limit its own tasks, or keeps capabilities in its namespace.
            self.assertIn("RestrictNamespaces=user", lines)
            self.assertTrue(any(re.match("SystemCallFilter=(?!~).*\\bcapset\\b", line) for line in lines))

    def test_workers_of_a_system_service_are_another_users(self) -> None:  # fault 151
        service = (UNITS / "cukiln-worker@.service").read_text().splitlines()
        self.assertTrue({"DynamicUser=yes", "PrivateNetwork=yes", "RestrictNamespaces=user"} <= set(service))
        self.assertNotIn("PrivateUsers=yes", service)  # with it a worker does not know who connects
        limits = [line.split("=")[0] for line in service]
        for name in ("MemoryMax", "TasksMax", "RuntimeMaxSec"):
            self.assertIn(name, limits)
        self.assertTrue({"MemoryMax=75%", "TasksMax=4096"} <= set((UNITS / "cukiln-worker.slice").read_text().splitlines()))
        socket = (UNITS / "cukiln-worker.socket").read_text().splitlines()
        self.assertTrue({"Accept=yes", "SocketUser=cukiln", "SocketMode=0600"} <= set(socket))
        daemon = (UNITS / "cukilnd-system.service").read_text()
        path = next(line.split("=")[1] for line in socket if line.startswith("ListenStream="))
        self.assertRegex(daemon, rf"(?m)^ExecStart=.* --worker-socket {path}$")
        self.assertRegex(daemon, r"(?m)^Requires=.*\bcukiln-worker\.socket\b")

    def test_a_system_service_is_reached_by_its_group_and_reaches_no_network(self) -> None:  # fault 134
        socket = (UNITS / "cukilnd-system.socket").read_text().splitlines()
        self.assertTrue({"SocketGroup=cukiln-users", "SocketMode=0660"} <= set(socket))
        service = (UNITS / "cukilnd-system.service").read_text()
        self.assertIn("\nIPAddressDeny=any\nIPAddressAllow=localhost\n", service)
        self.assertNotIn("\nRuntimeDirectory=", service)  # with it systemd gives the socket to the service's group

    def test_a_user_service_mounts_in_a_namespace_of_its_own(self) -> None:
        text = (UNITS / "cukilnd.service").read_text()  # else systemd starts it without what follows
        self.assertLess(text.index("\nPrivateUsers=yes"), text.index("\nProtectSystem=strict"))

    def test_a_daemon_for_all_users_sees_who_its_clients_are(self) -> None:
        for name in ("cukilnd-system", "cukiln-signer"):
            self.assertNotIn("\nPrivateUsers=yes", (UNITS / f"{name}.service").read_text())

    def test_the_signer_is_another_user_than_the_daemon_whose_group_reaches_it(self) -> None:  # fault 147
        daemon = (UNITS / "cukilnd-system.service").read_text().splitlines()
        signer = (UNITS / "cukiln-signer.service").read_text()
        socket = (UNITS / "cukiln-signer.socket").read_text().splitlines()
        self.assertIn("User=cukiln", daemon)
        self.assertIn("\nUser=cukiln-signer\n", signer)
        self.assertRegex(signer, "\nExecStart=.* --signer-accepts cukiln ")
        self.assertTrue({"SocketGroup=cukiln", "SocketMode=0660"} <= set(socket))
        self.assertIn("\nIPAddressDeny=any\nIPAddressAllow=localhost\n", signer)


if __name__ == "__main__":
    if shutil.which("systemd-analyze") is None:
        print("skipped: this machine has no systemd-analyze")
        sys.exit(77)
    unittest.main()
