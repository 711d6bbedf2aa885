# SPDX-License-Identifier: Apache-2.0
"""Runs the command of version 0.1 and that of this one."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fleet"))
from fleet import BINARIES, KERNELS, FleetTest  # noqa: E402, F401

OLD = Path(os.environ["CUKILN_0_1_BINARY_DIR"])
NEW = BINARIES


def name_of(version):
    return "0.1" if version == OLD else "this version"


def main():
    if not (OLD / "cukiln").exists():
        print("skipped: version 0.1 is not built; see build_0_1")
        sys.exit(77)
    unittest.main()


class VersionsTest(FleetTest):
    def run_process(self, version, *arguments, env=None):
        return subprocess.run(
            [version / "cukiln", "--json", *map(str, arguments)], cwd=self.folder,
            env=self.environment | (env or {}), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False)  # fmt: skip

    def run_as(self, version, *arguments, expect=0, env=None):
        """The JSON document that a command prints; its text where it must fail."""
        done = self.run_process(version, *arguments, env=env)
        text = f"{name_of(version)}: {arguments}\n{done.stdout}\n{done.stderr}"
        self.assertIn(done.returncode, [expect] if isinstance(expect, int) else expect, text)
        return json.loads(done.stdout) if expect == 0 else text

    def outcome_of(self, version, report):
        (module,) = report["modules"] if "modules" in report else report["kernels"]
        self.assertEqual(len(module["key"]), 32 if version == OLD else 64)
        return module["outcome"]

    def compiled_by(self, version, *more, env=None):
        """The outcome of compiling the kernel."""
        return self.outcome_of(version, self.run_as(version, "compile", *KERNELS, *more, env=env))

    def entries_of(self, version, env=None):
        return self.run_as(version, "ls", env=env)["entries"]
