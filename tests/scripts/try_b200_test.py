# SPDX-License-Identifier: Apache-2.0
"""scripts/try-b200 with stand-ins for the GPU, PyTorch and the scripts that it runs.

usage: try_b200_test.py
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# What a script that it runs leaves behind: its arguments on stdout, and a run in the folder after -o.
STAND_IN = """#!{python}
import json, os, pathlib, sys
print(*sys.argv[1:])
if "-o" in sys.argv:
    folder = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
    (folder / "b200-{subject}.json").write_text(json.dumps({{"of": "{subject}", "arguments": sys.argv[1:]}}))
sys.exit(7 if os.environ.get("FAILS") == "{subject}" else 0)
"""


class TryB200(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-try-b200-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.repo = self.folder / "a clone"
        for name in ("scripts/try-b200", "tests/bench/results.py"):
            (self.repo / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, self.repo / name)
        for name, subject in (("scripts/test-gpu", "tests"), ("scripts/bench-gpu", "kernels"), ("tests/nvfp4/bench/tactics.py", "tactics")):
            self.program(self.repo / name, STAND_IN.format(python=sys.executable, subject=subject))
        self.kept = self.repo / "build" / "try-b200"
        self.disk(free_gib=100)

    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def gpu(self, name="NVIDIA B200", driver="580.65.06", capability="10.0"):
        self.program(self.folder / "bin" / "nvidia-smi", f"#!/bin/sh\necho '{name}, {driver}, {capability}'\n")

    def disk(self, free_gib):
        """Whatever this machine has: where it is nearly full, only the test of a full disk may notice."""
        self.program(self.folder / "python" / "sitecustomize.py",
                     f"import shutil, types\nshutil.disk_usage = lambda path: types.SimpleNamespace(free={free_gib} << 30)\n")  # fmt: skip

    def torch(self, version="2.11.0+cu130", sees_gpu=True):
        self.program(self.folder / "python" / "torch.py",
                     f"__version__ = '{version}'\nclass cuda:\n  is_available = staticmethod(lambda: {sees_gpu})\n")  # fmt: skip

    def built(self):
        self.program(self.repo / "build" / "gpu" / "bin" / "gpu_kernels_test", "")
        (self.repo / "build" / "gpu" / "bin" / "COMMIT").write_text(COMMIT)
        self.program(self.repo / "build" / "bench-gpu" / "bin" / "cukiln_bench_gpu.so", "")

    def try_it(self, *arguments, expect, **environment):
        for program in ("sh", "env"):
            link = self.folder / "bin" / program
            link.parent.mkdir(exist_ok=True)
            if not link.exists():
                link.symlink_to(shutil.which(program))
        done = subprocess.run(
            [sys.executable, self.repo / "scripts" / "try-b200", *arguments], capture_output=True, text=True, timeout=100,
            env={"HOME": str(self.folder), "PATH": str(self.folder / "bin"), "PYTHONPATH": str(self.folder / "python")}
            | environment)  # fmt: skip
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_a_machine_without_a_gpu_lacks_one_and_nothing_is_changed(self):
        for arguments in (("--dry-run",), ()):
            done = self.try_it(*arguments, expect=3)
            self.assertRegex(done.stdout, r"missing +GPU +nvidia-smi names none\n +run this on the machine with the B200")
            self.assertRegex(done.stdout, r"missing +build +no cmake, ninja, g\+\+, pkg-config, and packages cannot be installed")
            self.assertIn("nothing was run", done.stderr)
            self.assertFalse((self.repo / "build").exists())

    def test_another_card_and_an_old_driver_are_named(self):
        self.gpu("NVIDIA H200", "570.86", "9.0")
        done = self.try_it("--dry-run", expect=3)
        self.assertRegex(done.stdout, r"missing +GPU +1 x NVIDIA H200 has compute capability 9\.0")
        self.assertRegex(done.stdout, r"missing +driver +570\.86\n +install NVIDIA's driver 580 or later")

    def test_a_disk_that_is_nearly_full_is_named(self):
        self.gpu()
        self.torch()
        self.disk(free_gib=19)
        done = self.try_it("--dry-run", expect=3)
        self.assertRegex(done.stdout, r"missing +disk +19 GiB free\n +20 GiB are needed for the build and PyTorch")

    def test_a_pytorch_that_is_too_old_or_sees_no_gpu_is_installed_beside_the_build(self):
        self.gpu()
        self.built()
        for version, sees_gpu in (("2.9.1", True), ("2.11.0+cpu", False), ("unknown", True)):
            self.torch(version, sees_gpu)
            done = self.try_it("--dry-run", expect=0)
            self.assertRegex(done.stdout, r"to install +PyTorch +none of 2\.11 or later that sees a GPU; goes to build/try-b200/python")
        self.torch()
        done = self.try_it("--dry-run", expect=0)
        self.assertRegex(done.stdout, r"ok +PyTorch +2\.11\.0\+cu130")
        self.assertRegex(done.stdout, r"ok +build ")
        self.assertTrue(done.stdout.endswith("ready: scripts/try-b200\n"))
        self.assertFalse(self.kept.exists())

    def test_what_every_step_wrote_is_in_one_file(self):
        self.gpu()
        self.torch()
        self.built()
        done = self.try_it("--quick", expect=0)
        self.assertIn(f"all steps passed; please send {self.kept / 'b200-try.json'}", done.stdout)
        whole = json.loads((self.kept / "b200-try.json").read_text())
        self.assertEqual((whole["kind"], whole["commit"], whole["command"]), ("try", COMMIT, "scripts/try-b200 --quick"))
        self.assertEqual(whole["device"]["capability"], "10.0")
        self.assertEqual([(step["name"], step["exit_code"]) for step in whole["steps"]],
                         [("tests", 0), ("tactics", 0), ("kernels", 0)])  # fmt: skip
        self.assertEqual(sorted(whole["runs"]), ["b200-kernels", "b200-tactics", "b200-tests"])
        self.assertIn("--quick", whole["runs"]["b200-tactics"]["arguments"])
        self.assertNotIn("--quick", whole["runs"]["b200-tests"]["arguments"])

    def test_a_step_that_fails_is_in_the_file_with_its_output_and_the_others_run(self):
        self.gpu()
        self.torch()
        self.built()
        done = self.try_it(expect=1, FAILS="tests")
        self.assertIn("failed: tests; please send", done.stdout)
        whole = json.loads((self.kept / "b200-try.json").read_text())
        (failed,) = [step for step in whole["steps"] if step["exit_code"]]
        self.assertEqual((failed["name"], failed["exit_code"]), ("tests", 7))
        self.assertEqual(failed["output"], ["-o REPOSITORY/build/try-b200/runs"])
        self.assertEqual(len(whole["runs"]), 3)

    def test_it_builds_what_is_missing(self):
        self.gpu()
        self.torch()
        for program in ("cmake", "ninja", "g++", "pkg-config"):
            self.program(self.folder / "bin" / program, "#!/bin/sh\n")
        self.try_it(expect=0)
        steps = [step["name"] for step in json.loads((self.kept / "b200-try.json").read_text())["steps"]]
        self.assertEqual(steps, ["build-tests", "build-launchers", "tests", "tactics", "kernels"])
        self.assertEqual((self.kept / "build-tests.log").read_text(), "--build\n")
        self.assertEqual((self.kept / "build-launchers.log").read_text(), "--build-only\n")


if __name__ == "__main__":
    unittest.main()
