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
UNITS = Path(__file__).resolve().parents[3] / "scripts" / "systemd"
MAX_EXPOSURE = 4.0  # of 10


class UnitsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="cukiln-units-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for unit in UNITS.iterdir():  # what is started must be there
            text = unit.read_text().replace("=/usr/bin/cukilnd", f"={BINARIES}/cukilnd")
            (self.folder / unit.name).write_text(text)

    def analyze(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(["systemd-analyze", *arguments], cwd=self.folder, text=True, capture_output=True,
                              env=os.environ | {"XDG_RUNTIME_DIR": str(self.folder)})  # fmt: skip

    def test_systemd_understands_every_line(self) -> None:
        done = self.analyze("verify", "--user", "--man=no", "./cukilnd.service", "./cukilnd.socket")
        said = [line for line in done.stderr.splitlines() if self.folder.name in line or "cukilnd" in line]
        self.assertEqual((done.returncode, said), (0, []))

    def test_a_line_that_is_none_is_noticed(self) -> None:
        unit = self.folder / "cukilnd.service"
        unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))
        done = self.analyze("verify", "--user", "--man=no", "./cukilnd.service")
        self.assertIn("WatchdogSecs", done.stderr)

    def test_the_service_is_confined(self) -> None:  # fault 118
        done = self.analyze("security", "--offline=yes", "--no-pager", "--user", "./cukilnd.service")
        exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
        self.assertIsNotNone(exposure, done.stderr)
        self.assertLessEqual(float(exposure[1]), MAX_EXPOSURE)

    def test_the_kill_of_one_worker_does_not_end_the_service(self) -> None:  # fault 118
        self.assertIn("\nOOMPolicy=continue\n", (UNITS / "cukilnd.service").read_text())

    def test_tasks_and_memory_are_limited_each_and_in_total(self) -> None:  # fault 134
        lines = (UNITS / "cukilnd.service").read_text().splitlines()
        self.assertTrue({"MemoryMax=75%", "TasksMax=4096"} <= set(lines))
        # Without these two a worker cannot limit its own tasks, or keeps capabilities in its namespace.
        self.assertIn("RestrictNamespaces=user", lines)
        self.assertTrue(any(re.match("SystemCallFilter=(?!~).*\\bcapset\\b", line) for line in lines))

    def test_a_user_service_mounts_in_a_namespace_of_its_own(self) -> None:
        text = (UNITS / "cukilnd.service").read_text()  # else systemd starts it without what follows
        self.assertLess(text.index("\nPrivateUsers=yes"), text.index("\nProtectSystem=strict"))


if __name__ == "__main__":
    if shutil.which("systemd-analyze") is None:
        print("skipped: this machine has no systemd-analyze")
        sys.exit(77)
    unittest.main()
