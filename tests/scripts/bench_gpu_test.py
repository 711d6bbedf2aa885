# SPDX-License-Identifier: Apache-2.0
"""scripts/bench-gpu draws an earlier run again, where neither PyTorch nor a GPU is. It and scripts/bench name wrong
arguments before they build anything.

usage: bench_gpu_test.py
"""

import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = REPOSITORY / "tests" / "gpu" / "results" / "h100-80gb-hbm3-kernels.json"
sys.path.insert(0, str(REPOSITORY / "tests" / "bench"))
import roofline


class Roofline(unittest.TestCase):
    def test_a_kept_run_has_what_a_table_and_a_plot_need(self):
        rows, limits, title = roofline.kept(KEPT)
        self.assertIn("H100", title)
        self.assertEqual(len(rows), len(roofline.table(rows).splitlines()) - 2)
        for row in rows:
            # What was measured cannot be faster than the card, but for noise of a few percent.
            with self.subTest(row.kernel, shape=row.shape):
                self.assertLess(row.bytes / row.us * 1e6, 1.1 * limits["bytes_per_s"])
                self.assertLess(row.operations / row.us * 1e6, 1.1 * limits["operations_per_s"])
                self.assertAlmostEqual(row.ratio, row.rival_us / row.us)

    def test_it_is_drawn_where_matplotlib_is_and_elsewhere_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(
                [sys.executable, REPOSITORY / "scripts" / "bench-gpu", "--plot", KEPT, "-o", folder],
                capture_output=True, text=True, check=False)  # fmt: skip
            if importlib.util.find_spec("matplotlib"):
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))
                self.assertTrue(Path(folder, "gpu.png").read_bytes().startswith(b"\x89PNG"))
            else:
                self.assertEqual((ran.returncode, ran.stderr), (3, "no plot: matplotlib is not installed\n"))
                self.assertEqual(list(Path(folder).iterdir()), [])


class WrongArguments(unittest.TestCase):
    def refused(self, script: str, *arguments: str | Path) -> str:
        ran = subprocess.run(
            [sys.executable, REPOSITORY / "scripts" / script, *arguments], capture_output=True, text=True, check=False,
            env={"PATH": "/nowhere"})  # fmt: skip
        self.assertEqual((ran.returncode, ran.stdout), (2, ""), ran.stderr)
        return ran.stderr.splitlines()[-1]

    def test_a_part_that_there_is_not(self):
        self.assertIn("no part 'nosuch': expected start, rivals, look_up", self.refused("bench", "--only", "nosuch"))

    def test_a_folder_without_a_build(self):
        self.assertIn("no folder bin in /nowhere: scripts/bench --build-only", self.refused("bench", "--build", "/nowhere"))
        said = self.refused("bench-gpu", "--build", "/nowhere")
        self.assertIn("no bin/cukiln_bench_gpu.so in /nowhere: scripts/bench-gpu --build-only", said)

    def test_a_file_that_is_no_run(self):
        for file in ("/nowhere.json", REPOSITORY / "README.md", REPOSITORY / "cache" / "manifests" / "shipped.json"):
            self.assertIn(f"--plot {file} is no earlier run", self.refused("bench-gpu", "--plot", file))


if __name__ == "__main__":
    unittest.main()
