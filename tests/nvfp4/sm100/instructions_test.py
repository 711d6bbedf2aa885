# SPDX-License-Identifier: Apache-2.0
"""The PTX of what only sm_100a has, beside CUTLASS's: the emulator and the model on an H100 have functions of their own in its
place, and machine code does not show which register is which operand.

usage: instructions_test.py
"""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[3]
KERNELS = REPOSITORY / "kernels_src" / "nvfp4"
CUTLASS = REPOSITORY / ".cukiln-cutlass" / "cutlass_library" / "source" / "include"

STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
OPERAND = re.compile(r'"[=+]?\w"\s*\(((?:[^()]|\([^()]*\))*)\)')
# Of the branches for several compilers the first one of CUTLASS and the last one here: those of CUDA 12.9 and later.
BRANCHES = re.compile(r"^#if [^\n]*__CUDACC_VER_MAJOR__[^\n]*\n(.*?)^#else\n(.*?)^#endif\n", re.MULTILINE | re.DOTALL)


class Place(NamedTuple):
    """The statements of one asm in a function or a struct."""

    file: Path
    begin: str  # tokens of the declaration, one in the file
    index: int = 0  # of its asm statements


def end_of(text: str, begin: int) -> int:
    """Behind the parenthesis that closes the one at `begin`."""
    depth, at = 0, begin
    while True:
        if text[at] == '"':
            at = STRING.match(text, at).end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            return at


def statements(place: Place, text: str | None = None, names: dict[str, str] | None = None) -> list[str]:
    """PTX with the C++ expressions of its operands in their places, by other names where `names` has them."""
    text = place.file.read_text(encoding="utf-8") if text is None else text
    text = BRANCHES.sub(lambda found: found[2 if place.file.is_relative_to(KERNELS) else 1], text)
    if block16 := re.search(r"^#define CUKILN_BLOCK16 (\S+)", text, re.MULTILINE):
        text = text.replace("CUKILN_BLOCK16 \"", block16[1] + " \"").replace("CUKILN_BLOCK16\n", block16[1] + "\n")
    (declared,) = re.finditer(re.escape(place.begin), text)
    begin = list(re.finditer(r"asm volatile ?\(", text[declared.end() :]))[place.index].end() - 1 + declared.end()
    whole = text[begin + 1 : end_of(text, begin) - 1]
    # The instructions are the strings before the first colon that is in none.
    code, at = "", 0
    while found := re.compile(r'\s*(?:"((?:\\.|[^"\\])*)"|//[^\n]*)').match(whole, at):
        code, at = code + (found[1] or "").replace("\\n", "").replace("\\t", " "), found.end()
    operands = [" ".join(expression.split()) for expression in OPERAND.findall(whole[at:])]
    operands = [(names or {}).get(expression, expression) for expression in operands]
    code = re.sub(r"%(\d+)", lambda number: f"<{operands[int(number[1])]}>", code)
    found = (re.sub(r"\s+", "", statement) for statement in code.strip().strip("{}").split(";"))
    return [statement for statement in found if statement and not statement.startswith(".reg")]


TCGEN05, MACHINE = KERNELS / "tcgen05.cuh", KERNELS / "machine.cuh"
UMMA, COPY, TMA, ALLOCATOR, BARRIER = (
    CUTLASS / file for file in ("cute/arch/mma_sm100_umma.hpp", "cute/arch/copy_sm100.hpp", "cute/arch/copy_sm100_tma.hpp",
                                "cute/arch/tmem_allocator_sm100.hpp", "cutlass/arch/barrier.h"))  # fmt: skip
# CUTLASS's names of what are operands here.
OF_MMA = {"tmem_c": "accumulator", "desc_a": "rows", "desc_b": "columns", "uint32_t(idescE>>32)": "instruction",
          "scaleC": "static_cast<u32>(accumulate)", "tsfa_addr": "row_scales", "tsfb_addr": "column_scales"}  # fmt: skip
OF_COPY = {"dst_addr": "tmem", "src_addr": "atom"}
OF_ALLOCATOR = {"dst_intptr": "slot", "num_columns": "kTmemColumns", "tmem_ptr": "tmem"}
OF_COMMIT = {"bar_intptr": "barrier", "cta_mask": "static_cast<u16>(ctas)"}
OF_LOAD = {"src_addr": "tmem", **{f"dst{i:02}": f"value[{i}]" for i in range(32)}}
OF_TMA = {"smem_int_ptr": "destination", "gmem_int_desc": "map", "smem_int_mbar": "barrier", "multicast_mask": "static_cast<u16>(ctas)",
          "crd0": "x", "crd1": "y", "crd2": "z"}  # fmt: skip
CTA_PAIR, CTA = 0, 1  # which asm statement of a function is for how many CTAs
LOAD_2D, LOAD_3D = (f"void tma_load(u32 destination, const TensorMap* map, u32 x, u32 y,\n{' ' * 41}{rest}" for rest in ("u32 barrier", "u32 z, u32 barrier"))
MULTICAST_2D, MULTICAST_3D = (f"void tma_load_multicast(u32 destination, const TensorMap* map, u32 x,\n{' ' * 51}u32 y, {rest}"
                              for rest in ("u32 barrier", "u32 z, u32 barrier"))  # fmt: skip

# What: (ours, CUTLASS's one after the other, CUTLASS's names)
PAIRS = {
    "MMA": (Place(TCGEN05, "void tcgen05_mma(", CTA), [Place(UMMA, "struct SM100_MMA_MXF4_SS\n")], OF_MMA),
    "MMA of a pair": (Place(TCGEN05, "void tcgen05_mma(", CTA_PAIR), [Place(UMMA, "struct SM100_MMA_MXF4_2x1SM_SS\n")], OF_MMA),
    "copy of scales": (Place(TCGEN05, "void tcgen05_cp_scales(", CTA), [Place(COPY, "struct SM100_UTCCP_4x32dp128bit_1cta\n")], OF_COPY),
    "copy of scales of a pair": (Place(TCGEN05, "void tcgen05_cp_scales(", CTA_PAIR), [Place(COPY, "struct SM100_UTCCP_4x32dp128bit_2cta\n")], OF_COPY),
    "commit": (Place(TCGEN05, "void tcgen05_commit(", CTA), [Place(BARRIER, "void umma_arrive(")], OF_COMMIT),
    "commit of a pair": (Place(TCGEN05, "void tcgen05_commit(", CTA_PAIR), [Place(BARRIER, "void umma_arrive_multicast_2x1SM(")], OF_COMMIT),
    "allocation": (Place(TCGEN05, "void tmem_alloc(", CTA),
                   [Place(ALLOCATOR, "class Allocator1Sm {", 0), Place(ALLOCATOR, "class Allocator1Sm {", 2)], OF_ALLOCATOR),
    "allocation of a pair": (Place(TCGEN05, "void tmem_alloc(", CTA_PAIR),
                             [Place(ALLOCATOR, "class Allocator2Sm {", 0), Place(ALLOCATOR, "class Allocator2Sm {", 2)], OF_ALLOCATOR),
    "deallocation": (Place(TCGEN05, "void tmem_dealloc(", CTA), [Place(ALLOCATOR, "class Allocator1Sm {", 1)], OF_ALLOCATOR),
    "deallocation of a pair": (Place(TCGEN05, "void tmem_dealloc(", CTA_PAIR), [Place(ALLOCATOR, "class Allocator2Sm {", 1)], OF_ALLOCATOR),
    "load of sums": (Place(TCGEN05, "void tmem_load("),
                     [Place(COPY, "struct SM100_TMEM_LOAD_32dp32b32x\n"), Place(BARRIER, "void fence_view_async_tmem_load()")], OF_LOAD),
    "TMA of a pair": (Place(MACHINE, LOAD_2D, CTA_PAIR), [Place(TMA, "struct SM100_TMA_2SM_LOAD_2D\n")], OF_TMA),
    "TMA of a pair's scales": (Place(MACHINE, LOAD_3D, CTA_PAIR), [Place(TMA, "struct SM100_TMA_2SM_LOAD_3D\n")], OF_TMA),
    "multicast": (Place(MACHINE, MULTICAST_2D), [Place(TMA, "struct SM100_TMA_2SM_LOAD_MULTICAST_2D\n")], OF_TMA),
    "multicast of scales": (Place(MACHINE, MULTICAST_3D), [Place(TMA, "struct SM100_TMA_2SM_LOAD_MULTICAST_3D\n")], OF_TMA),
}  # fmt: skip


def of_cutlass(places: list[Place], names: dict[str, str]) -> list[str]:
    """Without its hint to L2's cache, which the kernels do not give."""
    found = [statement for place in places for statement in statements(place, names=names)]
    return [statement.replace(".L2::cache_hint", "").replace(",<cache_hint>", "") for statement in found]


def ours(place: Place, text: str | None = None) -> list[str]:
    """`.tile` is how TMA loads anyway."""
    return [statement.replace(".global.tile.", ".global.") for statement in statements(place, text)]


class Instructions(unittest.TestCase):
    def test_they_are_those_of_cutlass_with_the_same_operands(self):
        if not CUTLASS.is_dir():
            raise FileNotFoundError(f"{CUTLASS} is missing: run scripts/bootstrap --tests")
        for what, (place, theirs, names) in PAIRS.items():
            with self.subTest(what):
                self.assertEqual(ours(place), of_cutlass(theirs, names))

    def test_every_asm_of_tcgen05_is_compared(self):
        text = TCGEN05.read_text(encoding="utf-8")
        compared = [place for place, _, _ in PAIRS.values() if place.file == TCGEN05]
        fences = 2  # which CUTLASS has not
        self.assertEqual(text.count("asm volatile("), len(compared) + fences)

    def test_another_operand_or_modifier_is_noticed(self):
        for what, old, new in (
            ("MMA", "setp.ne.b32 p, %6, 0", "setp.eq.b32 p, %6, 0"),
            ("MMA", "[%4], [%5], p", "[%5], [%4], p"),
            ("MMA of a pair", '"l"(rows), "l"(columns)', '"l"(columns), "l"(rows)'),
            ("copy of scales", "warpx4", "warpx2"),
            ("commit of a pair", ".multicast::cluster", ""),
            ("load of sums", "{%0, %1,", "{%1, %0,"),
            ("load of sums", '"=r"(value[30]), "=r"(value[31])', '"=r"(value[31]), "=r"(value[30])'),
            ("TMA of a pair's scales", "{%2, %3, %4}", "{%3, %2, %4}"),
            ("multicast of scales", "cta_group::2", "cta_group::1"),
        ):
            place, theirs, names = PAIRS[what]
            with self.subTest(what, change=new):
                text = place.file.read_text(encoding="utf-8")
                self.assertIn(old, text)
                self.assertNotEqual(ours(place, text.replace(old, new)), of_cutlass(theirs, names))


if __name__ == "__main__":
    unittest.main()
