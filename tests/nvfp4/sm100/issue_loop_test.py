# SPDX-License-Identifier: Apache-2.0
"""The loop of each sm_100a GEMM that issues its MMAs, by its machine code: how many instructions it has for a stage, how long they
take to issue, and how many wait for a scoreboard. environment: CUKILN_TEST_BINARY_DIR."""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "kernels"), str(TESTS / "emulator")]
from machine_code import REPOSITORY, Instruction, compile_module, modules
from mutate import mutate

KERNELS = REPOSITORY / "kernels_src" / "nvfp4"
MODULES = ("nvfp4_gemm", "nvfp4_gemm_16", "nvfp4_moe_grouped_up")


class IssueLoop(NamedTuple):
    instructions: int
    stalls: int  # sum of stall counts, in clocks
    waits: int  # instructions that wait for a scoreboard

    def fits(self, most):
        return all(value <= limit for value, limit in zip(self, most, strict=True))


class NoIssueLoop(Exception):
    """A kernel has no loop with an MMA and a commit: this test must be adapted to it."""


# At most. The MMAs of a stage take two clocks for each column of a tile: a loop that issues them in less leaves no gap between them.
# What a change of a kernel adds is to be compared with that, and entered here.
MOST = {
    "nvfp4_gemm_128x128": IssueLoop(80, 102, 3),
    "nvfp4_gemm_128x256": IssueLoop(92, 114, 3),
    "nvfp4_gemm_256x256": IssueLoop(94, 116, 6),
    "nvfp4_gemm_256x128": IssueLoop(82, 104, 5),
    "nvfp4_gemm_256x256_x2": IssueLoop(94, 116, 6),
    "nvfp4_gemm_256x192_x2": IssueLoop(94, 116, 6),
    "nvfp4_gemm_256x128_x2": IssueLoop(82, 104, 5),
    "nvfp4_gemm_256x256_x4": IssueLoop(107, 133, 11),
    "nvfp4_gemm_256x192_x4": IssueLoop(94, 116, 6),
    "nvfp4_gemm_swapped_16": IssueLoop(80, 106, 3),
    "nvfp4_gemm_swapped_32": IssueLoop(80, 107, 3),
    "nvfp4_gemm_swapped_64": IssueLoop(80, 106, 3),
    "nvfp4_gemm_swapped_128": IssueLoop(80, 106, 3),
    "nvfp4_gemm_swapped_256": IssueLoop(92, 118, 3),
    "nvfp4_gemm_swapped_64_half": IssueLoop(80, 106, 3),
    "nvfp4_gemm_grouped_128x128": IssueLoop(80, 102, 3),
    "nvfp4_gemm_grouped_128x256": IssueLoop(92, 114, 3),
    "moe_grouped_up": IssueLoop(122, 144, 8),
}


def count(body, prefix):
    return sum(i.operation.startswith(prefix) for i in body)


def issue_loop(code):
    """The innermost loop with an MMA and the commit of its stage; of several, the one with the most MMAs: others are for the first
    and last stages of a tile."""
    begins = {label: i for i, instruction in enumerate(code) for label in instruction.labels}
    loops = []
    for end, branch in enumerate(code):
        begin = next((begins[label] for label in begins if f"`({label})" in branch.operands), end + 1)
        if branch.operation.startswith("BRA") and begin <= end:
            loops.append(range(begin, end + 1))
    innermost = []
    for loop in sorted(loops, key=len):
        body = code[loop.start : loop.stop]
        if count(body, "UTCOMMA") and count(body, "UTCBAR") and not any(
            loop.start < other.stop and other.start < loop.stop for other in innermost
        ):  # fmt: skip
            innermost.append(loop)
    if not innermost:
        raise NoIssueLoop(f"no loop with UTCOMMA and UTCBAR among {len(code)} instructions")
    body = max((code[loop.start : loop.stop] for loop in innermost), key=lambda body: count(body, "UTCOMMA"))
    return IssueLoop(len(body), sum(i.stall for i in body), sum(i.waits != 0 for i in body))


def issue_loops(sources):
    """Of the kernels of MODULES, compiled from a folder of sources."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for module in modules():
            if module["name"] in MODULES:
                into = Path(folder, module["name"])
                into.mkdir()
                chosen = module | {"sources": [sources / Path(source).name for source in module["sources"]]}
                _, code = compile_module(chosen, into, Path(folder, "store"), "sm_100a")
                found |= {name: issue_loop(code[name]) for name in code if name in MOST}
    return found


def instruction(operation, operands="", stall=1, waits=0, labels=()):
    return Instruction(0, "", operation, operands, 7, waits, stall, labels)


class IssueLoops(unittest.TestCase):
    def test_the_loop_of_each_kernel_is_no_longer_than_it_was(self):
        loops = issue_loops(KERNELS)
        self.assertEqual(loops.keys(), MOST.keys())
        for name, loop in loops.items():
            with self.subTest(name):
                self.assertTrue(loop.fits(MOST[name]), f"{loop}, {MOST[name]} at most")

    def test_a_loop_that_issues_more_slowly_is_noticed(self):
        commit = "tcgen05_commit<Tile::kCtas>(shared_address(&shared.empty[smem_pipe.index]), (1u << Tile::kClusterCtas) - 1);"
        with tempfile.TemporaryDirectory() as folder:
            kernels = Path(folder, "nvfp4")
            shutil.copytree(KERNELS, kernels)
            sources = {path.name: path.read_text(encoding="utf-8") for path in kernels.glob("*.cu*")}
            for name, text in mutate(sources, [(commit, "__threadfence(); " + commit)]).items():
                (kernels / name).write_text(text, encoding="utf-8")
            loops = issue_loops(kernels)
        self.assertFalse(loops["nvfp4_gemm_128x128"].fits(MOST["nvfp4_gemm_128x128"]))

    def test_the_loop_with_the_most_mmas_counts(self):
        first = [instruction("UTCOMMA.4X", labels=(".L_x_1",)), instruction("UTCBAR", waits=2, stall=3),
                 instruction("BRA", "`(.L_x_1)", stall=5)]  # fmt: skip
        self.assertEqual(issue_loop(first), IssueLoop(3, 9, 1))
        second = [instruction("UTCOMMA.4X", labels=(".L_x_2",)), instruction("UTCOMMA.4X"), instruction("UTCBAR"),
                  instruction("BRA", "`(.L_x_2)")]  # fmt: skip
        outer = [instruction("NOP", labels=(".L_x_3",)), *first, *second, instruction("BRA", "`(.L_x_3)")]
        self.assertEqual(issue_loop(outer), IssueLoop(4, 4, 0))
        with self.assertRaises(NoIssueLoop):
            issue_loop(outer[:1])


if __name__ == "__main__":
    unittest.main()
