#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts in W4A16, on the CPU, beside NumPy, and mutants of its kernels.

  moe_test.py COMPILER…

The kernels for few tokens run as they are, with mma.sync and cp.async as moe_machine.hpp has them; of those
for many tokens, what has no wgmma; and of W4A4 the quantisation of rows with a scale each. A token has the same bits in another batch of the same size. Each mutant
has one thing changed, found by its C++ tokens: that must be noticed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from device_library import HERE, REPOSITORY, compile_library, ml_dtypes
from device_library import numpy as np
from device_source import translate_files
from host_compiler import scratch_folder
from quantizers_test import global_scale, quantize

sys.path.insert(0, str(HERE.parent / "emulator"))
from mutate import MutantError, mutate

KERNELS = REPOSITORY / "kernels_src" / "nvfp4"
SOURCES = ["nvfp4_moe_combine.cu", "nvfp4_moe_route.cu", "nvfp4_moe_w4a16.cu", "nvfp4_moe_w4a16_prefill.cu"]
MUTATED = ["alpha.cuh", "gemm_sm90_dequantize.cuh", "moe_few_tokens.cuh", "moe_routing.cuh", "moe_skinny.cuh",
           "nvfp4_moe_route.cu", "nvfp4_moe_w4a16.cu", "nvfp4_moe_w4a16_prefill.cu"]  # fmt: skip
BF16 = ml_dtypes.bfloat16
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
INF = float("inf")

# name: (tokens, what takes their place)
MUTANTS = {
    "power of two of the weights": ("kWeightFactor = 128.0f", "kWeightFactor = 64.0f"),
    "order of tokens": ("pairs[1] = permute_bytes(eight.y, eight.w, 0x5410u)",
                        "pairs[1] = permute_bytes(eight.y, eight.w, 0x7632u)"),
    "order of weights": ("pairs[1] = ((high & 0x000F000Fu) * 0x1040u)", "pairs[1] = ((data & 0x000F000Fu) * 0x1040u)"),
    "signs of weights": ("kSignAndMagnitude = 0x81C081C0u", "kSignAndMagnitude = 0x01C001C0u"),
    "scale of the second block": ("void dequantize(u32 data, u32 scales, u32 w, u32 (&pairs)[4]) { e2m1x8_to_bf16x2(data, pairs); const u32 scale = w < 2",
                                  "void dequantize(u32 data, u32 scales, u32 w, u32 (&pairs)[4]) { e2m1x8_to_bf16x2(data, pairs); const u32 scale = w < 3"),
    "scales of a lane": ("return (t & 1) * 16;", "return (t & 2) * 8;"),
    "scales' power of two": ("kTwoTo119 = (127 + 119)", "kTwoTo119 = (127 + 118)"),
    "group of the tokens": ("first_block + group * (kGroupK / 16)", "first_block + group * (kGroupK / 32)"),
    "last columns of the tokens": ("group < end && group * kGroupK + t * kLaneK < columns) { lane_tokens",
                                   "group < end) { lane_tokens"),
    "wait for the weights": ("cp_async_wait<kStages - 1>();", "cp_async_wait<kStages>();"),
    "stage of the ring": ("stage == 0 ? kStages - 1 : stage - 1", "stage"),
    "scales of rows beyond the weights": ("min(of.first, of.limit - 1) / kAtomRows", "of.first / kAtomRows"),
    "scales of unaligned rows": ("of_four / kAtomRows * k_atoms", "rows.first / kAtomRows * k_atoms"),
    "weights of an expert, up": ("static_cast<u64>(tile.expert) * p.width * p.columns", "0"),
    "weights of an expert, down": ("static_cast<u64>(tile.expert) * p.columns * (p.width / 2)", "0"),
    "scales of an expert": ("tile.expert * padded_scale_bytes(p.columns, p.width)", "0"),
    "token of a slot": ("p.slots[tile.first + i] / p.topk", "p.slots[tile.first + i]"),
    "row of y": ("[&](u32 i) { return tile.first + i; }", "[&](u32 i) { return i; }"),
    "splits in a cluster": ("groups * (split + 1) / splits", "groups / splits"),
    "splits by a tile's tokens": ("groups * split / p.splits, groups * (split + 1) / p.splits",
                                  "min(groups, (groups + (tile.count & 1)) * split / p.splits), min(groups, (groups + (tile.count & 1)) * (split + 1) / p.splits)"),
    "splits of the second GEMM": ("groups * split / p.splits", "0"),
    "pairs": ("2 * first_column + 128 * half", "2 * first_column"),
    "columns of y": ("if (column >= width) return; const u64 at = static_cast<u64>(position) * width + column;",
                     "if (column >= width) return; const u64 at = static_cast<u64>(position) * width + (column ^ 4);"),
    "bias of an expert": ("bias + static_cast<u64>(expert) * rows", "bias"),
    "biases of two rows": ("value[1] = high_bf16(pairs.x);", "value[1] = low_bf16(pairs.x);"),
    "biases of other rows": ("reinterpret_cast<const uint2*>(bias + row)", "reinterpret_cast<const uint2*>(bias)"),
    "biases of pairs": ("in_pairs ? 2 * column : column;", "column;"),
    "biases of the last two pairs": ("row + (in_pairs ? 4 : width)", "row + (in_pairs ? 0 : width)"),
    "biases of up": ("row + (in_pairs ? 4 : width)", "row + (in_pairs ? 4 : 0)"),
    "bias of gate": ("activate(scaled(sums.gate[i], biases.gate[i])", "activate(scaled(sums.gate[i], biases.up[i])"),
    "bias of each split": ("split == 0 ? bias_of_expert(", "split != 9 ? bias_of_expert("),
    "no bias": ("kNoBias = 0x80008000u", "kNoBias = 0x3F803F80u"),
    "decode scale": ("weight_scale(weight_decode * Bf16::kWeightFactor)", "weight_scale(Bf16::kWeightFactor)"),
    "route: slots before a block's own": ("first + 32 * i + lane < begin", "first + 32 * i + lane <= begin"),
    "route: a block's share": ("begin = min(blockIdx.x * share, routing.slots)", "begin = min(blockIdx.x * (share + 1), routing.slots)"),
    "route: tiles of the blocks": ("own += sorters", "own += sorters + 1"),
    "route: order of equal experts": ("first + __popc(same & lower_lanes)", "first + __popc(same & ~lower_lanes) - 1"),
    "route: last tile of an expert": ("min(tile_tokens, end - position)", "tile_tokens"),
    "rows: another row's amax": ("const bf16* const from = values + static_cast<u64>(row) * columns;",
                                 "const bf16* const from = values + static_cast<u64>(row / 2) * columns;"),
    "rows: amax of all warps": ("max(max(warp_amax[0], warp_amax[1]), max(warp_amax[2], warp_amax[3]))",
                                "max(max(warp_amax[0], warp_amax[1]), warp_amax[2])"),
    "rows: amax of all blocks": ("amax = max(amax, amax_of(pairs));", "amax = amax_of(pairs);"),
    "rows: maxima of the row before": ("amax = __reduce_max_sync(~0u, amax); __syncthreads(); if",
                                       "amax = __reduce_max_sync(~0u, max(amax, row != 0 ? warp_amax[0] : 0)); __syncthreads(); if"),
    "rows: decode": ("row_decode[row] = scale.decode;", "row_decode[row] = scale.encode;"),
    "gather: token of a slot": ("slots[item / 16 / groups] / topk", "slots[item / 16 / groups]"),
    "gather: word of a lane": ("(item & 3) * kLaneK + (item >> 2 & 3) * 8", "(item >> 2 & 3) * kLaneK + (item & 3) * 8"),
    "gather: transposition": ("for (u32 step = 1; step < 4; step *= 2)", "for (u32 step = 1; step < 2; step *= 2)"),
    "gather: last columns": ("item < items && column < columns", "item < items"),
}  # fmt: skip


@dataclass
class Case:
    tokens: int
    topk: int
    experts: int
    hidden: int
    width: int
    splits: tuple[int, int] = (1, 1)
    pairs: bool = False
    activation: tuple[float, float, float] = (INF, 1.0, 0.0)
    tile: int = 8
    map: tuple[int, ...] = ()
    small: float = 1.0
    bias: bool = False


# Those that take least first, by which most mutants are noticed.
CASES = [
    Case(2, 1, 1, 160, 288, pairs=True),  # the last 128 rows of the last tile are beyond the weights
    Case(5, 2, 3, 288, 96, pairs=True, activation=(7.0, 1.702, 1.0), map=(1, -1, 2, 0, 7), bias=True),
    Case(40, 1, 1, 160, 128, (1, 2), pairs=True, tile=32),
    Case(20, 2, 2, 416, 288, tile=16, activation=(2.0, 1.0, 0.0), small=2.0**-20),
    Case(3, 1, 2, 1056, 288, (2, 2), bias=True),
]


class Device:
    """The kernels as g++ compiles them."""

    def __init__(self, folder: Path, tile: int):
        self.library = compile_library(
            "moe.cpp", folder, f"moe_{tile}", "-O0", f"-DCUKILN_MOE_TOKENS={tile}", "-DCUKILN_HOST_ARCH=900",
            '-DCUKILN_MACHINE="moe_machine.hpp"')  # fmt: skip

    def __call__(self, name: str, *arguments: np.ndarray | int | float | None) -> None:
        def passed(value: np.ndarray | int | float | None) -> object:
            if value is None or isinstance(value, np.ndarray):
                return ctypes.c_void_p(None if value is None else value.ctypes.data)
            return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_uint32(value)

        getattr(self.library, f"run_{name}")(*map(passed, arguments))


def guarded(count: int, dtype: type) -> np.ndarray:
    """Memory of no sensible numbers, aligned; the last 32 elements are not to be written."""
    bytes_each = np.dtype(dtype).itemsize
    memory = np.full((count + 32) * bytes_each + 16, 0xFF, np.uint8)
    start = -memory.ctypes.data % 16
    return memory[start : start + (count + 32) * bytes_each].view(dtype)


def before_no_page(values: np.ndarray) -> np.ndarray:
    """A copy whose reader ends the process where it reads beyond the end (beyond the next 16 bytes)."""
    size = -(-values.nbytes // 16) * 16
    readable = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, readable + mmap.PAGESIZE)
    last_page = ctypes.addressof(ctypes.c_char.from_buffer(memory, readable))
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(last_page), mmap.PAGESIZE, 0) != 0:
        raise OSError("mprotect failed")
    copy = np.frombuffer(memory, values.dtype, values.size, readable - size)
    copy[:] = values.ravel()
    return copy


class Weights:
    """[experts, rows, columns] in NVFP4; the scales' padding is NaN."""

    def __init__(self, random: np.random.Generator, experts: int, rows: int, columns: int, has_bias: bool):
        elements = random.integers(0, 16, (experts, rows, columns), np.uint8)
        scales = random.integers(0x01, 0x50, (experts, rows, columns // 16), np.uint8)
        self.decode = random.uniform(0.01, 0.02, experts).astype(np.float32)
        self.data = before_no_page(elements[..., ::2] | elements[..., 1::2] << 4)
        atom_rows, atoms = -(-rows // 128), -(-columns // 64)
        padded = np.full((experts, atom_rows * 128, atoms * 4), 0x7F, np.uint8)
        padded[:, :rows, : columns // 16] = scales
        self.scales = before_no_page(padded.reshape(experts, atom_rows, 4, 32, atoms, 4).transpose(0, 1, 4, 3, 2, 5))
        values = E2M1[elements & 7] * np.where(elements & 8, -1, 1)
        of_blocks = scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        self.values = values * of_blocks.repeat(16, -1) * self.decode[:, None, None]
        self.bias, self.biases = None, np.zeros((experts, rows))
        if has_bias:
            self.bias = before_no_page(random.standard_normal(experts * rows, np.float32).astype(BF16).view(np.uint16))
            self.biases = self.bias.view(BF16).astype(np.float64).reshape(experts, rows)


def swiglu(gate: np.ndarray, up: np.ndarray, limit: float, alpha: float, beta: float) -> np.ndarray:
    g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return (g / (1 + np.exp(-alpha * g)) * (u + beta)).astype(np.float32).astype(BF16).astype(np.float64)


class Mixture:
    """The steps of a launch, for a case's shape, and the memory that they write."""

    def __init__(self, case: Case, device: Device, up: Weights, down: Weights):
        self.case, self.device, self.up, self.down = case, device, up, down
        slots = case.tokens * case.topk
        self.most_tiles = min(slots, slots // case.tile + min(case.experts, slots))
        self.memory = {
            "tiles": guarded(self.most_tiles * 4, np.uint32),
            "slots": guarded(slots, np.uint32),
            "y": guarded(slots * case.width, np.uint16),
            "partial": guarded(case.splits[1] * slots * case.hidden, np.float32),
            "output": guarded(case.tokens * case.hidden, np.uint16),
        }
        self.tile_count, self.positions = guarded(2, np.uint32), guarded(slots, np.int32)

    def run(self, x: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """All bits of each token: of its output, and of its slots' results of both GEMMs."""
        case, device, (tiles, slot_of, y, partial, output) = self.case, self.device, self.memory.values()
        local = np.array(case.map, np.int32) if case.map else None
        count = len(case.map) or case.experts
        device("route", 1, tiles, self.tile_count, slot_of, self.positions, ids, local, case.tokens, case.topk, count,
               case.experts)  # fmt: skip
        device("up", self.most_tiles, case.splits[0], y, tiles, self.tile_count, slot_of, x, self.up.data,
               self.up.scales, self.up.decode, self.up.bias, case.topk, case.hidden, case.width, int(case.pairs),
               *case.activation)  # fmt: skip
        device("down", self.most_tiles, case.splits[1], partial, tiles, self.tile_count, y, self.down.data,
               self.down.scales, self.down.decode, self.down.bias, len(ids), case.hidden, case.width)  # fmt: skip
        device("combine", case.tokens, output, partial, weights, self.positions, case.topk, case.hidden,
               case.splits[1])  # fmt: skip
        positions = self.positions[:-32, None]
        parts = [output[:-32]]
        for rows in (y[:-32].reshape(len(ids), -1), *partial[:-32].reshape(-1, len(ids), case.hidden)):
            parts.append(np.where(positions >= 0, rows[positions[:, 0]], 0))
        return np.hstack([part.view(np.uint8).reshape(case.tokens, -1) for part in parts])


def depends_on_others(mixture: Mixture, x: np.ndarray, ids: np.ndarray, weights: np.ndarray,
                      bits: np.ndarray) -> bool:  # fmt: skip
    """Whether tokens have other bits at the end of a batch, behind other tokens, one of which is NaN."""
    case = mixture.case
    kept = -(-case.tokens // 2)
    tokens = before_no_page(np.roll(x.reshape(case.tokens, case.hidden), -kept, 0))
    others = tokens[: (case.tokens - kept) * case.hidden]
    others[:] = others[::-1]
    others[: case.hidden] = 0x7FC0
    ids, weights = (np.roll(each, -kept * case.topk) for each in (ids, weights))
    first_kept = len(ids) - kept * case.topk
    ids[:first_kept] = np.resize(ids[first_kept:], first_kept)
    return not (mixture.run(tokens, ids, weights)[-kept:] == bits[:kept]).all()


def problems_of(case: Case, device: Device) -> list[str]:
    """What is wrong."""
    random = np.random.default_rng(case.tokens)
    tokens, topk, hidden, width = case.tokens, case.topk, case.hidden, case.width
    slots = tokens * topk
    up = Weights(random, case.experts, 2 * width, hidden, case.bias)
    down = Weights(random, case.experts, hidden, width, case.bias)
    x = before_no_page((random.standard_normal(tokens * hidden, np.float32) * case.small).astype(BF16).view(np.uint16))
    count = len(case.map) or case.experts
    ids = random.integers(-1, count + 1, slots).astype(np.int32)
    weights = random.uniform(0, 1, slots).astype(np.float32)
    local = np.array(case.map or range(case.experts), np.int32)
    mixture = Mixture(case, device, up, down)
    bits = mixture.run(x, ids, weights)
    tile_count, (_, slot_of, _, _, output) = mixture.tile_count, mixture.memory.values()

    token_values = x.view(BF16).astype(np.float64).reshape(tokens, hidden)
    expected, size = np.zeros((2, tokens, hidden))
    for slot, expert_id in enumerate(ids):
        if not 0 <= expert_id < count or not 0 <= local[expert_id] < case.experts:
            continue
        expert = local[expert_id]
        h = up.values[expert] @ token_values[slot // topk] + up.biases[expert]
        gate, linear = (h[::2], h[1::2]) if case.pairs else (h[:width], h[width:])
        activated = swiglu(gate, linear, *case.activation)
        expected[slot // topk] += weights[slot] * (down.values[expert] @ activated + down.biases[expert])
        size[slot // topk] += weights[slot] * (np.abs(down.values[expert]) @ np.abs(activated))
    given = output[:-32].view(BF16).astype(np.float64).reshape(tokens, hidden)
    wrong = ~(np.abs(given - expected) <= np.abs(expected) / 256 + size / 512)
    found = [f"{wrong.sum()} of {wrong.size} results"] if wrong.any() else []

    # Rows for the kernels of many tokens.
    groups, positions = -(-hidden // 128), int(tile_count[1])
    rows = guarded(slots * groups * 128, np.uint16)
    device("gather", 2, rows, x, slot_of, tile_count[1:], topk, hidden)
    padded = np.zeros((positions, groups * 128), np.uint16)
    padded[:, :hidden] = x.reshape(tokens, hidden)[slot_of[:positions] // topk]
    # [lane, word, pair of a word] to [word, pair, lane]; a pair: elements i and i + 4
    in_words = padded.reshape(positions, groups, 4, 4, 8)[..., [0, 4, 2, 6, 1, 5, 3, 7]]
    ordered = in_words.reshape(positions, groups, 4, 4, 4, 2).transpose(0, 1, 3, 4, 2, 5).ravel()
    if not (rows[: ordered.size] == ordered).all():
        found.append("the gathered rows")
    memory = {**mixture.memory, "rows": rows}
    found += [f"{name}: written beyond its end" for name, array in memory.items()
              if (array[-32:].view(np.uint8) != 0xFF).any()]  # fmt: skip
    if depends_on_others(mixture, x, ids, weights, bits):  # the last: it writes into the same memory
        found.append("a token's result depends on others")
    return found


def routing_problems(device: Device, sorters: int) -> list[str]:
    """What is wrong with the order that `sorters` thread blocks make of tokens in tiles of 8."""
    random = np.random.default_rng(sorters)
    tokens, topk, experts = 101, 3, 5
    ids = random.integers(-1, experts + 1, tokens * topk).astype(np.int32)
    ids[:60] = 3  # more than one tile for each thread block
    tiles, tile_count = guarded(4 * (len(ids) // 8 + experts), np.uint32), guarded(2, np.uint32)
    slot_of, positions = guarded(len(ids), np.uint32), guarded(len(ids), np.int32)
    device("route", sorters, tiles, tile_count, slot_of, positions, ids, None, tokens, topk, experts, experts)
    order = [slot for expert in range(experts) for slot in np.flatnonzero(ids == expert)]
    expected = np.full(len(ids), -1, np.int32)
    expected[order] = np.arange(len(order))
    of_experts = []
    for expert in range(experts):
        of_expert = expected[ids == expert]
        of_experts += [(expert, of_expert[i], min(8, len(of_expert) - i), 0) for i in range(0, len(of_expert), 8)]
    found = {"positions": (positions[:-32] == expected).all(),
             "slots": (slot_of[: len(order)] == order).all(),
             "numbers": tuple(tile_count[:2]) == (len(of_experts), len(order)),
             "tiles": (tiles[: 4 * len(of_experts)] == np.ravel(of_experts)).all(),
             "ends": all((each[-32:].view(np.uint8) == 0xFF).all() for each in (tiles, tile_count, slot_of, positions))}
    return [f"{name} of {sorters} sorters" for name, right in found.items() if not right]


def rows_problems(device: Device, blocks: int) -> list[str]:
    """What is wrong with rows that `blocks` thread blocks quantise, each with a scale of its own."""
    random = np.random.default_rng(blocks)
    rows, columns = 5, 2080  # some threads have two blocks of 16, most have one
    size = np.array([1, 2.0**-30, 2.0**20, 0, np.nan])  # of each row; NaN: one in it is
    values = random.standard_normal((rows, columns)) * np.nan_to_num(size, nan=1)[:, None]
    values[4, 777] = np.nan
    values[0, columns - 1] = -9  # the largest, in the last block of 16, or in the first
    values[1, 0] = 9 * size[1]
    given = guarded(rows * columns, np.uint16)
    given[:-32] = values.astype(BF16).view(np.uint16).ravel()
    data, scales = guarded(rows * columns // 2, np.uint8), guarded(rows * columns // 16, np.uint8)
    decode, count = guarded(rows, np.float32), np.array([rows], np.uint32)
    device("quantize_rows", blocks, data, scales, decode, given, count, columns)
    expected: dict[str, list[np.ndarray]] = {"data": [], "scales": [], "decode": []}
    for row in values.astype(BF16).astype(np.float32):
        with np.errstate(all="ignore"):
            scale = global_scale(row)
            packed, atoms = quantize(row[None], *scale)
        expected["data"].append(packed[0])
        expected["scales"].append(atoms.reshape(-1, 32, 4, 4)[:, 0, 0].ravel()[: columns // 16])
        expected["decode"].append(scale[1])
    found = {"data": (data[:-32].reshape(rows, -1) == expected["data"]).all(),
             "scales": (scales[:-32].reshape(rows, -1) == expected["scales"]).all(),
             "decode scales": np.array_equal(decode[:-32], np.array(expected["decode"], np.float32), equal_nan=True),
             "ends": all((each[-32:].view(np.uint8) == 0xFF).all() for each in (data, scales, decode))}
    return [f"{name} of rows of {blocks} blocks" for name, right in found.items() if not right]


def run_cases(folder: Path) -> str:
    """What is wrong with the sources in a folder."""
    devices = {8: Device(folder, 8)}
    found = [each for sorters in (1, 3) for each in routing_problems(devices[8], sorters)]
    if found := found + [each for blocks in (2, 5) for each in rows_problems(devices[8], blocks)]:
        return ", ".join(found)
    for case in CASES:
        if case.tile not in devices:
            devices[case.tile] = Device(folder, case.tile)
        if found := problems_of(case, devices[case.tile]):
            return f"{case}: {', '.join(found)}"
    return ""


def outcome(name: str | None) -> str:
    """Describes how a mutant's end differs from the expected one; empty if it does not. In a process of its own,
    which a mutant may end."""
    with scratch_folder() as folder:
        translate_files(KERNELS, SOURCES, Path(folder))
        if name is not None:
            sources = {source: Path(folder, source).read_text(encoding="utf-8") for source in MUTATED}
            try:
                sources = mutate(sources, [MUTANTS[name]])
            except MutantError as error:
                return f"{name}: {error}"
            for source, text in sources.items():
                Path(folder, source).write_text(text, encoding="utf-8")
        program = "import sys, moe_test; from pathlib import Path; print(moe_test.run_cases(Path(sys.argv.pop())))"
        ran = subprocess.run([sys.executable, "-c", program, *sys.argv[1:], folder], cwd=HERE, timeout=300,
                             capture_output=True, text=True, check=False)  # fmt: skip
    if "CompileError" in ran.stderr:
        return f"{name or 'the sources as they are'}: not compiled\n{ran.stderr[-2000:]}"
    found = ran.stdout.strip() or ran.returncode != 0
    if name is None and found:
        return f"the sources as they are: {ran.stdout}{ran.stderr[-2000:]}"
    return f"{name}: not noticed" if name is not None and not found else ""


def main() -> int:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [failure for failure in pool.map(outcome, [None, *MUTANTS]) if failure]
    print("\n".join(failures) or f"{len(CASES)} cases; {len(MUTANTS)} mutants, all noticed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
