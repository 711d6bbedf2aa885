# SPDX-License-Identifier: Apache-2.0
"""scripts/model-sm100: what it says of the sources is what tests/golden/sm100_model.json keeps, so that a kernel that issues
more slowly, another tile or another constant is a change of that file; and its parts are right where the answer is known.
environment: CUKILN_TEST_BINARY_DIR; CXX where it is not g++.

  model_test.py --update    writes the file anew: review what changed
"""

import importlib.machinery
import importlib.util
import itertools
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
model_sm100 = sys.modules["model_sm100"] = importlib.util.module_from_spec(spec)
loader.exec_module(model_sm100)

import machines
from issue_loop import functions, issue_loop
from timing_model import Machine, Tile, Work, chained_us, cta_clocks, limit_of, roofline_us, slots_of, work_of

BUILD = Path(os.environ["CUKILN_TEST_BINARY_DIR"]).parent
# The issuing loop takes at most this share of a stage by its stall counts: of its MMAs' clocks or, of narrow tiles, whose MMAs take a
# third of the time or less, of its loads'.
MOST_ISSUE = 0.6
MOST_MMA_OF_NARROW = 0.35
TOLERANCE = 0.01  # of a modelled time


PLAN_LOSS = 0.05  # at most, of the plan's choice beside the best by the model
PLAN_MEAN_LOSS = 0.02  # on each machine
PLAN_CLOSE = 0.05  # of the event model's times, are those of the plan's closed form


def kept(model):
    """What the golden file keeps of a model."""
    issue = ("instructions", "stalls", "waits")
    rows = model.kernel_rows(model.machines["published"])

    def of_shape(which, shape):
        row = model.shape_row(which, *shape, 2)
        return [str(row["planned"]["tactic"])] + [[str(t["tactic"]), round(t["us"], 2), t["limit"]] for t in row["tactics"][:2]]

    return {
        "machines": {which: {name: constant["value"] for name, constant in constants.items()}
                     for which, constants in machines.as_json(model.machines).items()},
        "limits": {row["kernel"]: {name: row[name] for name in issue} for row in rows},
        "tiles": {row["kernel"]: [row["stages"], row["stage_bytes"], row["mma_clocks"]] for row in rows},
        "goals": {f"{goal['what']}, {goal['machine']}": [goal["reached"], *(round(value, 2) for value in goal["values"].values())] for goal in model.goals()},
        "shapes": {
            "x".join(map(str, (m, n, k))) + f", {which}": of_shape(which, (m, n, k))
            for which in model.machines
            for m, n, k in model.shapes
            if (n, k) in model_sm100.SHOWN and m in model_sm100.SHOWN_TOKENS
        },
    }  # fmt: skip


def differences(given, golden):
    """How what a model says differs from what is kept. Fewer instructions, stalls and waits are none."""
    found = [f"{name} of the machine '{which}' is {given['machines'][which].get(name)}, {value} is kept"
             for which, constants in golden["machines"].items()
             for name, value in constants.items() if given["machines"][which].get(name) != value]  # fmt: skip
    for kernel, limits in golden["limits"].items():
        found += [f"{kernel}: {given['limits'][kernel][name]} {name} in the issuing loop, at most {most}"
                  for name, most in limits.items() if given["limits"][kernel][name] > most]  # fmt: skip
    found += [f"{kernel}: stages, their bytes and MMA clocks are {given['tiles'][kernel]}, {tile} is kept"
              for kernel, tile in golden["tiles"].items() if given["tiles"][kernel] != tile]  # fmt: skip
    found += [f"goal {goal}: {given['goals'][goal]}, {kept_goal} is kept"
              for goal, kept_goal in golden["goals"].items() if given["goals"][goal] != kept_goal]  # fmt: skip
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
        cls.model = model_sm100.Model(KERNELS, build=BUILD)
        cls.golden = json.loads(GOLDEN.read_text(encoding="utf-8"))

    def changed(self, *changes):
        """The model of sources with changes by tokens."""
        with tempfile.TemporaryDirectory() as folder:
            kernels = Path(folder, "nvfp4")
            shutil.copytree(KERNELS, kernels)
            sources = {path.name: path.read_text(encoding="utf-8") for path in kernels.glob("*.cu*")}
            for name, text in mutate(sources, changes).items():
                (kernels / name).write_text(text, encoding="utf-8")
            return model_sm100.Model(kernels, build=BUILD)

    def test_the_sources_are_as_fast_as_is_kept(self):
        self.assertEqual(differences(kept(self.model), self.golden), [])

    def test_the_issuing_loop_leaves_the_tensor_core_busy(self):
        for row in self.model.kernel_rows(self.model.machines["published"]):
            with self.subTest(row["kernel"]):
                if row["mma_share"] <= MOST_MMA_OF_NARROW:
                    self.assertLessEqual(row["issue_of_load"], MOST_ISSUE)
                else:
                    self.assertLessEqual(row["issue_of_mma"], MOST_ISSUE)

    def test_the_plan_has_the_mean_issuing_loop(self):
        halves = [tile.issue_clocks / 2 for tile in self.model.tiles.values()]
        self.assertAlmostEqual(self.model.planned_issue, sum(halves) / len(halves), delta=15)

    def losses(self, model, which):
        """By how much the plan's choice is slower than the best, by shape."""
        found = {shape: model.shape_row(which, *shape)["planned_loss"] for shape in model.shapes}
        return found | {shape: model.grouped_row(which, *shape)["planned_loss"] for shape in model.grouped}

    def test_the_plan_selects_what_the_event_model_finds_the_fastest(self):
        losses = {shape: self.model.plan_loss(*shape) for shape in (*self.model.shapes, *self.model.grouped)}
        self.assertGreater(len(losses), 300)
        worst = max(losses, key=losses.get)
        self.assertLessEqual(losses[worst], PLAN_LOSS, worst)

    def test_the_plan_is_no_bad_one_on_either_machine(self):
        for which in self.model.machines:
            losses = self.losses(self.model, which)
            self.assertLess(sum(losses.values()) / len(losses), PLAN_MEAN_LOSS)

    def test_a_plan_by_another_machine_would_be_noticed(self):
        planned = self.model.planned
        self.addCleanup(setattr, self.model, "planned", planned)
        self.model.planned = {shape: (model_sm100.Tactic(self.model.plain[0]), 0) for shape in self.model.shapes}
        losses = [self.model.shape_row("published", *shape)["planned_loss"] for shape in self.model.shapes]
        self.assertGreater(max(losses), 2 * PLAN_LOSS)

    def test_the_plans_closed_form_is_near_the_event_model(self):
        for shape in self.model.shapes:
            with self.subTest(shape):
                tactic, us = self.model.planned[shape]
                for which in self.model.machines:
                    expected = self.model.shape_row(which, *shape)["planned"]["us"]
                    self.assertLess(abs(us[which] / expected - 1), PLAN_CLOSE, (which, tactic))

    def test_the_first_machine_is_as_a_b200_was_measured(self):
        machine = self.model.machines["published"]
        fitted = self.model.residuals(machine)
        self.assertLess(fitted["mean"], 0.07)
        self.assertLess(fitted["largest"], 0.2)
        # A large GEMM reaches what NVIDIA writes, and no more of L2 is assumed than that takes.
        shares = {row["kernel"]: row["mma_share"] for row in self.model.kernel_rows(machine)}
        self.assertGreaterEqual(shares[machines.NVIDIA_TILE], machines.NVIDIA_SHARE)
        # Others' kernels are hardly faster than the machine allows.
        self.assertLess(max(us / r.us for r, us in self.model.published(machine)), 1.1)
        # The constants are near their best values, together and each alone.
        for factors in itertools.product((2 / 3, 1, 1.5), repeat=len(machines.FITTED)):
            if set(factors) != {1}:
                other = {name: getattr(machine, name) * factor for name, factor in zip(machines.FITTED, factors, strict=True)}
                with self.subTest(other):
                    self.assertGreater(self.model.residuals(replace(machine, **other))["mean"], fitted["mean"])

    def test_a_loop_that_issues_more_slowly_is_noticed(self):
        commit = "tcgen05_commit<Tile::kCtas>(shared_address(&shared.empty[smem_pipe.index]), (1u << Tile::kClusterCtas) - 1);"
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
        kept_machines = self.model.machines
        self.addCleanup(setattr, self.model, "machines", kept_machines)
        machine = kept_machines["h100"]
        self.model.machines = kept_machines | {"h100": replace(machine, in_flight=machine.in_flight / 2)}
        found = "\n".join(differences(kept(self.model), self.golden))
        self.assertIn("in_flight of the machine 'h100'", found)
        self.assertIn("us is kept", found)
        self.assertNotIn("'published'", found)

    def test_the_model_is_near_what_an_h100_measured(self):
        twin = self.model.twin()
        self.assertGreater(twin["runs"], 200)
        self.assertLess(twin["median_error"], 0.08)
        errors = sorted(abs(row["model_us"] / row["measured_us"] - 1) for row in twin["values"])
        self.assertLess(errors[len(errors) * 9 // 10], 0.25)
        self.assertLess(errors[-1], 0.9)  # few tiles of a last wave, whose loads the model does not speed up

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
B200 = Machine(sms=148, ghz=1.85, mma_rate=16384, shared=128, memory=3946, l2=8970, ingress=1e9, multicast=0, in_flight=75000, l2_latency=470,
               memory_latency=1300, producer=0, stage=0, wake=0, mma_latency=0, scoreboard=10, chunk=0, read=0, setup=0, drain=0, meet=0,
               swapped_setup=0, swapped_epilogue=0, swapped_column=0, swapped_drain=0, split=1000, dsmem=16, launch_us=0)  # fmt: skip
MACHINE = B200


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

    def test_bytes_that_another_cta_asked_for_take_clocks_beyond_their_own(self):
        multicast = replace(work(1, 8, rate=64), multicast_bytes=1000)
        self.assertAlmostEqual(cta_clocks(TILE, replace(MACHINE, multicast=0.1), multicast), 8 * (36864 / 64 + 100) + 256, delta=1)

    def test_a_loop_that_issues_more_slowly_than_mmas_sets_the_pace(self):
        slow = replace(TILE, issue_clocks=300)
        self.assertAlmostEqual(cta_clocks(slow, MACHINE, work(1, 100)) / 100, 300, delta=3)

    def test_an_epilogue_is_hidden_behind_the_next_tile_unless_buffers_overlap_or_it_is_longer(self):
        machine = replace(MACHINE, chunk=500, read=200)  # two chunks
        self.assertAlmostEqual(cta_clocks(TILE, machine, work(4, 8)), 4 * 2048 + 1000, delta=1)
        overlap = replace(TILE, overlap=True)  # the columns that both buffers have are read before they are converted
        self.assertAlmostEqual(cta_clocks(overlap, machine, work(4, 8)), 4 * 2048 + 3 * 200 + 1000, delta=1)
        late = replace(overlap, reads_first=False)
        self.assertAlmostEqual(cta_clocks(late, machine, work(4, 8)), 4 * 2048 + 3 * 500 + 1000, delta=1)
        self.assertAlmostEqual(cta_clocks(TILE, machine, work(4, 1)), 256 + 4 * 1000, delta=1)

    def test_in_halves_no_mma_waits_for_shared_columns_and_the_last_epilogue_begins_sooner(self):
        machine = replace(MACHINE, chunk=500, read=200, shared=1e9)
        halves = replace(TILE, overlap=True, together=1)
        # The first of two chunks is complete 128 clocks before the second, and is read while the next tile's first half is multiplied.
        self.assertAlmostEqual(cta_clocks(halves, machine, work(4, 8)), 4 * 2048 - 128 + 1000, delta=1)
        together = replace(halves, together=4)
        self.assertAlmostEqual(cta_clocks(together, machine, work(4, 8)), 4 * 2048 + 500, delta=1)
        self.assertAlmostEqual(cta_clocks(together, machine, work(40, 8)), 40 * 2048 + 500, delta=1)
        slow = replace(machine, read=600)  # 128 are hidden by the end of a tile, and 128 by the beginning of the next one
        self.assertAlmostEqual(cta_clocks(together, slow, work(4, 8)), 4 * 2048 + 3 * (600 - 256) + 500, delta=1)
        # Where loads come late, the second halves of four stages are behind the last load.
        self.assertAlmostEqual(cta_clocks(together, machine, work(1, 8, rate=64)), 8 * 576 + 128 + 4 * 128 + 500, delta=1)
        # Of a stage alone, the half that is complete first is the one that is read first.
        self.assertAlmostEqual(cta_clocks(together, machine, work(4, 1)), 128 + 4 * 1000, delta=1)
        # Each half's MMAs read all rows.
        self.assertEqual(halves.mma_clocks(B200), 2 * replace(TILE, columns=64).mma_clocks(B200))

    def test_swapped_operands_have_a_set_up_an_epilogue_and_an_end_of_their_own(self):
        machine = replace(MACHINE, setup=1, chunk=2, drain=3, swapped_setup=700, swapped_epilogue=100, swapped_column=2, swapped_drain=900)
        swapped = replace(TILE, swapped=True)
        self.assertAlmostEqual(cta_clocks(swapped, machine, work(1, 8)), 700 + 2048 + 100 + 2 * 128 + 900, delta=1)
        half = replace(swapped, rows=64)
        self.assertAlmostEqual(cta_clocks(half, machine, work(1, 8)), 700 + 2048 + 100 + 2 * 128 + 900, delta=1)
        # What adds up K's parts is the epilogue, too.
        self.assertAlmostEqual(cta_clocks(swapped, machine, replace(work(1, 8), reduction=300)), 700 + 2048 + 300 + 900, delta=1)

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
        found = work_of(TILE, B200, 256, 7168, 7168)
        self.assertEqual((found.tiles, found.slots, found.waves, found.steps), (112, 148, 1, 112))
        self.assertAlmostEqual(found.wave_efficiency, 112 / 148)
        swapped = replace(TILE, columns=64, swapped=True, stage_bytes=28672)
        self.assertEqual(work_of(swapped, B200, 1, 7168, 7168).stage_bytes, 28672 - 63 * 128)

    def test_a_cluster_splits_k_and_adds_up_its_parts(self):
        swapped = replace(TILE, columns=64, swapped=True, stage_bytes=28672, splits=(1, 4))
        whole, split = (work_of(swapped, B200, 16, 2112, 7168, splits=splits) for splits in (1, 4))
        self.assertEqual((whole.steps, split.steps), (112, 28))
        self.assertEqual((whole.reduction, split.reduction), (0, 1000 + 128 * 16 * 4 * 3 / 4 / 16))
        self.assertEqual(split.rates["L2"], whole.rates["L2"] / 4)
        # Of 11 stages, three CTAs have three, and one has two.
        self.assertEqual(work_of(swapped, B200, 16, 2112, 2816, splits=4).steps, 12)
        self.assertAlmostEqual(cta_clocks(TILE, MACHINE, replace(work(1, 8), reduction=300)), 8 * 256 + 300, delta=1)

    def test_the_ctas_of_a_cluster_share_a_gpc(self):
        self.assertEqual([slots_of(TILE, 148, splits) for splits in (1, 2, 4, 8)], [148, 72, 32, 16])
        pairs = replace(TILE, rows=256, ctas=2)
        self.assertEqual([slots_of(pairs, sms, 1) for sms in (148, 1)], [74, 1])
        self.assertEqual(slots_of(replace(pairs, rows_shared=2), 148, 1), 64)
        self.assertEqual(slots_of(replace(pairs, rows_shared=2, columns_shared=2), 148, 1), 64)

    def test_an_mma_of_few_columns_waits_for_shared_memory(self):
        self.assertEqual([replace(TILE, columns=columns).mma_clocks(B200) for columns in (64, 128, 256)], [192, 256, 512])
        self.assertEqual(replace(TILE, rows=256, columns=128, ctas=2).mma_clocks(B200), 256)

    def test_what_is_multicast_is_asked_for_once_and_arrives_everywhere(self):
        shared = replace(TILE, rows_shared=2)
        alone, of_two = (work_of(tile, B200, 8192, 8192, 8192, cold=False) for tile in (TILE, shared))
        self.assertEqual((alone.stage_bytes, of_two.stage_bytes), (36864, 36864 * 3 / 4))
        # The second tile of the cluster is beyond the matrix.
        both = replace(shared, columns_shared=2)
        self.assertEqual(work_of(both, B200, 8192, 8192, 8192, cold=False).stage_bytes, 36864 / 2)
        self.assertEqual([work_of(tile, B200, 128, 128, 2560).tiles for tile in (TILE, shared, both)], [1, 2, 4])
        # Of the 4096 bytes of its columns' scales each CTA of a pair asks for one half.
        pair = replace(TILE, rows=256, columns=256, ctas=2, stage_bytes=38912, scales_shared=2)
        self.assertEqual(work_of(pair, B200, 8192, 8192, 8192, cold=False).stage_bytes, 38912 - 2048)
        of_four = replace(pair, rows_shared=2, columns_shared=2)
        self.assertEqual(work_of(of_four, B200, 8192, 8192, 8192, cold=False).stage_bytes, (38912 - 2048) / 2)
        port = replace(B200, ingress=36)  # 36864 bytes in 1024 clocks, multicast or not
        for tile in (TILE, shared):
            self.assertAlmostEqual(cta_clocks(tile, port, work_of(tile, port, 128, 128, 2560, cold=False)), 10 * 1024 + 256, delta=20)
        # L2 sends it once.
        slow = replace(B200, l2=148 * 36)
        alone, of_two = (cta_clocks(tile, slow, work_of(tile, slow, 8192, 8192, 8192, cold=False)) for tile in (TILE, shared))
        self.assertAlmostEqual(of_two / alone, 3 / 4, delta=0.02)

    def test_in_a_chain_a_kernel_is_set_up_and_has_its_first_weights(self):
        machine = replace(B200, setup=3000, drain=700, launch_us=0.1, ghz=1)
        slow = replace(work(1, 8, rate=64), activations=0)  # a stage loads in 576 clocks, and multiplies in 256
        self.assertAlmostEqual(cta_clocks(TILE, machine, slow), 3000 + 8 * 576 + 256 + 700, delta=1)
        # Four of eight stages are there, and the fifth is loaded when the first is multiplied; the wait ends as late as an empty launch.
        self.assertAlmostEqual(chained_us(TILE, machine, slow) * 1000, 100 + 256 + 4 * 576 + 256 + 700, delta=1)
        # Activations are loaded behind the wait.
        half = replace(slow, activations=0.5)
        self.assertAlmostEqual(chained_us(TILE, machine, half) * 1000, 100 + 4 * 288 + 4 * 576 + 256 + 700, delta=1)

    def test_each_expert_has_weights_of_its_own(self):
        alone, many = (work_of(TILE, B200, 8192, 4096, 7168, experts=experts) for experts in (1, 32))
        self.assertEqual(alone.tiles, many.tiles)
        self.assertLess(many.rates["memory"], alone.rates["memory"])
        self.assertGreater(many.latency, alone.latency)

    def test_a_roofline_is_memory_for_few_tokens_and_the_tensor_core_for_many(self):
        machine = B200
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

    def test_the_loop_with_the_most_mmas_counts(self):
        first = SASS.partition(".L_x_1:")[2]
        for more in (1, 2):
            second = first.replace("UTCBAR", "UTCOMMA.4X gdesc[UR8]; /* 0x80100c0a080075ea */\n /* 0x0007e2000b80000e */\n /*0028*/ UTCBAR", more - 1)
            for at in ("0010", "0020", "0028", "0030", "0040"):
                second = second.replace(f"/*{at}*/", f"/*1{at[1:]}*/")
            loop = issue_loop("kernel", functions(SASS + ".L_x_2:" + second.replace("L_x_1", "L_x_2"))["kernel"])
            self.assertEqual(loop.mmas, more)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        model = model_sm100.Model(KERNELS, build=BUILD)
        parts = []
        for part, rows in kept(model).items():
            lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
            parts.append(f'  "{part}": {{\n{lines}\n  }}')
        GOLDEN.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    else:
        unittest.main()
