# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts on sm_100a, all of it on the CPU, and mutants of its kernels.

The launcher's steps run with the kernels' own sources: GEMMs in the emulator, the others as
device_source.py translates them. Each mutant is one of those with one thing changed, found by its C++
tokens (mutate.py); its results must be wrong, or it must break a rule.

usage: moe_test.py KERNELS_FOLDER TESTS_FOLDER CASES_PROGRAM COMPILER…
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KERNELS, TESTS, PROGRAM = (Path(argument) for argument in sys.argv[1:4])
COMPILER = sys.argv[4:]
sys.path.insert(0, str(TESTS / "kernels"))
from device_source import translate_files
from mutate import MutantError, mutate

SOURCES = ["nvfp4_moe_combine.cu", "nvfp4_moe_grouped.cu", "nvfp4_moe_route.cu"]
MUTATED = SOURCES[:2]

# name: (tokens, what takes their place); of the translated sources, which have no asm statement
MUTANTS = {
    "token of a slot": ("slots[tile.first + row] / topk", "slots[tile.first + row]"),
    "first position of a tile": ("slots[tile.first + row]", "slots[row]"),
    "row of a slot": ("static_cast<int>(index * kAtomRows + threadIdx.x)", "static_cast<int>(tile.first + threadIdx.x)"),
    "expert of a tile": ("static_cast<int>(tile.expert)", "0"),
    "tiles without an expert": ("row_experts[index] = -1", "row_experts[index] = 0"),
    "scale of an expert's first matrix": ("= up_decode[tile.expert]", "= up_decode[0]"),
    "scale of an expert's second matrix": ("= down_decode[tile.expert]", "= up_decode[tile.expert]"),
    "quarter of an atom": ("kAtomBytes + quarter * 4", "kAtomBytes"),
    "line of an atom": ("to_atom + line * 16", "to_atom + line * 8"),
    "atom of the scales": ("* atoms + atom) * kAtomBytes", "* atoms) * kAtomBytes"),
    "second half of a row's data": ("(to)[1] = high", "(to)[1] = low"),
    "rows of the activation": ("*tile_count * kAtomRows", "*tile_count * (kAtomRows / 2)"),
    "width of the GEMM's output": ("2 * static_cast<i64>(width), width", "static_cast<i64>(width), width"),
    "alpha of the activation": ("SwiGlu::of(limit, alpha, beta)", "SwiGlu::of(limit, 0.0f, beta)"),
    "slots that have no row": ("row >= 0", "row >= -1"),
    "row 0": ("row >= 0", "row > 0"),
    "weight of a slot": ("row >= 0; const float weight = valid ? topk_weights[slot]",
                         "row >= 0; const float weight = valid ? topk_weights[token]"),
    "order of columns": ("pairs[i] << 16), sum[2 * i])", "pairs[i ^ 1] << 16), sum[2 * i])"),
}  # fmt: skip


def outcome(change):
    """(exit code, output) of the kernels, with a change if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        translate_files(KERNELS, SOURCES, Path(folder))
        if change is not None:
            try:
                sources = mutate({name: Path(folder, name).read_text() for name in MUTATED}, [change])
            except MutantError as error:
                return None, str(error)
            for name, text in sources.items():
                Path(folder, name).write_text(text)
        library = Path(folder, "libmoe.so")
        compiled = subprocess.run(
            [*COMPILER, "-std=c++20", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC",
             "-DCUKILN_HOST_ARCH=1000", "-D__CUDA_ARCH_FEAT_SM100_ALL", f"-I{TESTS / 'kernels'}",
             f"-I{folder}", TESTS / "emulator" / "moe_device.cpp", "-o", library],
            capture_output=True, text=True, check=False)  # fmt: skip
        if compiled.returncode != 0:
            return None, compiled.stderr
        ran = subprocess.run([PROGRAM, library], capture_output=True, text=True, check=False, timeout=200)
        return ran.returncode, ran.stdout + ran.stderr


def check(name):
    """Describes how a mutant's end differs from the expected one; empty if it does not. Without a name: the
    sources as they are."""
    code, output = outcome(MUTANTS.get(name))
    expected = (1, 2) if name else (0,)
    return "" if code in expected else f"{name or 'the sources as they are'}: {code}\n{output[-3000:]}"


def main():
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [failure for failure in pool.map(check, [None, *MUTANTS]) if failure]
    print("\n".join(failures) or f"{len(MUTANTS)} mutants, all noticed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
