#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What other compilers make, kept in cukiln's store: run it twice, and the second run compiles
nothing. None of this needs a GPU.

    python examples/other_compilers.py triton | cuda.core | tvm-ffi | inductor
"""

import os
import sys

import cukiln


def compile_with_triton() -> None:
    os.environ["TRITON_CACHE_MANAGER"] = "cukiln.adapters.triton:CacheManager"
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget

    @triton.jit
    def add_one(x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)

    signature = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(add_one, signature, {(2,): 128})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))


CUDA_SOURCE = 'extern "C" __global__ void add_one(float* x) { x[threadIdx.x] += 1; }'


def compile_with_cuda_core() -> None:
    from cuda.core import Program, ProgramOptions

    from cukiln.adapters.cuda_core import ProgramCache

    with ProgramCache() as cache:
        program = Program(CUDA_SOURCE, "c++", ProgramOptions(arch="sm_90"))
        program.compile("cubin", cache=cache)


def compile_with_tvm_ffi() -> None:
    import tvm_ffi.cpp.nvrtc

    from cukiln.adapters.tvm_ffi import nvrtc_compile

    tvm_ffi.cpp.nvrtc.nvrtc_compile = nvrtc_compile  # what every user of it calls from now on
    tvm_ffi.cpp.nvrtc.nvrtc_compile(CUDA_SOURCE, arch="sm_90")


def compile_with_inductor() -> None:
    os.environ["TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE"] = "1"
    os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = "0"  # its own folder, which would answer first
    import torch

    from cukiln.adapters import inductor

    inductor.install()
    torch.compile(lambda x: (x + 1).relu())(torch.ones(8))


COMPILERS = {
    "triton": compile_with_triton,
    "cuda.core": compile_with_cuda_core,
    "tvm-ffi": compile_with_tvm_ffi,
    "inductor": compile_with_inductor,
}


def stored(name: str) -> int:
    # tvm-ffi's are entries, as all that NVRTC compiles: their headers are known.
    if name == "tvm-ffi":
        return cukiln.default_loader().stats().entries
    return len(cukiln.BlobStore(name).list())


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in COMPILERS:
        print(__doc__, file=sys.stderr)
        return 2
    name = arguments[0]
    before = stored(name)
    COMPILERS[name]()
    print(f"{name}: {stored(name) - before} stored, {before} were there")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
