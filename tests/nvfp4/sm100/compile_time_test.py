# SPDX-License-Identifier: Apache-2.0
"""What compiling a module with GEMMs costs: CPU seconds of the worker, which, unlike the time that passes, a busy
machine changes little. environment: CUKILN_TEST_BINARY_DIR."""

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CUKILN = Path(os.environ["CUKILN_TEST_BINARY_DIR"], "cukiln")
MANIFEST = Path(__file__).resolve().parents[3] / "cache" / "manifests" / "shipped.json"

MODULES = {
    "sm_100a": ("nvfp4_gemm", "nvfp4_gemm_16", "nvfp4_moe_grouped", "nvfp4_moe_grouped_up"),
    "sm_90a": ("nvfp4_gemm_prefill", "nvfp4_gemm_prefill_256", "nvfp4_w4a16_gemm_skinny", "nvfp4_w4a16_gemm_prefill",
               "nvfp4_w4a16_gemm_prefill_256"),  # for many tokens
}  # fmt: skip
GOAL = 2.0  # CPU seconds, on a CPU of 2024 that is idle
MOST = 2 * GOAL  # on whatever runs this
PR_SET_CHILD_SUBREAPER = 36


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class CompileTime(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A worker outlives the command that started it, and is then this process's child.
        if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed: the worker's CPU time cannot be read")
        cls.modules = {module["name"]: module for module in json.loads(MANIFEST.read_text())["modules"]}

    def compile(self, name, arch):
        module = self.modules[name]
        sources = [(MANIFEST.parent / source).resolve() for source in module["sources"]]
        define = [f"-D{macro}={value}" for macro, value in module.get("define", {}).items()]
        before, workers = cpu_seconds(), 0
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [CUKILN, "compile", *sources, *define, "--arch", arch, "-o", Path(folder, "cubin"), "--json",
                 "--store", Path(folder, "store")], check=True, capture_output=True, text=True)  # fmt: skip
            while True:
                try:
                    os.waitpid(-1, 0)
                    workers += 1
                except ChildProcessError:
                    break
        self.assertEqual(json.loads(done.stdout)["compiled"], 1)
        self.assertGreaterEqual(workers, 1, "no worker was counted")
        return cpu_seconds() - before

    def test_a_module_with_gemms_takes_no_longer_than_the_goal(self):
        for arch, name in ((arch, name) for arch, names in MODULES.items() for name in names):
            with self.subTest(name, arch=arch):
                taken = self.compile(name, arch)
                print(f"{name} for {arch}: {taken:.2f} CPU seconds, the goal is {GOAL:g}", file=sys.stderr)
                self.assertLessEqual(taken, MOST)


if __name__ == "__main__":
    unittest.main()
