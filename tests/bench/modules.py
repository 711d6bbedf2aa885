# SPDX-License-Identifier: Apache-2.0
"""Measures get_cuda_module of a loaded module, and a launch, from Python.

usage: modules.py ROUNDS FOLDER

Everything is measured in turns, in one process. Prints {"ours_us": [...],
"cpp_extension_us": [...], "version": ...} for the first: a module of one file, nothing changed
since. Where there is a GPU also "launch_us", with a number a round for cukiln, CuPy's RawKernel and
Triton where they are. Says why it cannot run and exits with 3.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

CUDA = """extern "C" __global__ void scale(float* x, float f, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= f;
}
"""
EXTENSION = """#include <pybind11/pybind11.h>
void scale() {}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
"""


def microseconds(call: Callable[[], object], times: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(times):
        call()
    return (time.perf_counter_ns() - start) / times / 1e3


def launchers(module: object) -> dict[str, Callable[[], object]]:
    """The same launch by each installed package."""
    import torch

    x = torch.ones(1024, device="cuda")
    launch = module.scale.configure(4, 256)
    found = {"cukiln": lambda: launch(x, 1.0, 1024)}
    try:
        import cupy

        kernel, array = cupy.RawKernel(CUDA, "scale"), cupy.asarray(x)
        factor, count = cupy.float32(1), cupy.int32(1024)
        found[f"CuPy {cupy.__version__}"] = lambda: kernel((4,), (256,), (array, factor, count))
    except ImportError:
        pass
    try:
        import triton
        import triton.language as tl

        @triton.jit
        def scale(x, f, n, block: tl.constexpr):
            i = tl.program_id(0) * block + tl.arange(0, block)
            tl.store(x + i, tl.load(x + i, mask=i < n) * f, mask=i < n)

        found[f"Triton {triton.__version__}"] = lambda: scale[(4,)](x, 1.0, 1024, 256)
    except ImportError:
        pass
    return found


def main(rounds: int, folder: Path) -> int:
    try:
        import torch
        from torch.utils import cpp_extension

        import cukiln
    except ImportError as missing:
        print(missing, file=sys.stderr)
        return 3
    own, extension = folder / "scale.cu", folder / "scale.cpp"
    own.write_text(CUDA)
    extension.write_text(EXTENSION)
    (folder / "build").mkdir()

    def ours() -> cukiln.CudaModule:
        return cukiln.get_cuda_module("scale", [own], ["-O3"])

    def theirs() -> object:
        return cpp_extension.load("scale", [extension], build_directory=str(folder / "build"))

    module = ours()
    if not isinstance(module.scale, cukiln.Kernel):
        print("no driver to load a module with", file=sys.stderr)
        return 3
    theirs()
    result: dict = {"ours_us": [], "cpp_extension_us": [], "version": torch.__version__}
    for _ in range(rounds):
        result["ours_us"].append(microseconds(ours, 100))
        result["cpp_extension_us"].append(microseconds(theirs, 20))
    if torch.cuda.is_available():
        calls = launchers(module)
        result["launch_us"] = {name: [] for name in calls}
        for call in calls.values():
            call()
        for _ in range(rounds):
            for name, call in calls.items():
                torch.cuda.synchronize()
                result["launch_us"][name].append(microseconds(call, 500))  # the queue takes them
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
