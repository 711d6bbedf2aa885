# SPDX-License-Identifier: Apache-2.0
"""Adapters in real compiles of Triton, cuda.core and tvm-ffi: a second process compiles nothing.
Needs their packages, in CUKILN_TEST_PEERS, and no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cukiln

pytestmark = pytest.mark.usefixtures("own_default_loader")

PEERS = os.environ["CUKILN_TEST_PEERS"]
if not Path(PEERS, "triton").is_dir() or not os.environ["CUKILN_NVRTC_LIBRARY"]:
    raise FileNotFoundError(f"NVRTC 13.5 or packages in {PEERS} are missing: run scripts/bootstrap --tests")

TRITON = """
import sys
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.cache import get_cache_manager

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)

def source():
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    return ASTSource(add, signature, {(3,): 128})

if sys.argv[1:] == ["hit"]:
    def refuse(*_, **__):
        raise AssertionError("compiled again")
    ASTSource.make_ir = refuse
for capability in (90, 100):
    built = triton.compile(source(), target=GPUTarget("cuda", capability, 32))
    cubin = built.asm["cubin"]
    print(capability, cubin[:4], len(cubin), built.metadata.name, sorted(built.asm))
print(type(get_cache_manager("00")).__module__)
"""

CUDA_CORE = """
import sys
from cuda.core import Program, ProgramOptions
from cukiln.adapters.cuda_core import ProgramCache

if sys.argv[1:] == ["hit"]:
    def refuse(*_):
        raise AssertionError("compiled again")
    ProgramCache.__setitem__ = refuse
source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }'
with ProgramCache() as cache:
    before = len(cache)
    for kind in ("cubin", "ltoir"):
        options = ProgramOptions(arch="sm_90", relocatable_device_code=kind == "ltoir",
                                 link_time_optimization=kind == "ltoir" or None)
        code = Program(source, "c++", options).compile(kind, cache=cache)
        print(kind, len(bytes(code.code)), hash(bytes(code.code)))
    print(before, len(cache))
"""

TVM_FFI = """
import inspect
import struct
import tvm_ffi.cpp.nvrtc as theirs
from cukiln.adapters import tvm_ffi as ours

def sections(elf):
    # Name -> bytes, of the sections of an ELF file of 64 bits.
    (at,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    rows = [struct.unpack_from("<IIQQQQ", elf, at + i * size) for i in range(count)]
    text = elf[rows[names][4]:]
    return {text[row[0]:text.index(0, row[0])].decode(): b"" if row[1] == 8 else
            elf[row[4]:row[4] + row[5]] for row in rows}

source = '''
template <class T> __device__ T twice(T x) { return x + x; }
extern "C" __global__ void k(float* x) { x[threadIdx.x] = twice(x[threadIdx.x]); }'''
assert inspect.signature(ours.nvrtc_compile) == inspect.signature(theirs.nvrtc_compile)
for arch in ("sm_90", "sm_100a"):
    for options in ([], ["-DN=4", b"--use_fast_math"]):
        one = ours.nvrtc_compile(source, arch=arch, extra_opts=options)
        other = theirs.nvrtc_compile(source, arch=arch, extra_opts=options)
        one, other = sections(one), sections(other)
        assert one.keys() == other.keys() and len(one[".text.k"]) > 100
        differ = [name for name in one if one[name] != other[name]]
        # cukiln asks ptxas for the kernels' resources, with -v, which is in a note.
        assert all(name.startswith(".note") for name in differ), (arch, options, differ)
for compile_one in (ours.nvrtc_compile, theirs.nvrtc_compile):
    try:
        compile_one("nothing", arch="sm_90")
    except RuntimeError as error:
        assert "NVRTC compilation failed:" in str(error) and "kernel.cu(1)" in str(error), error
print("equal")
"""


def run(code, folder, *arguments, **environment):
    program = folder / "program.py"  # Triton reads a kernel's source from its file
    program.write_text(code)
    (nvrtc,) = Path(os.environ["CUKILN_NVRTC_LIBRARY"]).parent.glob("libnvrtc.so.*")
    done = subprocess.run(
        [sys.executable, program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            **environment,
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join([PEERS, *filter(None, sys.path)]),
            "LD_LIBRARY_PATH": str(nvrtc.parent),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("through", ["manager", "remote"])
def test_triton_compiles_once_for_sm_90_and_sm_100(home, through):
    adapter = "cukiln.adapters.triton:"
    environment = {
        "manager": {"TRITON_CACHE_MANAGER": adapter + "CacheManager"},
        "remote": {
            "TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
            "TRITON_REMOTE_CACHE_BACKEND": adapter + "RemoteCacheBackend",
        },
    }[through]
    first = run(TRITON, home, **environment, TRITON_CACHE_DIR=str(home / "first"))
    second = run(TRITON, home, "hit", **environment, TRITON_CACHE_DIR=str(home / "second"))
    assert first == second and first.count("ELF") == 2
    names = [blob.key.split(b"/")[1] for blob in cukiln.BlobStore("triton").list()]
    assert names.count(b"__grp__add.json") == 2
    assert names.count(b"add.cubin") == (2 if through == "remote" else 0)
    assert (home / "first").exists() == (through == "remote")


def test_cuda_core_compiles_once(home):
    first = run(CUDA_CORE, home).splitlines()
    second = run(CUDA_CORE, home, "hit").splitlines()
    assert first[:2] == second[:2] and first[2] == "0 2" and second[2] == "2 2"


def test_tvm_ffi_gets_the_same_cubins(home):
    assert run(TVM_FFI, home).strip() == "equal"


@pytest.mark.parametrize("compiler", ["triton", "cuda.core", "tvm-ffi"])
def test_the_example_stores_once(home, compiler):
    example = (Path(__file__).parents[2] / "examples/other_compilers.py").read_text()
    stored = [run(example, home, compiler).split() for _ in range(2)]
    count = stored[0][1]
    assert int(count) > 0
    assert stored == [[f"{compiler}:", count, "stored,", "0", "were", "there"],
                      [f"{compiler}:", "0", "stored,", count, "were", "there"]]  # fmt: skip
