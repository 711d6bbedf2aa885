# SPDX-License-Identifier: Apache-2.0
"""Packages that compile with NVRTC and link with nvJitLink, unchanged, by `cukiln run`: the second process does neither, and both
get what these return by themselves. They are wheels of the virtual environment, and no variable says where. No GPU is needed.

usage: packages_test.py COMMAND REPOSITORY [unittest's arguments]
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND, REPOSITORY = (Path(argument).absolute() for argument in sys.argv[1:3])
sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from environments import environment_with  # noqa: E402

PACKAGES = REPOSITORY / ".cukiln-nvrtc-packages"

COMMON = "import hashlib\ndef show(name, code): print(name, len(code), hashlib.sha256(bytes(code)).hexdigest())\n"

BINDINGS = """
from cuda.bindings import nvrtc
def ok(result):
    assert result[0] == 0, result
    return result[1:]
print(nvrtc.nvrtcVersion()[1:], ok(nvrtc.nvrtcGetSupportedArchs()))
for options in ([b"-arch=sm_90"], [b"-arch=compute_90"], [b"-arch=sm_90", b"-dlto"], [b"--optix-ir"]):
    program, = ok(nvrtc.nvrtcCreateProgram(b'#include "a.h"\\ntemplate <class T> __global__ void k(T* x) { *x = A; }',
                                           b"k.cu", 1, [b"#define A 3\\n"], [b"a.h"]))
    ok(nvrtc.nvrtcAddNameExpression(program, b"k<int>"))
    ok(nvrtc.nvrtcCompileProgram(program, len(options), options))
    part = {b"-arch=compute_90": "PTX", b"-dlto": "LTOIR", b"--optix-ir": "OptiXIR"}.get(options[-1], "CUBIN")
    size, = ok(getattr(nvrtc, f"nvrtcGet{part}Size")(program))
    code = b" " * size
    ok(getattr(nvrtc, f"nvrtcGet{part}")(program, code))
    show(part, code)
    print(ok(nvrtc.nvrtcGetLoweredName(program, b"k<int>")))
    ok(nvrtc.nvrtcDestroyProgram(program))
"""

CORE = """
from cuda.core import Program, ProgramOptions
text = 'template <class T> __global__ void k(T* x) { *x = 1; }\\nextern "C" __global__ void p() {}'
for kind, more in (("cubin", {}), ("ltoir", {"link_time_optimization": True})):
    code = Program(text, "c++", ProgramOptions(arch="sm_90", **more)).compile(kind, name_expressions=("k<int>", "p"))
    show(kind, code.code)
    print(code.symbol_mapping)
"""

LINKS = """
from cuda.core import Linker, LinkerOptions, Program, ProgramOptions
texts = ('extern "C" __device__ int f(int); extern "C" __global__ void k(int* x) { *x = f(*x); }',
         'extern "C" __device__ int f(int x) { return 3 * x; }')
parts = [Program(text, "c++", ProgramOptions(arch="sm_90", link_time_optimization=True)).compile("ltoir") for text in texts]
for kind in ("cubin", "ptx"):
    linker = Linker(*parts, options=LinkerOptions(arch="sm_90", link_time_optimization=True, ptx=kind == "ptx"))
    show(kind, linker.link(kind).code)
    print(linker.get_error_log(), linker.get_info_log())
"""

CUPY = """
from cupy.cuda import compiler
compiler._get_arch_for_options_for_nvrtc = lambda arch=None: ("-arch=sm_90", "cubin")  # asks the device
code, names = compiler.compile_using_nvrtc("template <class T> __global__ void k(T* x) { *x = 1; }",
                                           options=("-std=c++17",), arch="90", filename="k.cu",
                                           name_expressions=("k<int>", "k<float>"))
show("cubin", code)
print(names)
"""

TVM_FFI = """
from tvm_ffi.cpp.nvrtc import nvrtc_compile
show("cubin", nvrtc_compile('extern "C" __global__ void p(int* x) { *x = 2; }', name="p.cu", arch="sm_90"))
"""

BROKEN = """
from cuda.core import Program, ProgramOptions
try:
    Program("broken", "c++", ProgramOptions(arch="sm_90")).compile("cubin")
except Exception as error:
    print(type(error).__name__, error)
"""


class Packages(unittest.TestCase):
    python: Path

    @classmethod
    def setUpClass(cls) -> None:
        tested = list(REPOSITORY.glob(".cukiln-cuda-tested/13.5/nvidia/*/lib/libnvrtc.so.13"))
        if not tested or not PACKAGES.is_dir():
            raise FileNotFoundError("NVRTC 13.5 or the packages are missing: run scripts/bootstrap --all-tests")
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.python = environment_with(tested[0], Path(temporary.name) / "environment")

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def run_python(self, text: str, *, through: bool) -> tuple[str, dict]:
        words = [self.python, "-c", COMMON + text]
        if through:
            words = [COMMAND, "--json", "--store", self.folder / "store", "run", "--", *words]
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": str(PACKAGES), "CUKILN_DAEMON": "off",
        }  # fmt: skip
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        if not through:
            return done.stdout, {}
        lines = [line for line in done.stderr.splitlines(keepends=True) if "Warning" not in line]
        return "".join(lines), json.loads(done.stdout)

    def check_same(self, text: str, *, compiled: int, failed: int = 0, linked: int = 0) -> None:
        plain, _ = self.run_python(text, through=False)
        first, totals = self.run_python(text, through=True)
        self.assertEqual(first, plain)
        self.assertEqual((totals["compiled"], totals["failed"], totals["bypassed"]), (compiled, failed, 0), totals)
        self.assertEqual((totals["links"]["compiled"], totals["links"]["bypassed"]), (linked, 0), totals)
        second, totals = self.run_python(text, through=True)
        self.assertEqual(second, plain)
        self.assertEqual((totals["compiled"], totals["hits"], totals["bypassed"]), (0, compiled, 0), totals)
        self.assertEqual((totals["links"]["compiled"], totals["links"]["hits"]), (0, linked), totals)

    def test_cuda_bindings(self) -> None:
        self.check_same(BINDINGS, compiled=4)

    def test_cuda_core(self) -> None:
        self.check_same(CORE, compiled=2)

    def test_cuda_core_links(self) -> None:  # fault 430
        self.check_same(LINKS, compiled=2, linked=2)

    def test_cupy(self) -> None:  # fault 399
        self.check_same(CUPY, compiled=1)

    def test_tvm_ffi(self) -> None:
        self.check_same(TVM_FFI, compiled=1)

    def test_the_example(self) -> None:
        text = (REPOSITORY / "examples/nvrtc_program.py").read_text()
        self.check_same(text, compiled=1)

    def test_errors(self) -> None:
        self.check_same(BROKEN, compiled=0, failed=1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
