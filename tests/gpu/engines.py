#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a start saves under `cukiln run` on this machine's GPU: Humming's kernels of an NVFP4 layer, CuPy's of array functions and
PyTorch's jiterator, without cukiln, with an empty store, with their own, and with one into which a bundle was imported, in another
home and, for Humming, another copy of the package. Their own caches are empty or off. Two minutes.

  tests/gpu/engines.py --build     where packages can be fetched, after scripts/test-gpu --build: makes build/gpu/engines, to be carried
  tests/gpu/engines.py             on the GPU machine: writes DEVICE-engines.json (tests/gpu/results/README.md) to $OUT or build/bench
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CARRIED = REPOSITORY / "build" / "gpu" / "engines"
ROUNDS, LAST_BEGINS_S = 3, 75.0
sys.path[:0] = [str(REPOSITORY / "tests" / "bench"), str(REPOSITORY / "tests" / "nvfp4" / "bench")]
sys.dont_write_bytecode = True
import carried  # noqa: E402
import humming_gemm  # noqa: E402
import results  # noqa: E402

CUPY = """
import json, time
import cupy as cp
cp.empty(1)
cp.cuda.Device().synchronize()
begin = time.perf_counter()
x = cp.arange(1, 1 << 16, dtype=cp.float32)
axpy = cp.ElementwiseKernel("T x, T y", "T z", "z = x * y + 1", "axpy_of_this")
raw = cp.RawKernel('extern "C" __global__ void twice(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }', "twice")
got = [axpy(x, x).sum(), cp.sqrt(x).mean(), cp.sin(x).max(), cp.where(x > 5, x, 0).min(), cp.cumsum(x)[-1], cp.exp(-x).sum(),
       (x.astype(cp.float64) + 1j).sum().real, cp.argmax(x), cp.diff(x).any(), cp.clip(x, 2, 9).sum()]
raw((64,), (64,), (x,))
got = [float(each) for each in got] + [float(x[0])]
print(json.dumps({"seconds": time.perf_counter() - begin, "kernels": got}))
"""
JITERATOR = """
import json, time
import torch
x = torch.linspace(0.1, 2, 1 << 16, device="cuda")
torch.cuda.synchronize()
begin = time.perf_counter()
scale = torch.cuda.jiterator._create_jit_fn("template <typename T> T scale(T x, T y) { return x * y + T(1); }")
special = torch.special
got = [scale(x, x)] + [function(x) for function in (special.bessel_j0, special.bessel_y1, special.airy_ai, special.modified_bessel_k0,
                                                    special.i1, torch.sinc)]
got = [each.sum().item() for each in got]
print(json.dumps({"seconds": time.perf_counter() - begin, "kernels": got}))
"""
ENGINES = {
    "Humming, an NVFP4 layer for 1, 64 and 1024 rows": [str(REPOSITORY / "tests" / "peers" / "compiles_with_humming.py")],
    "CuPy, ten functions": ["-c", CUPY],
    "PyTorch's jiterator, seven functions": ["-c", JITERATOR],
}


def build() -> int:
    built = REPOSITORY / "build" / "release" / "bin"
    shutil.rmtree(CARRIED, ignore_errors=True)
    (CARRIED / "bin").mkdir(parents=True)
    carried.copy_libraries(built, CARRIED / "bin", "cukiln", "libcukiln_nvrtc.so")
    (CARRIED / "bin" / "libcukiln.so").rename(CARRIED / "bin" / (built / "libcukiln.so").readlink())  # by which it is opened
    shutil.copy(REPOSITORY / "build" / "gpu" / "bin" / "cukiln", CARRIED / "bin")  # it needs no library that is lacking there
    carried.write_commit(CARRIED / "bin")
    humming_gemm.gather(CARRIED / "packages")
    size = sum(file.stat().st_size for file in CARRIED.rglob("*") if file.is_file())
    print(f"carry {CARRIED.relative_to(REPOSITORY)} ({size / 2**20:.0f} MiB) and the sources; then tests/gpu/engines.py")
    return 0


class Starts:
    def __init__(self, scratch: Path):
        self.scratch = scratch
        self.cukiln = CARRIED / "bin" / "cukiln"
        self.count = 0
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("CUKILN_")} | {
            "CUKILN_DAEMON": "off", "CUKILN_SYSTEM_STORE": "/nonexistent", "CUDA_CACHE_DISABLE": "1", "CUPY_CACHE_IN_MEMORY": "1",
            "USE_PYTORCH_KERNEL_CACHE": "0", "HUMMING_COMPILER": "nvrtc", "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip

    def folder(self) -> Path:
        self.count += 1
        made = self.scratch / str(self.count)
        made.mkdir()
        return made

    def start(self, words: list[str], store: Path | None, packages: Path) -> tuple[dict, dict]:
        """What the process printed, and what `cukiln run` counted."""
        home = self.folder()
        path = [str(packages), os.environ.get("PYTHONPATH", "")]
        environment = self.environment | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home),
                                          "HUMMING_CACHE_DIR": str(home / "humming"), "PYTHONPATH": ":".join(path).strip(":")}  # fmt: skip
        (home / "humming").mkdir()
        before = [] if store is None else [str(self.cukiln), "--json", "--store", str(store), "run", "--"]
        done = subprocess.run([*before, sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
        text = done.stdout if store is None else done.stderr
        if done.returncode != 0 or '{"seconds"' not in text:
            sys.exit(f"error: {words[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        said = json.loads(text[text.index('{"seconds"') :].splitlines()[0])
        return said, {} if store is None else json.loads(done.stdout)

    def import_bundle(self, bundle: Path) -> Path:
        store = self.folder() / "store"
        subprocess.run([self.cukiln, "--store", store, "import", "--insecure", bundle], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        return store


def measure(starts: Starts) -> list[dict]:
    packages = CARRIED / "packages"
    copied = starts.folder() / "packages"
    shutil.copytree(packages, copied, copy_function=shutil.copy)  # new times
    seconds: dict[str, dict[str, list[float]]] = {engine: {} for engine in ENGINES}
    counts: dict[tuple[str, str], str] = {}
    kernels: dict[tuple[str, Path], list] = {}  # some show the folder that they are compiled in
    own: dict[str, tuple[Path, Path]] = {}
    began = time.monotonic()
    for i in range(ROUNDS):
        for engine, words in ENGINES.items():
            if i > 0 and time.monotonic() - began > LAST_BEGINS_S:
                continue
            empty = starts.folder() / "store"
            for case in ("without cukiln", "empty store", "own store", "bundle in another root"):
                if case == "own store" and engine not in own:
                    bundle = starts.folder() / "kernels.ckb"
                    subprocess.run([starts.cukiln, "--store", empty, "export", "-o", bundle], env=starts.environment, check=True,
                                   stdout=subprocess.DEVNULL)  # fmt: skip
                    own[engine] = empty, bundle
                store = {"without cukiln": lambda: None, "empty store": lambda: empty, "own store": lambda: own[engine][0],
                         "bundle in another root": lambda: starts.import_bundle(own[engine][1])}[case]()  # fmt: skip
                root = copied if case == "bundle in another root" else packages
                if (engine, root) not in kernels:
                    kernels[engine, root] = starts.start(words, None, root)[0]["kernels"]
                said, counted = starts.start(words, store, root)
                seconds[engine].setdefault(case, []).append(said["seconds"] * 1e3)
                if kernels[engine, root] != said["kernels"]:
                    sys.exit(f"error: {engine}, {case}: other results than without cukiln")
                if counted:
                    counts[engine, case] = ", ".join(f"{counted[name]} {name}" for name in ("hits", "compiled", "failed", "bypassed"))
                print(f"{engine}, {case}: {said['seconds']:.2f} s {counts.get((engine, case), '')}", file=sys.stderr)
    rows = []
    for engine, cases in seconds.items():
        plain = cases.pop("without cukiln")
        for case, samples in cases.items():
            rows.append(results.row(engine, "ms", statistics.median(samples), samples, case=case, baseline="without cukiln",
                                    baseline_value=statistics.median(plain), baseline_samples=plain, note=counts[engine, case]))  # fmt: skip
    return rows


def main() -> int:
    if sys.argv[1:] == ["--build"]:
        return build()
    if not CARRIED.exists():
        sys.exit(f"error: no {CARRIED}; make it by tests/gpu/engines.py --build, and carry it")
    import cupy
    import torch

    device = results.devices() | {"cores": len(os.sched_getaffinity(0))}
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(Starts(Path(scratch)))
    software = {"torch": torch.__version__, "cupy": cupy.__version__, "humming-kernels": humming_gemm.VERSION}
    made = results.record("times", device=device, commit=results.commit_of(CARRIED / "bin"), command="tests/gpu/engines.py",
                          software=software, note="from the first call to the last result; imports not counted", results=rows)  # fmt: skip
    output = Path(os.environ.get("OUT") or REPOSITORY / "build" / "bench")
    output.mkdir(parents=True, exist_ok=True)
    path = output / results.file_name(results.devices(), "engines")
    results.write(path, made)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
