# SPDX-License-Identifier: Apache-2.0
"""The part of scripts/bench for programs of NVRTC's own interface: the drop-in beside the library that it stands for."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
from pathlib import Path

from harness import TARGET, Harness, Row, SkippedError

PLAIN = """extern "C" __global__ void scale(float* x, const float* y, int n) {
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {
    x[k] = x[k] * (VARIANT + 0.5f) + y[k];
  }
}
"""
BLOCK_REDUCE = """#include <cub/block/block_reduce.cuh>
extern "C" __global__ void sum(const float* x, float* out) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage scratch;
  const float total = Reduce(scratch).Sum(x[threadIdx.x] * VARIANT);
  if (threadIdx.x == 0) *out = total;
}
"""
SOURCES = {"a kernel without headers": PLAIN, "CUB's BlockReduce": BLOCK_REDUCE}
# What a hit may take: the goals of the table.
HIT_US, PATH_US = 200.0, 1.5


class Programs:
    def __init__(self, harness: Harness):
        self.harness = harness
        self.command = harness.programs / "cukiln"
        self.dropin = harness.programs / "libcukiln_nvrtc.so"
        if not self.dropin.exists() or not self.command.exists():
            raise SkippedError("libcukiln_nvrtc.so or cukiln is not in this build")
        checks = {check["name"]: check["detail"] for check in self.ask("doctor", store=harness.folder("dropin"))["checks"]}
        found = re.search(r" in (\S+/libnvrtc\S*), for", checks["nvrtc"])
        if found is None:
            raise SkippedError(f"no NVRTC: {checks['nvrtc']}")
        self.nvrtc = Path(found.group(1))
        folders = checks["headers"].split(" in ", 1)[-1].split(", ")
        self.options = [f"-arch={TARGET}", *(f"-I{folder}" for folder in folders)]

    def ask(self, *words: str, store: Path) -> dict:
        done = subprocess.run([self.command, "--json", "--store", store, *words], env=self.harness.environment,
                              capture_output=True, text=True, check=False)  # fmt: skip
        return json.loads(done.stdout)

    def compile(self, library: Path, file: Path, count: int, store: Path, own_cache: bool = False) -> list[float]:
        """Of each of `count` programs, in a process of their own. NVRTC has a cache on disk too, where a driver is."""
        folder = str(self.nvrtc.parent)  # NVRTC finds its builtins there
        words = [self.harness.program("dropin"), str(library), str(file), str(count), *self.options]
        return self.harness.run(words, CUKILN_STORE=str(store), CUKILN_DAEMON="off", LD_LIBRARY_PATH=folder,
                                CUKILN_NVRTC_LIBRARY=str(self.nvrtc), CUDA_CACHE_DISABLE="0" if own_cache else "1")["us"]  # fmt: skip


def measure(harness: Harness) -> list[Row]:
    programs = Programs(harness)
    count, rounds = (4, 2) if harness.quick else (12, 5)
    rows = []
    for what, text in SOURCES.items():
        folder = harness.folder(f"dropin-{len(rows)}")
        file = folder / "program.cu"
        file.write_text(text)
        plain: list[float] = []
        missed: list[float] = []
        for i in range(rounds):
            # The first of a process loads NVRTC, and with the drop-in starts the worker: a miss is another.
            plain += programs.compile(programs.nvrtc, file, count, folder / "unused")[1:]
            missed += programs.compile(programs.dropin, file, count, folder / f"store-{i}")[1:]
        store = folder / "store-0"
        programs.compile(programs.dropin, file, count, store)  # writes what later processes believe
        hits, cached = [], []
        programs.compile(programs.nvrtc, file, count, store, own_cache=True)
        for _ in range(rounds):
            hits.append(programs.compile(programs.dropin, file, count, store))
            cached += programs.compile(programs.nvrtc, file, count, store, own_cache=True)[1:]
        later = [us for process in hits for us in process[1:]]
        entries = programs.ask("ls", store=store)["entries"]
        if len(entries) != count:
            raise SkippedError(f"{len(entries)} entries of {count} programs: something was not stored")
        entry = programs.ask("show", entries[0]["key"], store=store)
        paths = sum(len(entry[key]) for key in ("dependencies", "absent", "folders"))
        alone, again, miss, hit = (statistics.median(times) for times in (plain, cached, missed, later))
        goal = HIT_US + PATH_US * paths
        rows += [
            Row(7, f"{what}, a miss through the drop-in", miss, "us", "NVRTC alone", alone, faster=False,
                note="goal: 1.05, or 10 ms more", samples={"miss": missed, "alone": plain}),
            Row(7, f"{what}, a hit through the drop-in", hit, "us", "NVRTC alone", alone, samples={"hit": later, "alone": plain}),
            Row(7, f"{what}, a hit through the drop-in", hit, "us", "NVRTC with its own cache, where a driver is", again,
                samples={"hit": later, "again": cached}),
            Row(7, f"{what}, a hit that checks {paths:,} paths", hit, "us", f"goal: {HIT_US:.0f} us + {PATH_US} us a path", goal,
                faster=False, note=f"the first of a process {statistics.median(process[0] for process in hits):.0f} us",
                samples={"hit": later}),
        ]  # fmt: skip
    return rows
