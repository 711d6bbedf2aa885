#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters beside the caches that their projects have by default: time, bytes and inodes.

usage: CUKILN_LIBRARY=… PYTHONPATH=src/bindings/python:PEERS tests/bench/adapters.py [--open]

--open: what a process pays before the first value. PEERS has Triton and cuda-core: .cukiln-nvrtc-packages, after scripts/bootstrap --all-tests. Each case is a process that
puts, then a process that gets. What is put has the sizes of the six files that Triton keeps for a
kernel, and of a cubin for cuda.core.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

KERNELS = 200
ROUNDS = 5

TRITON = """
import random, sys, time
from triton.runtime.cache import get_cache_manager
sizes = {"k.source": 1200, "k.ttir": 3000, "k.llir": 9000, "k.ptx": 7000, "k.cubin": 11000, "k.json": 900}
rows = random.Random(1)
data = {name: rows.randbytes(size) for name, size in sizes.items()}
managers = [get_cache_manager(f"{i:064x}") for i in range(%d)]
managers[0].get_group("warm")  # the store is opened, or the folders are made
begin = time.perf_counter()
for manager in managers:
    if sys.argv[1] == "put":
        manager.put_group("k.json", {name: manager.put(data[name], name) for name in data})
    else:
        assert len(manager.get_group("k.json")) == 6
print((time.perf_counter() - begin) / len(managers))
"""

CUDA_CORE = """
import random, sys, time
if sys.argv[2] == "cukiln":
    from cukiln.adapters.cuda_core import ProgramCache as Cache
else:
    from cuda.core.utils import FileStreamProgramCache as Cache
data = random.Random(1).randbytes(11000)
cache = Cache()
cache.get(b"warm")
begin = time.perf_counter()
for i in range(%d):
    if sys.argv[1] == "put":
        cache[i.to_bytes(32, "big")] = data
    else:
        assert cache[i.to_bytes(32, "big")] == data
print((time.perf_counter() - begin) / %d)
"""

OPEN = """
import sys, time
times = [time.perf_counter()]
def ends(): times.append(time.perf_counter())
import cuda.core, cuda.core.utils; ends()
if sys.argv[1] == "cukiln":
    import cukiln; ends()
    from cukiln.adapters.cuda_core import ProgramCache as Cache; ends()
else:
    from cuda.core.utils import FileStreamProgramCache as Cache; ends(); ends()
cache = Cache(); ends()
cache.get(b"warm"); ends()
cache.get(b"warm"); ends()
print(*(b - a for a, b in zip(times, times[1:])))
"""
OPENINGS = 100
STEPS = ("import cuda.core", "import cukiln", "import the adapter and libcukiln", "make the cache", "first get", "second get")


def run(code: str, *arguments: str, **environment: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", code, *arguments], env={**os.environ, **environment},
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return list(map(float, done.stdout.split()))


def size_of(folder: Path) -> tuple[int, int]:
    """Bytes on disk and inodes."""
    found = [folder, *folder.rglob("*")]
    return sum(path.lstat().st_blocks * 512 for path in found), len(found)


def measure(code: str, owner: str, folder: Path, **environment: str) -> tuple[float, float, int, int]:
    folder.mkdir()
    environment = {"XDG_CACHE_HOME": str(folder), "TRITON_CACHE_DIR": str(folder / "triton"),
                   "CUKILN_STORE": str(folder / "store"), "CUKILN_DAEMON": "off", **environment}
    (put,) = run(code, "put", owner, **environment)
    (get,) = run(code, "get", owner, **environment)
    return put, get, *size_of(folder)


def measure_opening() -> None:
    columns = {}
    with tempfile.TemporaryDirectory() as scratch:
        environment = {"XDG_CACHE_HOME": scratch, "CUKILN_STORE": f"{scratch}/store", "CUKILN_DAEMON": "off"}
        for owner in ("its own", "cukiln"):
            run(CUDA_CORE % (KERNELS, KERNELS), "put", owner, **environment)
            runs = [run(OPEN, owner, **environment) for _ in range(OPENINGS)]
            columns[owner] = [statistics.median(column) for column in zip(*runs, strict=True)]
    print("| step | its own | cukiln |\n|---|---|---|")
    for step, *times in zip(STEPS, *columns.values(), strict=True):
        print(f"| {step} | " + " | ".join(f"{seconds * 1e3:.2f} ms" for seconds in times) + " |")
    opened = [sum(times[-3:-1]) for times in columns.values()]
    print("| open: the cache and its first get | " + " | ".join(f"{seconds * 1e3:.2f} ms" for seconds in opened) + " |")


def main() -> None:
    if sys.argv[1:] == ["--open"]:
        measure_opening()
        return
    manager = {"TRITON_CACHE_MANAGER": "cukiln.adapters.triton:CacheManager"}
    cases = {"Triton": (TRITON % KERNELS, {}, manager), "cuda.core": (CUDA_CORE % (KERNELS, KERNELS), {}, {})}
    print("| cache | put | get | bytes on disk | inodes |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for project, (code, default, adapter) in cases.items():
            rows = {}
            for owner, extra in (("its own", default), ("cukiln", adapter)):
                runs = [measure(code, owner, Path(scratch) / f"{project} {owner} {i}", **extra) for i in range(ROUNDS)]
                rows[owner] = [statistics.median(column) for column in zip(*runs, strict=True)]
            for owner, (put, get, size, inodes) in rows.items():
                print(f"| {project}, {owner} | {put * 1e6:.0f} µs | {get * 1e6:.0f} µs "
                      f"| {size / KERNELS / 1024:.1f} KiB | {inodes / KERNELS:.2f} |")
            ratios = [a / b for a, b in zip(rows["its own"], rows["cukiln"], strict=True)]
            print(f"| {project}, ratio | " + " | ".join(f"{ratio:.2f} ×" for ratio in ratios) + " |")


if __name__ == "__main__":
    main()
