# SPDX-License-Identifier: Apache-2.0
"""Programs over CuPy's headers, compiled by CuPy's compile_using_nvrtc. Prints each one's digest, and the seconds.

usage: compiles_with_cupy.py INCLUDE   (CUDA's headers)
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import cupy
from cupy.cuda import compiler

if os.environ.get("CUPY_WITHOUT_GPU"):
    compiler._get_arch_for_options_for_nvrtc = lambda arch=None: ("-arch=sm_90", "cubin")  # asks the device

HEADERS = ("complex.cuh", "carray.cuh", "atomics.cuh", "float16.cuh", "math_constants.h")
TYPES = ("float", "double", "int", "complex<float>", "complex<double>")
INCLUDE = Path(cupy.__file__).parent / "_core" / "include"
FOLDERS = [INCLUDE, *(INCLUDE / "cupy" / "_cccl" / name for name in ("cub", "thrust", "libcudacxx")), Path(sys.argv[1])]
begin = time.perf_counter()
digests = []
for header in HEADERS:
    for kind in TYPES:
        text = f"""#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/{header}>
template <class T> __global__ void scale(CArray<T, 1, true, true> x, T by) {{
  CUPY_FOR(i, x.size()) {{ x[i] = x[i] * by + T(x.size()); }}
}}
"""
        code, names = compiler.compile_using_nvrtc(text, options=("-std=c++17", *(f"-I{folder}" for folder in FOLDERS)), arch="90",
                                                   filename=f"{kind}.cu", name_expressions=(f"scale<{kind}>",))
        digests.append(hashlib.sha256(code + repr(names).encode()).hexdigest())
json.dump({"seconds": time.perf_counter() - begin, "kernels": digests}, sys.stdout)
