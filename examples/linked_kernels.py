#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources that are compiled by themselves and linked, as by nvcc -dlto: an engine's library of
device functions and a kernel that a user wrote. No GPU is needed.

    python examples/linked_kernels.py [EXPRESSION]...

The library is compiled once. Each activation, a C++ expression of `x`, compiles one source and
links.
"""

import sys

import cukiln

LIBRARY = """
__device__ float scale(float x, float by) { return x * by; }
"""
KERNEL = """
__device__ float scale(float x, float by);
extern "C" __global__ void activate(float* p, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { const float x = scale(p[i], 0.5f); p[i] = ACTIVATION; }
}
"""


def module_for(activation: str) -> cukiln.ModuleSpec:
    # The macro is in the text, not among the flags: flags are those of every source.
    kernel = KERNEL.replace("ACTIVATION", activation)
    return cukiln.ModuleSpec(
        [cukiln.Source("library.cu", LIBRARY), cukiln.Source("kernel.cu", kernel)],
        name="activate",
        targets=["sm_90a"],
        link="lto",
    )


def main(activations: list[str]) -> int:
    with cukiln.Loader() as loader:
        for activation in activations or ["x > 0 ? x : 0", "x * x"]:
            before = loader.stats().compiles
            try:
                (report,) = loader.compile(module_for(activation))
            except cukiln.CompileError as error:
                print(f"{activation}: {error}", file=sys.stderr)
                return 1
            (kernel,) = report.kernels
            print(
                f"{activation}: {report.outcome}, {loader.stats().compiles - before} compiles and "
                f"links, {kernel.registers} registers"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
