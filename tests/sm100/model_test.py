# SPDX-License-Identifier: Apache-2.0
"""scripts/model-sm100: what it says of the sources is what tests/golden/sm100_model.json keeps, so that a kernel that issues
more slowly, another tile or another constant is a change of that file; and its parts are right where the answer is known.
environment: CUKILN_TEST_BINARY_DIR; CXX where it is not g++.

  model_test.py --update    writes the file anew: review what changed
"""

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "model-sm100"
GOLDEN = REPOSITORY / "tests" / "golden" / "sm100_model.json"
KERNELS = REPOSITORY / "kernels_src" / "nvfp4"
sys.path.insert(0, str(REPOSITORY / "tests" / "emulator"))
sys.path.insert(0, str(REPOSITORY / "tests" / "sm100"))
from mutate import mutate

loader = importlib.machinery.SourceFileLoader("model_sm100", str(SCRIPT))
spec = importlib.util.spec_from_loader("model_sm100", loader)
model_sm100 = importlib.util.module_from_spec(spec)
loader.exec_module(model_sm100)

import machines
from issue_loop import functions, issue_loop
from timing_model import Tile, Work, cta_clocks, limit_of, roofline_us, work_of

BUILD = Path(os.environ["CUKILN_TEST_BINARY_DIR"]).parent
# The issuing loop takes at most this share of its MMAs' clocks by its stall counts. The swapped kernel's MMAs are half empty.
MOST_ISSUE = {"swapped": 0.9}
MOST_ISSUE_OF_OTHERS = 0.6
TOLERANCE = 0.01  # of a modelled time


def kept(model):
    """What the golden file keeps of a model."""
    issue = ("instructions", "stalls", "waits")
    return {
        "machine": {name: constant["value"] for name, constant in machines.as_json(model.machine).items()},
        "limits": {row["kernel"]: {name: row[name] for name in issue} for row in model.kernel_rows()},
        "tiles": {row["kernel"]: [row["stages"], row["stage_bytes"], row["mma_clocks"]] for row in model.kernel_rows()},
        "shapes": {
            f"{m}x{n}x{k}": [row["planned"]] + [[t["kernel"], round(t["us"], 2), t["limit"]] for t in row["tactics"][:2]]
            for m, n, k in model.shapes
            if (n, k) in model_sm100.SHOWN and m in model_sm100.SHOWN_TOKENS
            for row in [model.shape_row(m, n, k)]
        },
    }  # fmt: skip


def differences(given, golden):
    """How what a model says differs from what is kept. Fewer instructions, stalls and waits are none."""
    found = [f"{name} of the machine is {given['machine'].get(name)}, {value} is kept"
             for name, value in golden["machine"].items() if given["machine"].get(name) != value]  # fmt: skip
    for kernel, limits in golden["limits"].items():
        found += [f"{kernel}: {given['limits'][kernel][name]} {name} in the issuing loop, at most {most}"
                  for name, most in limits.items() if given["limits"][kernel][name] > most]  # fmt: skip
    found += [f"{kernel}: stages, their bytes and MMA clocks are {given['tiles'][kernel]}, {tile} is kept"
              for kernel, tile in golden["tiles"].items() if given["tiles"][kernel] != tile]  # fmt: skip
    for shape, (planned, *tactics) in golden["shapes"].items():
        now_planned, *now = given["shapes"][shape]
        if now_planned != planned:
            found.append(f"{shape}: the plan selects {now_planned}, {planned} is kept")
        for (kernel, us, _), (now_kernel, now_us, _) in zip(tactics, now, strict=True):
            if kernel != now_kernel or abs(now_us / us - 1) > TOLERANCE:
                found.append(f"{shape}: {now_kernel} {now_us} us, {kernel} {us} us is kept")
    return found


class Kept(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = model_sm100.Model(machines.B200, KERNELS, build=BUILD)
        cls.golden = json.loads(GOLDEN.read_text(encoding="utf-8"))

    def changed(self, *changes):
        """The model of sources with changes by tokens."""
        with tempfile.TemporaryDirectory() as folder:
            kernels = Path(folder, "nvfp4")
            shutil.copytree(KERNELS, kernels)
            sources = {path.name: path.read_text(encoding="utf-8") for path in kernels.glob("*.cu*")}
            for name, text in mutate(sources, changes).items():
                (kernels / name).write_text(text, encoding="utf-8")
            return model_sm100.Model(machines.B200, kernels, build=BUILD)

    def test_the_sources_are_as_fast_as_is_kept(self):
        self.assertEqual(differences(kept(self.model), self.golden), [])

    def test_the_issuing_loop_leaves_the_tensor_core_busy(self):
        for row in self.model.kernel_rows():
            with self.subTest(row["kernel"]):
                self.assertLessEqual(row["issue_share"], MOST_ISSUE.get(row["kernel"], MOST_ISSUE_OF_OTHERS))

    def test_the_plan_has_the_clocks_of_a_stage_from_the_model(self):
        for name, tile in self.model.tiles.items():
            with self.subTest(name):
                clocks = self.model.load_clocks(tile)
                self.assertAlmostEqual(self.model.planned_stage_clocks[name], clocks, delta=1)
                self.assertGreater(clocks, max(tile.mma_clocks(self.model.machine), tile.issue_clocks))

    def test_the_plan_is_seldom_slower_than_the_best_tactic(self):
        rows = [self.model.shape_row(*shape) for shape in self.model.shapes]
        losses = [row["planned_loss"] for row in rows]
        self.assertLess(sum(losses) / len(losses), 0.04)
        self.assertLess(max(losses), 0.36)

    def test_a_loop_that_issues_more_slowly_is_noticed(self):
        commit = "tcgen05_commit<kCtas>(shared_address(&shared.empty[smem_pipe.index]), (1u << Tile::kClusterCtas) - 1);"
        worse = self.changed((commit, "__threadfence(); " + commit))
        self.assertIn("in the issuing loop, at most", "\n".join(differences(kept(worse), self.golden)))

    def test_another_tile_is_noticed(self):
        with self.assertRaisesRegex(model_sm100.ModelError, "nvfp4_gemm_128x128 is not planned as its tile is"):
            self.changed(("kSharedLimit = 232448", "kSharedLimit = 232448 - 32768"))
        tile = self.model.tiles["256x256"]
        self.addCleanup(self.model.tiles.__setitem__, "256x256", tile)
        self.model.tiles["256x256"] = replace(tile, stages=2)
        found = "\n".join(differences(kept(self.model), self.golden))
        self.assertIn("256x256: stages, their bytes and MMA clocks are [2,", found)

    def test_another_constant_is_noticed(self):
        machine = self.model.machine
        try:
            self.model.machine = replace(machine, in_flight=machine.in_flight / 2)
            found = "\n".join(differences(kept(self.model), self.golden))
        finally:
            self.model.machine = machine
        self.assertIn("in_flight of the machine", found)
        self.assertIn("us is kept", found)

    def test_the_model_is_near_what_an_h200_measured(self):
        twin = self.model.twin()
        self.assertGreater(twin["runs"], 30)
        self.assertLess(twin["median_error"], 0.08)
        self.assertLess(abs(twin["largest_error"]), 0.45)

    def test_the_page_fits_a_terminal(self):
        page = self.model.page()
        self.assertLessEqual(max(map(len, page.splitlines())), 80)
        self.assertIn("Nothing here has run on sm_100a", page)

    def test_a_missing_build_is_named(self):
        done = subprocess.run([SCRIPT, "--build", "/nowhere"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 3)
        self.assertIn("/nowhere", done.stderr)

    def test_an_unknown_constant_is_refused_with_those_there_are(self):
        for arguments, expected in ((("ingres", "1"), "memory_latency"), (("memory", "fast"), "'fast' is no number")):
            done = subprocess.run([SCRIPT, "--set", *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr.splitlines()[-1])

    def test_the_shapes_are_those_of_the_tuner(self):
        tune = REPOSITORY / "src" / "bindings" / "python" / "cukiln" / "torch" / "tune.py"
        self.assertIn("from ._shapes import TOKENS, WEIGHTS", tune.read_text(encoding="utf-8"))
        self.assertIn((7168, 7168), self.model.weights)
        self.assertIn(4096, self.model.tokens)


TILE = Tile("t", 128, 128, 1, False, 4, 36864, 256, 64, 64, False)
MACHINE = replace(machines.B200, wake=0, mma_latency=0, producer=0, stage=0, chunk=0, setup=0, launch_us=0)


def work(tiles=1, stages=8, rate=1e9, latency=0):
    return Work(tiles, 1, tiles, stages * 4, TILE.stage_bytes, latency, {"L2": rate}, 0)


class Model(unittest.TestCase):
    def test_mmas_follow_each_other_where_nothing_else_takes_time(self):
        self.assertAlmostEqual(cta_clocks(TILE, MACHINE, work(3, 8)), 3 * 8 * 256, delta=1)

    def test_loads_are_hidden_behind_mmas_up_to_the_ring(self):
        load = TILE.stage_bytes / 200  # 184 clocks
        self.assertAlmostEqual(cta_clocks(TILE, MACHINE, work(1, 8, rate=200)), load + 8 * 256, delta=1)
        # Each of the four stages is loaded anew when its MMAs are complete: one of every four loads waits.
        late = cta_clocks(TILE, MACHINE, work(1, 400, latency=2000)) / 400
        self.assertAlmostEqual(late, (2000 + 256) / 4, delta=10)

    def test_loads_that_take_longer_than_mmas_set_the_pace(self):
        self.assertAlmostEqual(cta_clocks(TILE, MACHINE, work(1, 8, rate=64)), 8 * 36864 / 64 + 256, delta=1)

    def test_a_loop_that_issues_more_slowly_than_mmas_sets_the_pace(self):
        slow = replace(TILE, issue_clocks=300)
        self.assertAlmostEqual(cta_clocks(slow, MACHINE, work(1, 100)) / 100, 300, delta=3)

    def test_an_epilogue_is_hidden_behind_the_next_tile_unless_buffers_overlap_or_it_is_longer(self):
        machine = replace(MACHINE, chunk=500)  # two chunks
        self.assertAlmostEqual(cta_clocks(TILE, machine, work(4, 8)), 4 * 2048 + 1000, delta=1)
        self.assertAlmostEqual(cta_clocks(replace(TILE, overlap=True), machine, work(4, 8)), 4 * 2048 + 3 * 500 + 1000, delta=1)
        self.assertAlmostEqual(cta_clocks(TILE, machine, work(4, 1)), 256 + 4 * 1000, delta=1)

    def test_a_last_stage_that_is_not_whole_has_fewer_mmas(self):
        partial = replace(work(), steps=5)
        self.assertAlmostEqual(cta_clocks(TILE, MACHINE, partial), 256 + 64, delta=1)

    def test_tiles_beyond_those_simulated_take_as_long(self):
        self.assertAlmostEqual(cta_clocks(TILE, MACHINE, work(40, 8)), 40 * 2048, delta=1)

    def test_the_limit_is_what_takes_the_time(self):
        self.assertEqual(limit_of(TILE, MACHINE, work(1, 100), 0), "MMA")
        self.assertEqual(limit_of(TILE, MACHINE, work(1, 100, rate=10), 0), "L2")
        self.assertEqual(limit_of(replace(TILE, issue_clocks=900), MACHINE, work(1, 100), 0), "issue")
        self.assertEqual(limit_of(TILE, replace(MACHINE, launch_us=1000), work(), 0), "fixed")
        few = replace(work(1, 100, rate=140), slots=100)  # loads take as long as MMAs
        self.assertEqual(limit_of(TILE, MACHINE, few, 0), "waves")

    def test_the_work_of_a_shape(self):
        found = work_of(TILE, machines.B200, 256, 7168, 7168)
        self.assertEqual((found.tiles, found.slots, found.waves, found.steps), (112, 148, 1, 112))
        self.assertAlmostEqual(found.wave_efficiency, 112 / 148)
        swapped = replace(TILE, columns=64, swapped=True, stage_bytes=28672)
        self.assertEqual(work_of(swapped, machines.B200, 1, 7168, 7168).stage_bytes, 28672 - 63 * 128)

    def test_a_roofline_is_memory_for_few_tokens_and_the_tensor_core_for_many(self):
        machine = machines.B200
        self.assertAlmostEqual(roofline_us(machine, 1, 7168, 7168), 7168 * 7168 * 9 / 16 / 7.3e6, delta=0.1)
        self.assertAlmostEqual(roofline_us(machine, 4096, 7168, 7168), 4096 * 7168**2 / 148 / 16384 / 1850, delta=0.1)


SASS = """
	.section	.text.kernel,"ax",@progbits
.L_x_1:
        /*0010*/                   UIADD3 UR6, UR6, 0x1, URZ ;   /* 0x0000000106067890 */
                                                                 /* 0x000fe2000fffe0ff */
        /*0020*/                   UTCOMMA.4X gdesc[UR8], gdesc[UR10], tmem[UR14] ; /* 0x80100c0a080075ea */
                                                                 /* 0x0007e2000b80000e */
        /*0030*/                   UTCBAR [UR6], URZ ;           /* 0x000000ff060073e9 */
                                                                 /* 0x0083e200080000ff */
        /*0040*/              @P1 BRA `(.L_x_1) ;                /* 0xfffffff400e01947 */
                                                                 /* 0x000fea000383ffff */
"""


class MachineCode(unittest.TestCase):
    def test_a_control_word_has_stalls_and_waits(self):
        loop = issue_loop("kernel", functions(SASS)["kernel"])
        self.assertEqual((loop.instructions, loop.mmas), (4, 1))
        self.assertEqual(loop.stalls, 1 + 1 + 1 + 5)
        self.assertEqual(loop.waits, 1)  # UTCBAR, for the registers of UTCOMMA
        self.assertEqual(loop.clocks(10), 18)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        model = model_sm100.Model(machines.B200, KERNELS, build=BUILD)
        parts = []
        for part, rows in kept(model).items():
            lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
            parts.append(f'  "{part}": {{\n{lines}\n  }}')
        GOLDEN.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    else:
        unittest.main()
