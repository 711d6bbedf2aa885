#SPDX - License - Identifier : Apache - 2.0
"""The decode GEMMs on the CPU, and mutants of them that use shared memory too early or too long.

Their asm statements are calls, as device_source.py translates them, and so is what a host compiler has not. Loads of a
stage are marked: they may be in flight until a fence of the async proxy. Each mutant must break a rule of the emulator, or
give a wrong result, with one of the seeds.

usage: decode_test.py KERNELS_FOLDER TESTS_FOLDER CASES_LIBRARY EMULATOR_LIBRARY COMPILER…
"""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KERNELS, TESTS, *LIBRARIES = (Path(argument) for argument in sys.argv[1:5])
COMPILER = sys.argv[5:]
sys.path[:0] = [str(TESTS / "kernels"), str(TESTS.parent / "support")]
from device_source import translate_files
from host_compiler import build, scratch_folder
from mutate import MutantError, mutate

DECODE, ASYNC_COPY = "gemm_sm90_decode.cuh", "async_copy.cuh"  # what is mutated
SEEDS = range(1, 41)  # one that depends on the scheduler is noticed in three runs of four
#What takes the place of what : of the sources, before they are translated.
HOST = [
    ("extern __shared__ uint4 shared[];", "uint4* const shared = reinterpret_cast<uint4*>(dynamic_shared_memory());"),
    ('asm("mov.u32 %0, %%nsmid;" : "=r"(count));', "count = 1;"),
    ("*reinterpret_cast<const uint4*>(row_tile)", "emulator::load<uint4>(row_tile)"),
    ("*reinterpret_cast<const u16*>(tile_scales)", "emulator::load<u16>(tile_scales)"),
]

FULL_WAIT = "mbarrier_wait(full + 8 * slot, stage / kStages & 1);"
MUTANTS = {  # fault 320: the first three
    "loads in flight when a stage is released": ("async_proxy_fence(); mbarrier_arrive_cta(empty);", "mbarrier_arrive_cta(empty);"),
    "a stage is released without the fence": ("release_stage(empty + 8 * slot);", "mbarrier_arrive_cta(empty + 8 * slot);"),
    "a fence behind the arrival": ("async_proxy_fence(); mbarrier_arrive_cta(empty);", "mbarrier_arrive_cta(empty); async_proxy_fence();"),
    "a stage is not awaited": (FULL_WAIT, ""),
    "parity of a stage": (FULL_WAIT, FULL_WAIT.replace("& 1", "+ 1 & 1")),
    "a stage is loaded before it is empty": ("mbarrier_wait(empty + 8 * slot, (stage / kStages - 1) & 1);", ""),
    "scales are not expected": ("kScalesAt + (second_atom ? 2 : 1) * bytes", "kScalesAt"),
    "sums over stages that others read": ("consumer_sync(); float* const first_sum", "float* const first_sum"),
}


def outcome(changes, seeds):
    """Yields (exit code, output) for each seed."""
    with scratch_folder() as folder:
        folder = Path(folder)
        plain, translated = folder / "plain", folder / "kernels_src" / "nvfp4"  # found before the repository's
        for copy in (plain, translated):
            shutil.copytree(KERNELS, copy)
        sources = {name: (plain / name).read_text() for name in (DECODE, ASYNC_COPY)}
        for name, text in mutate(mutate(sources, HOST), changes).items():
            (plain / name).write_text(text)
        translate_files(plain, [DECODE], translated)
        flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-w", "-Wno-psabi", "-D__CUDA_ARCH__=900", "-I.", f"-I{TESTS}"]
        if error := build(COMPILER, flags, TESTS / "emulator" / "decode_device.cpp", folder / "cases", *LIBRARIES, "-pthread"):
            yield None, error
            return
        for seed in seeds:
            ran = subprocess.run([folder / "cases", str(seed)], capture_output=True, text=True, check=False, timeout=300)
            yield ran.returncode, ran.stdout + ran.stderr


def check(name):
    """Says how the unchanged kernels fail, or that a mutant was not noticed; empty otherwise."""
    try:
        codes = []
        for code, output in outcome([MUTANTS[name]] if name else [], SEEDS if name else range(3)):
            if code is None or (not name and code != 0):
                return f"{name or 'unchanged'}: {code}\n{output[-3000:]}"
            if name and code != 0:
                return ""
            codes.append(code)
        return f"{name}: ended with {codes}" if name else ""
    except MutantError as error:
        return f"{name}: {error}"


def main():
    with ThreadPoolExecutor(2) as pool:
        failures = [failure for failure in pool.map(check, ["", *MUTANTS]) if failure]
    print("\n".join(failures) or f"{len(MUTANTS)} mutants, all noticed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
