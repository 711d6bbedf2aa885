# SPDX-License-Identifier: Apache-2.0
"""The machine code of every shipped kernel, for each architecture with TMA: no thread arrives at a barrier while its loads of
shared memory are in flight, for behind it TMA, or another thread block's stores, may overwrite what they read. A fence of the
async proxy, for which the arrival waits, ends them. environment: CUKILN_TEST_BINARY_DIR."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from machine_code import NO_SCOREBOARD, REPOSITORY, compile_module, modules

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_120a")
KERNELS = REPOSITORY / "kernels_src" / "nvfp4"

# Kernels that arrive with loads in flight: how many loads at most, and why that is right.
NEXT_SCALES = "a stage is released behind wgmma_wait, when its MMAs had all that its loads read: in flight are the scales of the next one"
EXCEPTIONS = {
    r"w4a16_gemm_skinny_\d+x64_\d": (1, NEXT_SCALES),
    r"w4a16_gemm_prefill_((96|128|160|192|224)x128|128x128_pair|256x128(_helped|_helper)?)": (1, NEXT_SCALES),
    r"moe_(w4a16_)?prefill_(up|down)": (2, NEXT_SCALES),  # of two rows
}

# What releases a stage that was just read: the module, the file, its text and what takes its place.
MUTANTS = {
    "no fence": ("nvfp4_w4a16_gemm", "async_copy.cuh", "  async_proxy_fence();\n  mbarrier_arrive_cta(empty);", "  mbarrier_arrive_cta(empty);"),
    "no fence, W4A4": ("nvfp4_gemm_16", "async_copy.cuh", "  async_proxy_fence();\n  mbarrier_arrive_cta(empty);", "  mbarrier_arrive_cta(empty);"),
    "skinny": ("nvfp4_w4a16_gemm_skinny", "gemm_sm90_skinny.cuh", "      wgmma_fence();\n",
               "      if (lane.lane == 0) mbarrier_arrive_cta(shared.empty + 8 * slot);\n      wgmma_fence();\n"),
    "prefill": ("nvfp4_w4a16_gemm_prefill", "gemm_sm90_prefill.cuh", "        dequantize(batch, weights, first);\n",
                "        dequantize(batch, weights, first);\n        if (first == 0) mbarrier_arrive_cta(shared.empty + 8 * pipe.index);\n"),
    "mixture of experts": ("nvfp4_moe_prefill_64", "moe_warpgroup.cuh", "      u32 operand[4][2][4];  // dequantised",
                           "      mbarrier_arrive_cta(empty + 8 * pipe.index);\n      u32 operand[4][2][4];  // dequantised"),
}  # fmt: skip

ARRIVAL = re.compile(r"SYNCS\.ARRIVE\.TRANS64(\.RED)?\.A1T0|UCGABAR_ARV")
BRANCH = re.compile(r"BRA(\.|$)|BRX|JMP")


def successors(code):
    """For each instruction the indices of those that may follow it."""
    at = {label: i for i, instruction in enumerate(code) for label in instruction.labels}
    following = []
    for i, instruction in enumerate(code):
        to = [at[label] for label in re.findall(r"\.L_x_\d+", instruction.operands) if label in at] if BRANCH.match(instruction.operation) else []
        ends = instruction.operation.startswith(("EXIT", "RET")) or to
        always = instruction.predicate == "" and not instruction.operands.startswith(("P", "!P", "UP", "!UP", "~URZ"))
        if not (ends and always) and i + 1 < len(code):
            to.append(i + 1)
        following.append(to)
    return following


def after(instruction, loads):
    """Loads in flight: (address, scoreboard, how far a fence has come: 0, 1 behind the MEMBAR, 2 behind the fence itself)."""
    loads = arrived_at(instruction, loads)
    operation = instruction.operation
    if operation.startswith(("LDS", "SHFL")) and instruction.predicate != "@!PT":
        # They return in order: what has no scoreboard of its own is there with the next one that has.
        loads = frozenset((a, instruction.scoreboard if s == NO_SCOREBOARD else s, f) for a, s, f in loads)
        if operation.startswith("LDS"):
            loads |= {(instruction.address, instruction.scoreboard, 0)}
    elif operation.startswith("MEMBAR"):
        loads = frozenset((a, s, max(f, 1)) for a, s, f in loads)
    elif operation.startswith("FENCE.VIEW.ASYNC"):
        loads = frozenset((a, instruction.scoreboard if f else s, 2 if f else f) for a, s, f in loads)
    return loads


def arrived_at(instruction, loads):
    return frozenset(load for load in loads if load[1] == NO_SCOREBOARD or not instruction.waits >> load[1] & 1)


def arrivals(code):
    """(how many there are, {address: loads in flight} of those with any)."""
    following = successors(code)
    before = [frozenset()] * len(code)
    todo = list(range(len(code)))
    while todo:
        i = todo.pop()
        loads = after(code[i], before[i])
        for j in following[i]:
            if not loads <= before[j]:
                before[j] |= loads
                todo.append(j)
    found = {i: arrived_at(instruction, before[i]) for i, instruction in enumerate(code) if ARRIVAL.match(instruction.operation)}
    return len(found), {code[i].address: sorted({load[0] for load in loads}) for i, loads in found.items() if loads}


def unexpected(kernels):
    """kernel -> arrivals with more loads in flight than its exception allows."""
    wrong = {}
    for name, code in kernels.items():
        most = max((count for kernel, (count, _) in EXCEPTIONS.items() if re.fullmatch(kernel, name)), default=0)
        if found := {hex(at): [hex(load) for load in loads] for at, loads in arrivals(code)[1].items() if len(loads) > most}:
            wrong[name] = found
    return wrong


class Arrivals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.modules = {module["name"]: module for module in modules()}
        works = [(module, arch) for arch in ARCHITECTURES for module in cls.modules.values()]
        with ThreadPoolExecutor(2) as pool:
            compiled = list(pool.map(lambda work: cls.compile(*work), works))
        cls.code = {(module["name"], arch): code for (module, arch), code in zip(works, compiled)}

    @classmethod
    def compile(cls, module, arch):
        folder = cls.folder / arch / module["name"]
        folder.mkdir(parents=True)
        return compile_module(module, folder, cls.folder / "store", arch)[1]

    def test_no_loads_are_in_flight_at_an_arrival(self):  # fault 320
        for (module, arch), code in self.code.items():
            with self.subTest(module, arch=arch):
                self.assertEqual(unexpected(code), {})

    def test_every_decode_gemm_has_an_arrival(self):
        for (module, arch), code in self.code.items():
            for name in code:
                with self.subTest(name, module=module, arch=arch):
                    if "_decode_" in name:
                        self.assertGreater(arrivals(code[name])[0], 0)

    def test_every_exception_is_needed(self):
        needed = {name: max(map(len, found.values())) for kernels in self.code.values() for name, code in kernels.items()
                  if (found := arrivals(code)[1])}  # fmt: skip
        for kernel, (most, _) in EXCEPTIONS.items():
            with self.subTest(kernel):
                self.assertEqual(max((count for name, count in needed.items() if re.fullmatch(kernel, name)), default=0), most)

    def test_a_kernel_that_releases_the_stage_it_just_read_is_found(self):
        for mutant, (name, file, text, changed) in MUTANTS.items():
            kernels = self.folder / "mutants" / mutant
            shutil.copytree(KERNELS, kernels)
            source = (kernels / file).read_text()
            self.assertEqual(source.count(text), 1, mutant)
            (kernels / file).write_text(source.replace(text, changed))
            module = self.modules[name] | {"name": mutant, "sources": [kernels / Path(s).name for s in self.modules[name]["sources"]]}
            for arch in ARCHITECTURES if mutant == "no fence" else ("sm_90a",):
                with self.subTest(mutant, arch=arch):
                    code = self.compile(module, arch)
                    wrong = unexpected(code)
                    self.assertNotEqual(wrong, {})
                    if file == "async_copy.cuh":
                        self.assertEqual(sorted(wrong), sorted(code))


if __name__ == "__main__":
    unittest.main()
