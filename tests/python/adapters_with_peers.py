# SPDX-License-Identifier: Apache-2.0
"""Adapters in real compiles of Triton, cuda.core and tvm-ffi: a second process compiles nothing.
Needs their packages, in CUKILN_TEST_PEERS, and no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cukiln

pytestmark = pytest.mark.usefixtures("own_default_loader")

PEERS = os.environ["CUKILN_TEST_PEERS"]
if not Path(PEERS, "triton").is_dir() or not os.environ["CUKILN_NVRTC_LIBRARY"]:
    raise FileNotFoundError(f"NVRTC 13.5 or packages in {PEERS} are missing: run scripts/bootstrap --all-tests")

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

CUDA_CORE_PROGRAM = """
import json, os, sys
from cuda.core import Program as Theirs, ProgramOptions
from cukiln.adapters.cuda_core import Program, ProgramCache

TEXT = '''#include "scale.cuh"
template <class T> __global__ void k(T* x) { *x *= FACTOR; }
__constant__ int c;
extern "C" __global__ void p() {}'''
NAMES = ("k<int>", b"k<float>", "k< double >", "&c", "p")

def compile_one(cache, text=TEXT, names=NAMES, kind="cubin", **more):
    options = ProgramOptions(arch="sm_90", include_path=["first", "second"], name="app/k.cu", **more)
    code = Program(text, "c++", options).compile(kind, names, sys.stderr, cache=cache)
    assert (code.name, code.code_type) == ("app/k.cu", kind)
    return code

def counts(cache):
    stats = cache.stats()
    return f"{stats.hits} {stats.misses}"

def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {error}"
"""

# fault 332
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
named = 'extern "C" __global__ void k(const char** p) { *p = __FILE__; }'
for text, options in ((source, ["-rdc=true"]), (source, ["-dlto"]), (named, [])):
    one = ours.nvrtc_compile(text, name="k.cu", arch="sm_90", extra_opts=options)
    assert one == theirs.nvrtc_compile(text, name="k.cu", arch="sm_90", extra_opts=options), options
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
        env={**os.environ, **environment, "PYTHONHASHSEED": "0",
             "PYTHONPATH": os.pathsep.join([PEERS, *filter(None, sys.path)]), "LD_LIBRARY_PATH": str(nvrtc.parent)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("through", ["manager", "remote"])
def test_triton_compiles_once_for_sm_90_and_sm_100(home, through):  # fault 404
    adapter = "cukiln.adapters.triton:"
    environment = {
        "manager": {"TRITON_CACHE_MANAGER": adapter + "CacheManager"},
        "remote": {"TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
                   "TRITON_REMOTE_CACHE_BACKEND": adapter + "RemoteCacheBackend"},
    }[through]
    first = run(TRITON, home, **environment, TRITON_CACHE_DIR=str(home / "first"))
    second = run(TRITON, home, "hit", **environment, TRITON_CACHE_DIR=str(home / "second"))
    assert first == second and first.count("ELF") == 2
    names = [blob.key.split(b"/")[1] for blob in cukiln.BlobStore("triton").list()]
    assert names.count(b"__grp__add.json") == 2
    assert names.count(b"add.cubin") == (2 if through == "remote" else 0)
    assert (home / "first").exists() == (through == "remote")


TRITON_EDITED = """
import sys, threading
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

FACTOR = tl.constexpr(3)

@triton.jit
def scaled(x):
    return x * FACTOR

@triton.jit
def scale(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, scaled(tl.load(x + at)))

compiles = []
make_ir = ASTSource.make_ir
ASTSource.make_ir = lambda *given: (compiles.append(1), make_ir(*given))[1]

def build(block=128, kind="*fp32"):
    source = ASTSource(scale, {"x": kind, "BLOCK": "constexpr"}, {(1,): block})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
"""


def test_triton_compiles_what_was_edited(home):  # fault 400
    """As its own cache does: the kernel, what it calls, globals and specialisations count."""

    def compiles(code="build()", *edit):
        manager = "cukiln.adapters.triton:CacheManager"
        text = TRITON_EDITED.replace(*edit) if edit else TRITON_EDITED
        return run(text + code + "\nprint(len(compiles))", home, TRITON_CACHE_MANAGER=manager)

    assert (compiles(), compiles()) == ("1\n", "0\n")
    for edit in (("x * FACTOR", "x + FACTOR"), ("constexpr(3)", "constexpr(4)"),
                 ("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK) + 0")):  # fmt: skip
        assert compiles("build()", *edit) == "1\n", edit
    assert compiles() == "0\n"
    assert compiles("build(64); build(kind='*fp16')") == "2\n"
    threads = """
built = []
threads = [threading.Thread(target=lambda: built.append(build(64))) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(built) == 4 and len(set(built)) == 1
"""
    assert compiles(threads) == "0\n"


CUDA_CORE_CALLS = """
from cuda.core import Program, ProgramOptions
from cuda.core.utils import make_program_cache_key
from cukiln.adapters.cuda_core import ProgramCache

class Calls(ProgramCache):
    def __init__(self):
        super().__init__()
        self.calls = []
    def __getitem__(self, key):
        self.calls.append(("get", key))
        return super().__getitem__(key)
    def __setitem__(self, key, value):
        self.calls.append(("set", key))
        super().__setitem__(key, value)

def attempt(text, **more):
    options = ProgramOptions(arch="sm_90", name="of_mine", **more)
    with Calls() as cache:
        try:
            code = Program(text, "c++", options).compile("cubin", cache=cache)
            print(code.name, code.code_type, hash(code.code), code.symbol_mapping)
        except Exception as error:
            print(type(error).__name__)
        key = make_program_cache_key(code=text, code_type="c++", options=options, target_type="cubin")
        assert all(of == key for _, of in cache.calls)
        print([what for what, _ in cache.calls])
"""


@pytest.mark.parametrize("store", ["there", "disabled", "a file"])
def test_cuda_core_asks_once_and_stores_once(home, store):  # fault 389
    """A store that cannot be used costs a compile, where cuda.core's own caches raise. fault 245"""
    (home / "file").write_text("")
    environment = {"there": {}, "disabled": {"CUKILN_DISABLE_STORE": "1"}, "a file": {"CUKILN_STORE": str(home / "file")}}[store]
    code = CUDA_CORE_CALLS + "attempt('__global__ void k() {}'); attempt('broken')"
    first = run(code, home, **environment).splitlines()
    second = run(code, home, **environment).splitlines()
    assert first[0].startswith("of_mine cubin ") and first[0].endswith("{}") and first[2] == "NVRTCError"
    assert (first[1], first[3]) == ("['get', 'set']", "['get']")
    assert second == [first[0], "['get']" if store == "there" else "['get', 'set']", *first[2:]]


def test_a_cap_keeps_what_cuda_cores_own_cache_keeps(home):  # fault 452
    assert run("""
import random
from cuda.core.utils import InMemoryProgramCache
from cukiln.adapters.cuda_core import ProgramCache
rows = random.Random(1)
theirs = InMemoryProgramCache(max_size_bytes=100)
with ProgramCache(max_size_bytes=100) as ours:
    for _ in range(600):
        key, what = b"%d" % rows.randrange(12), rows.random()
        if what < 0.5:
            theirs[key] = ours[key] = bytes(rows.choice((0, 1, 10, 30, 60, 110)))
        elif what < 0.9:
            assert theirs.get(key) == ours.get(key)
        elif theirs.get(key) is not None:
            del theirs[key], ours[key]
        assert len(theirs) == len(ours)
print("equal")""", home).strip() == "equal"


def test_cuda_core_compiles_once(home):
    first = run(CUDA_CORE, home).splitlines()
    second = run(CUDA_CORE, home, "hit").splitlines()
    assert first[:2] == second[:2] and first[2] == "0 2" and second[2] == "2 2"


@pytest.fixture
def headers(home):
    for folder in ("app", "first", "second"):
        (home / folder).mkdir()
    header = home / "second" / "scale.cuh"
    header.write_text("#define FACTOR 3\n")
    return header


def run_program(code, home, **environment):
    return run(CUDA_CORE_PROGRAM + code, home, **environment).splitlines()


def test_a_header_that_changes_or_appears_is_a_miss(home, headers):  # fault 390
    one = """
with ProgramCache() as cache:
    code = compile_one(cache)
    print(counts(cache), hash(code.code))
"""
    first, same = run_program(one, home), run_program(one, home)
    assert first[0].startswith("0 1 ") and same == [first[0].replace("0 1", "1 0")]
    headers.write_text("#define FACTOR 4\n")
    changed = run_program(one, home)
    assert changed[0].startswith("0 1 ") and changed[0][4:] != first[0][4:]
    headers.write_text("#define FACTOR 3\n")
    assert run_program(one, home) == same
    (home / "first" / "scale.cuh").write_text("#define FACTOR 5\n")
    assert run_program(one, home)[0].startswith("0 1 ")
    (home / "first" / "scale.cuh").unlink()
    (home / "app" / "scale.cuh").write_text("#define FACTOR 6\n")  # beside the source, by its name
    assert run_program(one, home)[0].startswith("0 1 ")


def test_name_expressions_are_found_with_their_symbols(home, headers):  # fault 391
    two = """
options = ProgramOptions(arch="sm_90", include_path=["first", "second"], name="app/k.cu")
theirs = Theirs(TEXT, "c++", options).compile("cubin", NAMES)
with ProgramCache() as cache:
    codes = [compile_one(cache, names=names) for names in (NAMES, NAMES[::-1], ())]
    linked = compile_one(cache, kind="ltoir", link_time_optimization=True)
    assert linked.symbol_mapping == theirs.symbol_mapping
    assert codes[0].symbol_mapping == codes[1].symbol_mapping == theirs.symbol_mapping
    assert len(theirs.symbol_mapping) == 5 and theirs.symbol_mapping[b"k<float>"] == b"_Z1kIfEvPT_"
    assert theirs.code == codes[0].code == codes[1].code != codes[2].code
    assert codes[2].symbol_mapping == {}
    print(counts(cache))
    # cuda.core's own program takes neither names nor folders of headers with a cache.
    for names, folder in ((NAMES, None), ((), "second")):
        options = ProgramOptions(arch="sm_90", include_path=folder)
        print(error_of(lambda: Theirs(TEXT, "c++", options).compile("cubin", names, cache=cache))[:20])
"""
    refused = ["builtins.ValueError:"] * 2
    first = run_program(two, home)
    second = run_program(two, home, CUKILN_NVRTC_LIBRARY="")  # by the one that cuda.core has open
    assert first[1:] == second[1:] == refused
    assert (first[0], second[0]) == ("0 4", "4 0")


def test_what_does_not_compile_is_cuda_cores_error_and_not_stored(home, headers):  # fault 392
    broken = """
with ProgramCache() as cache:
    for text, names in ((TEXT + "broken", NAMES), (TEXT, ("nothing",)), (TEXT, ("k<none>",))):
        options = ProgramOptions(arch="sm_90", include_path=["first", "second"], name="app/k.cu")
        theirs = error_of(lambda: Theirs(text, "c++", options).compile("cubin", names))
        assert "NVRTC" in theirs, theirs
        assert error_of(lambda: compile_one(cache, text, names)) == theirs
    for more in ({"time": "t.csv"}, {"create_pch": "p"}, {"pch": True}):
        assert error_of(lambda: compile_one(cache, **more)).startswith("builtins.ValueError:"), more
    print(counts(cache), len(cache))
    compile_one(cache)
    print(counts(cache))
"""
    assert run_program(broken, home) == ["0 0 0", "0 1"]
    assert len(cukiln.BlobStore("cuda.core").list()) == 0


def test_a_program_cache_says_what_it_saved(home, headers):
    code = """
with ProgramCache() as cache:
    size = len(compile_one(cache).code)
    for kind in ("cubin", "ltoir")[:int(os.environ["THEIRS"])]:  # by the key that cuda.core makes
        options = ProgramOptions(arch="sm_90", link_time_optimization=kind == "ltoir" or None)
        size += len(Theirs("__global__ void k() {}", "c++", options).compile(kind, cache=cache).code)
    stats = cache.stats()
    print(json.dumps(stats.__dict__ | {"size": size}))
    cache.get(b"a key that is not compiled")
    assert cache.stats().misses == stats.misses + 1
    with ProgramCache("own") as own:
        own.get(b"a key")
        assert counts(own) == "0 1"
"""

    def stats(theirs):
        return json.loads(run_program(code, home, THEIRS=str(theirs))[0])

    first = stats(0)
    assert (first["hits"], first["misses"], first["saved_seconds"]) == (0, 1, 0)
    assert first["size_bytes"] == first["size"] and first["compile_seconds"] > 0.001
    second = stats(2)
    assert (second["hits"], second["misses"]) == (1, 2) and second["size_bytes"] == second["size"]
    assert abs(second["saved_seconds"] - first["compile_seconds"]) < 1e-5
    third = stats(2)
    assert (third["hits"], third["misses"], third["compile_seconds"]) == (3, 0, 0)
    took = first["compile_seconds"] + second["compile_seconds"]
    assert abs(third["saved_seconds"] - took) < 1e-5
    run("from cukiln.adapters.cuda_core import ProgramCache; ProgramCache().clear()", home)
    assert [len(cukiln.BlobStore(kind).list()) for kind in ("cuda.core", "cuda.core.seconds")] == [0, 0]


def test_threads_compile_one_program(home, headers):  # fault 403
    code = """
import threading
with ProgramCache() as cache:
    codes = []
    threads = [threading.Thread(target=lambda: codes.append(compile_one(cache))) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(codes) == 8 and len({code.code for code in codes}) == 1
    assert all(code.symbol_mapping == codes[0].symbol_mapping for code in codes)
    stats = cache.stats()
    print(stats.hits + stats.misses, stats.misses)
"""
    assert run_program(code, home) == ["8 1"]
    assert run_program(code, home) == ["8 0"]


def test_programs_are_counted_without_a_change_of_the_environment(home, headers):
    code = """
import threading
changes = []
sys.addaudithook(lambda event, _: changes.append(event) if event in ("os.putenv", "os.unsetenv") else None)
given, seen, ends = dict(os.environ), [], threading.Event()
def read():
    while not ends.is_set():
        if os.environ != given:
            seen.append(dict(os.environ))
reader = threading.Thread(target=read)
reader.start()
with ProgramCache() as cache:
    compile_one(cache)
    print(counts(cache))
ends.set()
reader.join()
print(changes, seen)
"""
    assert run_program(code, home) == ["0 1", "[] []"]
    report = home / "report"  # `cukiln run` counts then
    report.write_text("")
    assert run_program(code, home, CUKILN_RUN_REPORT=str(report)) == ["0 0", "[] []"]
    assert report.read_text().startswith("hit ")


def test_a_program_compiles_without_a_store(home, headers):  # fault 245
    code = """
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
with ProgramCache() as cache:
    print(compile_one(cache).symbol_mapping["k<int>"], counts(cache))
"""
    (home / "file").write_text("")
    for environment in ({"CUKILN_DISABLE_STORE": "1"}, {"CUKILN_STORE": str(home / "file")},
                        {"CUKILN_WORKER": "/nonexistent"}, {"CUKILN_OFFLINE": "1"}):  # fmt: skip
        assert run_program(code, home, **environment)[-1].startswith("b'_Z1kIiEvPT_'"), environment
    missing = "from cukiln.adapters import _nvrtc; _nvrtc._library.find = lambda name: '/nonexistent'"
    said, found = run_program(missing + code, home)
    assert said.startswith("programs are compiled without the store: /nonexistent")
    assert found.startswith("b'_Z1kIiEvPT_'") and found.endswith(" 0 0")
    own = code.replace("ProgramCache()", "ProgramCache('own')").replace("compile_one(cache)", "compile_one(None)")
    assert run_program(own, home)[-1].endswith(" 0 0")


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
