# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts on sm_100a, all of it on the CPU, and mutants of its kernels.

The launcher's steps run with the kernels' own sources: GEMMs in the emulator, the others as
device_source.py translates them. Each mutant is one of those with one thing changed, found by its C++
tokens (mutate.py); its results must be wrong, or it must break a rule. Some, and all of LATE, may go unnoticed
with some delays of loads and MMAs: one of several must notice them.

usage: moe_test.py KERNELS_FOLDER TESTS_FOLDER CASES_PROGRAM EMULATOR_LIBRARY COMPILER…
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KERNELS, TESTS, PROGRAM, EMULATOR = (Path(argument) for argument in sys.argv[1:5])
COMPILER = sys.argv[5:]
sys.path[:0] = [str(TESTS / "kernels"), str(TESTS.parent / "support")]
from device_source import translate_files
from host_compiler import build, scratch_folder
from mutate import MutantError, mutate

SOURCES = ["nvfp4_moe_combine.cu", "nvfp4_moe_grouped.cu", "nvfp4_moe_grouped_up.cu", "swiglu_quantize.cu"]

# name: (tokens, what takes their place); of the translated sources, which have no asm statement
MUTANTS = {
    # moe_route_rows
    "slots before the thread block's": ("lane < begin ? counts.before", "lane < 0 ? counts.before"),
    "tiles of an expert": ("counts.before[expert] + counts.others[expert]", "counts.others[expert]"),
    "experts of lower lanes": ("if (lane >= distance) value += of_lower;", ""),
    "experts of lower warps": ("if (w < warp) tile += of_warp;", ""),
    "row of a tile": ("tile * kAtomRows", "tile * (kAtomRows / 2)"),
    "second tile of an expert": ("row_experts[tile + own]", "row_experts[tile]"),
    "expert of a tile": ("static_cast<int>(expert);", "0;"),
    "second expert of a thread": ("tile += tiles[i];", ""),
    "states of rows are not cleared": ("if (row_states != nullptr) clear_row_states(row_states, tiles);", ""),
    "states of the last rows": ("kAtomRows * 2 * sizeof(u32)", "kAtomRows * sizeof(u32)"),
    "states of the first thread block": ("first = blockIdx.x * kRouteRowsThreads + threadIdx.x;", "first = (blockIdx.x + 1) * kRouteRowsThreads + threadIdx.x;"),
    "number of tiles": ("*tile_count = tiles;", "*tile_count = tiles - 1;"),
    "row of a slot": ("first + __popc(same & lower_lanes)", "first + __popc(same)"),
    "row of the next slot": ("first + __popc(same);", "first + 1;"),
    "scale of an expert's second matrix": ("= down_decode[e]", "= down_decode[0]"),
    "token of a row": ("token = first_token + (is_item", "token = (is_item"),
    "columns of a block": ("columns + block * kBlockColumns) / 2", "columns) / 2"),
    "scales of four blocks": ("four |= __shfl_xor_sync(~0u, four, 2);", ""),
    "slots that have row 0": ("if (row < 0) continue;", "if (row <= 0) continue;"),
    "scale of the tokens": ("block_scale_factor(tensor.encode)", "block_scale_factor(tensor.decode)"),
    # moe_grouped_up: what is loaded
    "gate rows": ("layout == kHalves ? column / 2 : column", "column"),
    "up rows": ("layout == kHalves ? width : GateUpTile::kMmaColumns", "GateUpTile::kMmaColumns"),
    "weights of an expert": ("tiles.expert * problem.n + problem.first_box", "problem.first_box"),
    "second box": ("s * kStageBytes, second, full", "s * kStageBytes, first, full"),
    "scales of the second box": ("second / kTileRows, full", "first / kTileRows, full"),
    "scales of its second half": ("second / kTileRows + 1", "second / kTileRows"),
    "loads do not wait for the preceding kernel": ("griddepcontrol_wait(); const bool straddles", "const bool straddles"),
    "half an atom of scales": ("problem.to_second_box() % kTileRows / 32", "0"),
    "bytes of a stage": ("(straddles ? 0 : kSteps * kAtomBytes)", "0"),
    "bytes of a stage that straddles": ("if (straddles) {", "if (false) {"),
    # and its epilogue
    "decode scale of the tokens": ("problem.a_global_scale[kDecode]", "problem.a_global_scale[kEncode]"),
    "scale of an expert's first matrix": ("problem.weight_decode[tiles.expert]", "problem.weight_decode[0]"),
    "bias of an expert's first matrix": ("problem.bias + u64{tiles.expert} * problem.n", "problem.bias"),
    "biases of a row": ("load_16_bf16(bias + row, pairs);", "load_16_bf16(bias, pairs);"),
    "biases of up": ("load_biases(bias, row + to_up, of_up);", "load_biases(bias, row, of_up);"),
    "biases of the last pairs": ("load_biases(bias, row + 16, biases[1]);", "load_biases(bias, row, biases[1]);"),
    "order of biases": ("biases[i / 4][2 * i % 8 + 1]", "biases[i / 4][2 * i % 8]"),
    "second bias": ("alpha, low_bf16(biases), high_bf16(biases));", "alpha, low_bf16(biases), low_bf16(biases));"),
    "biases of the second sixteen columns": ("bias, first + 16, problem.width", "bias, first, problem.width"),
    "biases of the second sixteen pairs": ("bias, 2 * first + 32", "bias, 2 * first"),
    "biases of the second half": ("first = column + half * 32;", "first = column;"),
    "no bias": ("++i) pairs[i] = 0; }", "++i) pairs[i] = 0x3F803F80u; }"),
    "lanes of a warp": ("threadIdx.x / 32 % 4 * 32", "(threadIdx.x / 32 - 2) * 32"),
    "rows of a warp": ("tiles.row + warp_lanes + lane", "tiles.row + lane"),
    "second accumulator": ("pipe.index * Tile::kSecondAccumulator", "0"),
    "up columns": ("(halves ? Tile::kMmaColumns : 32)", "(halves ? Tile::kMmaColumns / 2 : 32)"),
    "columns of pairs": ("2 * (chunk + half * 32)", "chunk + half * 64"),
    "second half of pairs": ("activate_pairs(high, alpha", "activate_pairs(low, alpha"),
    "order of gate and up": ("activate(low_bf16(g), low_bf16(u))", "activate(low_bf16(u), low_bf16(g))"),
    "columns beyond the width": ("if (column >= problem.width) continue;", ""),
    "scale of a block": ("(half * 2 + block) * 8", "(half + block) * 8"),
    "scales of the columns before": ("begin_columns() { bytes = 0; }", "begin_columns() {}"),
    "data of the second half": ("/ 2 + half * 16)", "/ 2)"),
    "atom of the scales": ("row, column / kBlockColumns, nvfp4::scale_atoms", "row, 0, nvfp4::scale_atoms"),
    "alpha of the activation": ("SwiGlu::of(limit, alpha, beta)", "SwiGlu::of(limit, 0.0f, beta)"),
    "sums not awaited": ("mbarrier_wait(shared_address(&shared.control.tmem_full[pipe.index]), pipe.phase);", ""),
    "fence before loads of sums": ("pipe.phase); tcgen05_fence_after_sync();", "pipe.phase);"),
    "fence after loads of sums": ("tcgen05_fence_before_sync();", ""),
    "accumulators kept": ("mbarrier_arrive(shared_address(&shared.control.tmem_empty[pipe.index]));", ""),
    # moe_grouped_up_dynamic
    "wide scale of a NaN": ("amax > 0x7F800000u ? kNanWideScale : min(", "min("),
    "mantissa of a wide scale": ("kWideScaleShift = 20", "kWideScaleShift = 21"),
    "rounding of a wide scale": ("bits + half - 1 +", "bits +"),
    "exponent of a row's scale": ("max((largest + 1) >> 3, 15u)", "max(largest >> 3, 15u)"),
    "least exponent of a row's scale": ("max((largest + 1) >> 3, 15u)", "((largest + 1) >> 3)"),
    "decode scale of a row": ("(top - 8) << 23", "(top - 7) << 23"),
    "encode scale of a row": ("(262 - top) << 23", "(261 - top) << 23"),
    "largest scale of some columns": ("largest = max(largest, scale);", "largest = scale;"),
    "largest scale of the row before": ("begin_row() { largest = 0; }", "begin_row() {}"),
    "largest scale of one column tile": ("atomic_max(state + 1, largest);", "state[1] = largest;"),
    "largest scale after the count": ("atomic_max(state + 1, largest); if (atomic_add_acq_rel(state, 1) + 1 == column_tiles) finish_row(problem, row);",
                                      "if (atomic_add_acq_rel(state, 1) + 1 == column_tiles) finish_row(problem, row); atomic_max(state + 1, largest);"),
    "rows complete early": ("+ 1 == column_tiles) finish_row", "+ 2 == column_tiles) finish_row"),
    "rows never complete": ("+ 1 == column_tiles) finish_row", "== column_tiles) finish_row"),
    "state of a row": ("problem.row_states + 2 * row;", "problem.row_states + row;"),
    "wide scales of the first half": ("if (block == 0) wide.x = wide.y;", ""),
    "wide scale of the second block": ("wide.y | scale << 16;", "wide.y | scale << 15;"),
    "atom of wide scales": ("+ column / kAtomColumns;", ";"),
    "row tile of wide scales": ("u64{row / kAtomRows} * nvfp4::scale_atoms(problem.width) + column", "column"),
    "row of wide scales": ("atom * kAtomRows + row % kAtomRows", "atom * kAtomRows"),
    "row tile of wide scales that are read": ("problem.wide_scales + u64{row / kAtomRows} * atoms * kAtomRows", "problem.wide_scales"),
    "row of wide scales that are read": ("atoms * kAtomRows + row % kAtomRows", "atoms * kAtomRows"),
    "atom of wide scales that are read": ("from[(first + i) * kAtomRows]", "from[i * kAtomRows]"),
    "next atoms of a row": ("first += kAhead", "first += kAhead + 1"),
    "atom of the bytes": ("u64{first + i} * kAtomBytes", "u64{i} * kAtomBytes"),
    "row of the bytes": ("scale_byte_offset(row, 0, atoms)", "scale_byte_offset(row % kAtomRows, 0, atoms)"),
    "byte of the second block": ("scale_byte_of(wide[i].x >> 16, scale.encode) << 8", "scale_byte_of(wide[i].x >> 16, scale.encode) << 16"),
    "byte of the third block": ("scale_byte_of(wide[i].y & 0xFFFF, scale.encode) << 16", "scale_byte_of(wide[i].x & 0xFFFF, scale.encode) << 16"),
    "byte of the fourth block": ("scale_byte_of(wide[i].y >> 16, scale.encode) << 24", "scale_byte_of(wide[i].y >> 16, scale.encode) << 16"),
    "scale of the row that is written": ("problem.row_scales_of_y[2 * row + kDecode]", "problem.row_scales_of_y[2 * (row ^ 1) + kDecode]"),
    # moe_combine_rows
    "slots that have no row": ("row >= 0", "row >= -1"),
    "row 0": ("row >= 0", "row > 0"),
    "weight of a slot": ("row >= 0; const float weight = valid ? topk_weights[slot]",
                         "row >= 0; const float weight = valid ? topk_weights[token]"),
    "order of columns": ("low_bf16(pairs[i]), sum[2 * i])", "low_bf16(pairs[i ^ 1]), sum[2 * i])"),
}  # fmt: skip
LATE = {
    "stages not awaited": ("mbarrier_wait(shared_address(&shared.empty[pipe.index]), pipe.phase ^ 1); mbarrier_arrive_expect",
                           "mbarrier_arrive_expect"),
    "commits not awaited": ("drain_stages<Tile>(shared, pipe);", ""),
}  # fmt: skip
# Likewise, with an epilogue that waits for long between its chunks, so that MMAs may come in between.
PATIENT = ("if (column >= problem.width) continue;",
           "for (u32 i = 0; i < 100; ++i) __syncwarp(); if (column >= problem.width) continue;")  # fmt: skip
OVERLAP = {
    "overlap read last": ("(pipe.index == 0 ? kChunks - 1 - i : i)", "i"),
    "overlap released before it is read": ("i == 0 && half == 1", "i == 0 && half == 0"),
}
LATE |= OVERLAP
ONLY_PATIENT = "an epilogue that waits"  # which is right
SEEDS = range(1, 41)  # the first notices most, and each one half of those that depend on the scheduler
LATE_CASE = "more stages than there are"


class Library:
    """One of the two that moe_cases.cpp opens."""

    def __init__(self, name, sources, program, flags, *linked):
        self.name = name
        self.sources = sources  # those that mutants change
        self.program = program
        self.flags = flags
        self.linked = linked

    def compile(self, folder):
        """Compiles it from translated sources in a folder; returns the error, if there is one."""
        flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-w", "-Wno-psabi", "-shared", "-fPIC",
                 "-D__CUDA_ARCH_FEAT_SM100_ALL", "-I.", *self.flags]  # fmt: skip
        return build(COMPILER, flags, self.program, folder / self.name, *self.linked)


LIBRARIES = [
    Library("libmoe.so", ["nvfp4_moe_combine.cu", "nvfp4_moe_grouped.cu", "moe_routing.cuh"],
            TESTS / "emulator" / "moe_device.cpp", ["-DCUKILN_HOST_ARCH=1000", f"-I{TESTS / 'kernels'}"]),
    Library("libmoe_up.so", ["nvfp4_moe_grouped_up.cu", "gemm_sm100_gate_up.cuh", "row_scales.cuh"],
            TESTS / "emulator" / "moe_up_device.cpp", [f"-I{TESTS}"], "-Wl,-u,launch_emulated", EMULATOR, "-pthread"),
]  # fmt: skip


def run(libraries, *arguments):
    ran = subprocess.run([PROGRAM, *libraries, *arguments], capture_output=True, text=True, check=False, timeout=200)
    return ran.returncode, ran.stdout + ran.stderr


def check(name, unchanged):
    """Describes how a mutant's end differs from the expected one; empty if it does not. `unchanged`: the folder
    of the sources as they are."""
    names = [source for library in LIBRARIES for source in library.sources]
    texts = {source: (unchanged / source).read_text() for source in names}
    try:
        changes = [PATIENT] if name in OVERLAP or name == ONLY_PATIENT else []
        if name != ONLY_PATIENT:
            changes.append(MUTANTS.get(name) or LATE[name])
        mutated = mutate(texts, changes)
    except MutantError as error:
        return f"{name}: {error}"
    changed = next(source for source in names if mutated[source] != texts[source])
    with scratch_folder() as temporary:
        folder = Path(temporary)
        for path in unchanged.glob("*.cu*"):
            (folder / path.name).write_text(mutated.get(path.name) or path.read_text())
        libraries = []
        for library in LIBRARIES:
            if changed not in library.sources:
                libraries.append(unchanged / library.name)
            elif error := library.compile(folder):
                return f"{name}: {error}"
            else:
                libraries.append(folder / library.name)
        for seed in SEEDS:
            code, output = run(libraries, str(seed), *([] if name in MUTANTS else [LATE_CASE]))
            if code in ((0,) if name == ONLY_PATIENT else (1, 2)):
                return ""
    return f"{name}: {code}\n{output[-3000:]}"


def main():
    with scratch_folder() as temporary, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(temporary)
        translate_files(KERNELS, SOURCES, folder)
        if errors := "".join(pool.map(lambda library: library.compile(folder), LIBRARIES)):
            print(errors)
            return 1
        code, output = run([folder / library.name for library in LIBRARIES], "1")
        failures = [f"the sources as they are: {code}\n{output[-3000:]}"] if code != 0 else []
        failures += [failure for failure in pool.map(lambda name: check(name, folder), [*MUTANTS, *LATE, ONLY_PATIENT]) if failure]
    print("\n".join(failures) or f"{len(MUTANTS) + len(LATE)} mutants, all noticed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
