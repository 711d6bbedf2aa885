# SPDX-License-Identifier: Apache-2.0
"""libcukiln_nvrtc beside NVRTC itself: a host makes the same calls with either, and prints the same.

usage: dropin_test.py HOST LIBRARY COMMAND REPOSITORY [unittest's arguments]
"""

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from environments import environment_with  # noqa: E402
from line_table import files_of_line_table, section  # noqa: E402

HOST, LIBRARY, COMMAND, REPOSITORY = (Path(argument).absolute() for argument in sys.argv[1:5])

PLAIN = "extern \"C\" __global__ void plain(int* x) { *x = 1; }\n"
TEMPLATES = ("template <class T> __global__ void k(T* x) { *x = 1; }\n__constant__ int cc;\n"
             "namespace n { __global__ void g() {} }\n")
BROKEN = "#warning hi\n__global__ void k() { undefined; }\n"
HEADERS = (
    '#include "h.h"\n#include "sub/d.h"\n#if __has_include("absent.h")\n#error found\n#endif\n'
    '__global__ void k(int* x) { int unused; x[0] = A + B; printf("%s %s", __FILE__, DISK); }\n'
)
IN_MEMORY = "h.h=#define A 1\n#warning in memory\n"
SPELLS_NAMES = """#pragma once
#define CHECK(call) if (!(call)) printf("ERROR: %s, %s:%d", #call, __FILE__, __LINE__)
#define WHERE __builtin_FILE(), __BASE_FILE__ \\
  , __FILE__
#define STRING(x) #x
#define NAMED STRING(__FILE__) // __FILE__
#define CAT(a, b) a ## b
#define PASTED CAT(v, __FILE__) "in __FILE__"
#define DROPPED(x)
#if 0
#ifdef __FILE__
#endif
#endif
DROPPED(__FILE__)
template <class T> __device__ T twice(T x) { return 2 * x; }  /* as __FILE__ */
static __device__ int own;
#define N twice(own)
"""
ON_DISK = "#define B 2\n#define DISK __FILE__\n#warning from disk\n"


def nvrtcs() -> list[Path]:
    found = sorted(REPOSITORY.glob(".cukiln-cuda/nvidia/*/lib/libnvrtc.so.*"))
    return found + sorted(REPOSITORY.glob(".cukiln-cuda-tested/*/nvidia/*/lib/libnvrtc.so.*"))


class Dropin(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        (self.folder / "inc/sub").mkdir(parents=True)
        (self.folder / "inc/sub/d.h").write_text(ON_DISK)
        self.report_file = self.folder / "report"
        self.host = HOST
        self.nvrtc = nvrtcs()[0]
        self.extra: dict[str, str] = {}

    def source(self, text: str) -> str:
        path = self.folder / "text.cu"
        path.write_text(text)
        return str(path)

    def run_host(self, *words: str, dropin: bool, code: int | None = 0) -> str:
        environment = self.environment()
        if dropin:
            self.report_file.write_text("")
            environment |= {"LD_PRELOAD": str(LIBRARY), "CUKILN_STORE": str(self.folder / "store"),
                            "CUKILN_DAEMON": self.extra.get("CUKILN_DAEMON", "off"),
                            "CUKILN_RUN_REPORT": str(self.report_file)}
        done = subprocess.run(
            [self.host, *words], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=300
        )
        if code is not None:
            self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "HOST_OPENS": str(self.nvrtc),
            "LD_LIBRARY_PATH": str(self.nvrtc.parent),  # for the builtins library
            **self.extra,
        }

    def run_command(self, *words: str) -> str:
        environment = self.environment() | {"CUKILN_STORE": str(self.folder / "store"), "CUKILN_DAEMON": "off"}
        done = subprocess.run(
            [COMMAND, *words], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=300
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    def outcomes(self) -> list[str]:
        """What became of each program of the last run: hit, compiled, failed, direct."""
        return [line.split()[0] for line in self.report_file.read_text().splitlines()]

    def check_same(self, *words: str, first: list[str], second: list[str]) -> str:
        plain = self.run_host(*words, dropin=False)
        self.assertEqual(self.run_host(*words, dropin=True), plain)
        self.assertEqual(self.outcomes(), first)
        self.assertEqual(self.run_host(*words, dropin=True), plain)
        self.assertEqual(self.outcomes(), second)
        return plain


class SameResults(Dropin):
    """All that a program returns is NVRTC's, compiled or found."""

    def check_all(self, *words: str) -> None:
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                self.nvrtc = nvrtc
                plain = self.check_same(*words, first=["compiled"], second=["hit"])
                self.assertIn("compile: 0\n", plain)

    def test_cubin_and_its_ptx(self) -> None:  # fault 398
        self.check_all(self.source(TEMPLATES), "a.cu", ":k<int>", ":&cc", ":n::g", ":k<int>", "-arch=sm_90")

    def test_ptx(self) -> None:
        self.check_all(self.source(TEMPLATES), "a.cu", ":k< int >", "--gpu-architecture=compute_90")

    def test_no_options_and_no_name(self) -> None:
        self.check_all(self.source(PLAIN), "-")

    def test_lto_ir(self) -> None:  # fault 398
        self.check_all(self.source(PLAIN), "a.cu", "-arch=sm_90", "-dlto")

    def test_optix_ir(self) -> None:
        self.check_all(self.source(PLAIN), "a.cu", "--optix-ir", "-arch=compute_90")

    def test_paths_in_log_strings_and_line_tables(self) -> None:
        words = (self.source(HEADERS), "src/w.cu", IN_MEMORY, "-Iinc", "-arch=sm_90")
        self.check_all(*words, "-G")
        self.check_all(*words, f"-I{self.folder}/inc", "-lineinfo")

    def test_a_working_folder_that_pwd_names_through_a_link(self) -> None:
        """fault 334: NVRTC writes that name into line tables and LTO-IR."""
        (self.folder / "link").symlink_to(".")
        (self.folder / "inc/f.h").write_text("__device__ inline int f(int x) { return 3 * x; }\n")
        text = self.source('#include "f.h"\nextern "C" __global__ void k(int* x) { *x = f(*x); }\n')
        for option in ("-lineinfo", "-dlto"):  # in PTX: a cubin's line table has times of files
            words = (text, "k.cu", "-Iinc", "-arch=compute_90", option)
            results = []
            for name in ("link", "inc", "link/link/"):  # the second is another folder: NVRTC takes the real one
                self.extra["PWD"] = f"{self.folder}/{name}"
                plain = self.run_host(*words, dropin=False)
                for outcome in ("compiled", "hit"):
                    self.assertEqual(self.run_host(*words, dropin=True), plain, (option, name))
                    self.assertEqual(self.outcomes()[0], outcome, (option, name))
                results.append(plain)
            self.assertEqual(len(set(results)), 3)

    def test_blanks_around_a_folder(self) -> None:
        """fault 318: NVRTC drops them."""
        (self.folder / "inc/n.h").write_text("#define N 7\n")
        text = self.source('#include "n.h"\nextern "C" __global__ void k(int* x) { *x = N; }\n')
        self.check_same(text, "a.cu", f"-I{self.folder}/inc \t", "-arch=sm_90", first=["compiled"], second=["hit"])

    def test_an_instance_by_the_name_of_the_file(self) -> None:
        """fault 214"""
        text = self.source("template <int n> __global__ void k(int* x) { *x = n; }\n")
        for place in ("p", "longer"):
            words = (text, f"{self.folder}/{place}.cu", "-arch=compute_90", ":k<sizeof(__BASE_FILE__)>")
            self.check_same(*words, first=["compiled"], second=["hit"])

    def test_folders_that_do_not_show(self) -> None:
        """As CuPy: a temporary folder for each program. fault 214: only what shows it is compiled again."""
        quiet = '#include "sub/q.h"\n__global__ void k(int* x) { int unused; x[0] = Q; }\n'
        loud = quiet.replace("= Q", "= (long)FOLDER[0]; printf(FOLDER)")
        for place in ("one", "two"):
            for text in (self.folder / place, self.folder / place / "inc/sub"):
                text.mkdir(parents=True)
        for kind in ("sm_90", "compute_90"):
            for text, second in ((quiet, "hit"), (loud, "compiled")):
                path = self.source(text)
                for place in ("one", "two"):
                    header = "#define Q 7\n#warning q\n" + ("#define FOLDER __FILE__\n" if text == loud else "")
                    (self.folder / place / "inc/sub/q.h").write_text(header)
                for place, outcome in (("one", "compiled"), ("two", second), ("two", "hit")):
                    words = (path, f"{self.folder}/{place}/p.cu", f"-I{self.folder}/{place}/inc", f"-arch={kind}")
                    plain = self.run_host(*words, dropin=False)
                    self.assertIn(f"{self.folder}/{place}/inc/sub/q.h", plain)
                    self.assertEqual(self.run_host(*words, dropin=True), plain)
                    self.assertEqual(self.outcomes()[0], outcome, (kind, text, place))

    def test_what_is_computed_from_the_name_of_a_header(self) -> None:
        """fault 214, fault 333: the result does not show the folder, and depends on it."""
        for header, value in (
            ("n.h", "sizeof(__FILE__)"),
            ("n.h", "sizeof(__BASE_FILE__)"),
            # Folders that CUDA's own headers have, too.
            ("cub/n.h", "__FILE__[sizeof(__FILE__) - 10]"),
            ("thrust/n.h", "sizeof(__FILE__)"),
            ("cuda/std/n.h", "sizeof(__FILE__) + 1"),
        ):
            text = self.source(f'#include "{header}"\nextern "C" __global__ void k(int* x) {{ *x = N; }}\n')
            for place in ("one", "another"):
                inc = self.folder / place / "inc"
                (inc / header).parent.mkdir(parents=True, exist_ok=True)
                (inc / header).write_text(f"// (c) NVIDIA\n#define N {value}\n")
                for outcome in ("compiled", "hit"):
                    words = (text, f"{self.folder}/{place}/p.cu", f"-I{inc}", "-arch=compute_90")
                    self.assertEqual(self.run_host(*words, dropin=True), self.run_host(*words, dropin=False))
                    self.assertEqual(self.outcomes()[0], outcome, (value, place))

    def compile_in_two_places(self, header: str, *options: str, second: str, code: int = 0) -> None:
        """`header` in a folder that is then copied, with the results of NVRTC in each."""
        text = self.source('#include "n.h"\nextern "C" __global__ void k(int* x) { *x = N; }\n')
        for place, first in (("one", {0: "compiled", 6: "failed"}[code]), ("another", second)):
            inc = self.folder / place / "inc"
            inc.mkdir(parents=True, exist_ok=True)
            (inc / "n.h").write_text(header)
            (inc / " __FILE__").touch()
            words = (text, f"{self.folder}/{place}/p.cu", f"-I{inc}", *options)
            plain = self.run_host(*words, dropin=False)
            self.assertIn(f"compile: {code}\n", plain)
            for outcome in (first, "hit" if code == 0 else "failed"):
                self.assertEqual(self.run_host(*words, dropin=True), plain, header)
                self.assertEqual(self.outcomes()[0], outcome, (header, place))

    def test_names_of_headers_that_nobody_uses(self) -> None:
        """fault 408: one entry, which serves a copy of the folder too."""
        options = (["-arch=compute_90"], ["-arch=sm_90", "-rdc=true"], ["-arch=sm_90", "-std=c++14"])
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                self.nvrtc = nvrtc
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                for each in options:
                    self.compile_in_two_places(SPELLS_NAMES, *each, second="hit")
                outputs = [entry["output"] for entry in self.entries()]
                self.assertEqual(sorted(outputs), ["cubin"] * 2 + ["ptx"] * 3)
                self.compile_in_two_places(SPELLS_NAMES, "-arch=compute_90", "-lineinfo", second="compiled")

    def entries(self) -> list[dict]:
        keys = [entry["key"] for entry in json.loads(self.run_command("--json", "ls"))["entries"]]
        return [json.loads(self.run_command("--json", "show", key))["request"] for key in keys]

    def test_names_of_headers_that_are_used_in_some_way(self) -> None:
        """fault 408: what a macro does with the name, NVRTC's own way or not, is done with the real one."""
        for header in (
            "#ifdef __FILE__\n#define N 1\n#else\n#define N 2\n#endif\n",
            "#define D defined(__FILE__)\n#if D\n#define N 1\n#else\n#define N 2\n#endif\n",
            '#if __has_include(" __FILE__")\n#define N 1\n#else\n#define N 2\n#endif\n',
            "#define S(x) #x\n#define N S(__FILE__)[2]\n",
            "#define S(...) #__VA_ARGS__\n#define N S(1, __FILE__)[5]\n",
            "#define S(x) L ## #x\n#define N S(__FILE__)[3]\n",
            "#define S(x) R ## #x\n#define N S((__FILE__))[3]\n",
            "#define S(x) R/**/## #x\n#define N S((__FILE__))[3]\n",  # fault 411
            '#define CAT(a, b) a##b\n#define N CAT(R, "(a (__FILE__)b)")[4]\n',
            "#warning see /cukiln/src/x\n#define N 1\n",
            '#define N R"(a __FILE__)"[4]\n',
            '#define N "a __FILE__"[4]\n',
            '#define N "\\__FILE__"[1]\n',
            "#define CAT(a, b) a##b\n__constant__ int v__FILE__ = 3;\n#define N CAT(v, __FILE__)\n",
            "#define CAT(a, b) a##b\n__constant__ int CAT(v, __FILE__) = 3;\n#define N 4\n",
            "#define N sizeof(__FI\\\nLE__)\n",
            "__device__ constexpr int f(const char* n = __builtin_FILE()) { return n[2]; }\n#define N f()\n",
            "template <class T> __device__ int f(T) { return sizeof(__FILE__); }\n#define N 1\n",
            "#define F __FILE__\nstatic_assert(sizeof(F) != 1, F);\n#define N 1\n",
            '#line 7 " __FILE__"\n#define N __LINE__\n',
            "#warning in __FILE__\n#define N 1\n",
            "#pragma something __FILE__\n#define N 1\n",
        ):
            self.compile_in_two_places(header, "-arch=compute_90", second="compiled")
        for header in (
            "#define F __FILE__\n#if F\n#endif\n#define N 1\n",
            "#define F __FILE__\n#define N undefined\n",
            "#define N undefined(__FILE__)\n",
        ):
            self.compile_in_two_places(header, "-arch=compute_90", second="failed", code=6)

    def test_headers_of_cuda_in_another_folder(self) -> None:
        """fault 333: they name their files in messages only, so the program is compiled once."""
        text = self.source("#include <cub/block/block_reduce.cuh>\n#include <thrust/tuple.h>\n" + PLAIN)
        (cccl,) = REPOSITORY.glob(".cukiln-cuda/nvidia/*/include/cccl")
        for place, outcome in (("one", "compiled"), ("another", "hit")):
            (self.folder / place).mkdir()
            for name, target in (("cccl", cccl), ("cuda", cccl.parent)):
                (self.folder / place / name).symlink_to(target)
            words = [f"-I{self.folder}/{place}/{name}" for name in ("cccl", "cuda")]
            self.run_host(text, "p.cu", *words, "-arch=compute_90", dropin=True)
            self.assertEqual(self.outcomes(), [outcome])

    def test_precompiled_headers(self) -> None:
        """fault 409: they change no code, so the entry is that of the program without them; none is written or read."""
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                self.nvrtc = nvrtc
                text = self.source('#include "d.h"\nextern "C" __global__ void k(int* x) { *x = B; }\n')
                words = (text, "a.cu", "-Iinc/sub", "-arch=sm_90", ":k")
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                plain = self.run_host(*words, dropin=False)
                outcome = "compiled"
                for options in (["--pch"], [" -pch", f"--pch-dir={self.folder}", "--pch-messages=false"],
                                ["--create-pch=d.pch", "--pch-verbose=true"], ["-use-pch=d.pch"], []):  # fmt: skip
                    self.assertEqual(self.run_host(*words, *options, dropin=True), plain, options)
                    self.assertEqual(self.outcomes()[0], outcome, options)
                    outcome = "hit"
                # In NVRTC itself, without a header that an earlier program did not create.
                dated = (self.source('#ifdef __DATE__\n' + PLAIN + "#endif\n"), "a.cu", "-arch=sm_90")
                self.assertEqual(self.run_host(*dated, "--use-pch=d.pch", dropin=True), self.run_host(*dated, dropin=False))
        self.assertEqual(list(self.folder.rglob("*.pch")), [])

    def test_a_program_compiled_again(self) -> None:
        self.extra["AGAIN"] = "1"
        words = (self.source(TEMPLATES), "a.cu", ":k<int>", "-arch=sm_90")
        self.check_same(*words, first=["compiled", "hit", "failed"], second=["hit", "hit", "failed"])

    def test_a_result_stays_when_nvrtc_itself_refuses_the_next_compile(self) -> None:
        words = (self.source(TEMPLATES), "a.cu", ":k<int>", "-arch=sm_90")
        for then in ("-DTIME=__DATE__ }", "--time=/nonexistent/x", "-arch=sm_19"):
            self.extra["THEN"] = then
            for nvrtc in nvrtcs():
                with self.subTest(then=then, nvrtc=nvrtc):
                    self.nvrtc = nvrtc
                    plain = self.run_host(*words, dropin=False)
                    self.assertEqual(self.run_host(*words, dropin=True), plain)
                    self.assertEqual(self.outcomes()[-1], "bypassed")


# Compiles one program, and takes the parts that are named, in this order.
TAKES = """
import ctypes as c, hashlib, sys
nvrtc = c.CDLL(sys.argv[1])
program, size = c.c_void_p(), c.c_size_t()
text = open(sys.argv[2], "rb").read()
options = [word.encode() for word in sys.argv[4:]]
print(nvrtc.nvrtcCreateProgram(c.byref(program), text, b"k.cu", 0, None, None))
print(nvrtc.nvrtcCompileProgram(program, len(options), (c.c_char_p * len(options))(*options)))
for part in sys.argv[3].split(","):
    print(part, getattr(nvrtc, f"nvrtcGet{part}Size")(program, c.byref(size)), size.value)
    taken = c.create_string_buffer(size.value)
    print(getattr(nvrtc, f"nvrtcGet{part}")(program, taken), hashlib.sha256(taken.raw).hexdigest())
"""


class CubinAndPtx(Dropin):
    """fault 420: NVRTC has the PTX of a cubin from one compile."""

    def check_taken(self, parts: str, *options: str, outcomes: list[str], kinds: list[str]) -> None:
        self.host = Path(sys.executable)
        words = ("-c", TAKES, str(self.nvrtc), str(self.folder / "text.cu"), parts, *options)
        self.assertEqual(self.run_host(*words, dropin=True), self.run_host(*words, dropin=False))
        self.assertEqual(self.outcomes(), outcomes)
        self.assertEqual(self.stored(), kinds)

    def stored(self) -> list[str]:
        def command(*words: str) -> dict:
            return json.loads(subprocess.check_output([COMMAND, "--store", self.folder / "store", "--json", *words]))

        return sorted(command("show", entry["key"])["request"]["output"] for entry in command("ls")["entries"])

    def test_ptx_is_stored_when_it_is_asked_for(self) -> None:
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                self.nvrtc = nvrtc
                self.source(TEMPLATES + PLAIN)
                self.check_taken("CUBIN", "-arch=sm_90", outcomes=["compiled"], kinds=["cubin"])
                # The compile's PTX has gone with its program.
                self.check_taken("CUBIN,PTX", "-arch=sm_90", outcomes=["hit", "compiled"], kinds=["cubin", "ptx"])
                self.check_taken("PTX,CUBIN", "-arch=sm_80", outcomes=["compiled"], kinds=["cubin"] * 2 + ["ptx"] * 2)
                self.check_taken("PTX", "-arch=sm_80", outcomes=["hit"], kinds=["cubin"] * 2 + ["ptx"] * 2)

    def test_a_program_that_shows_its_folder(self) -> None:
        """It is compiled twice, with a hidden folder and with the real one, and the PTX of both is kept."""
        (self.folder / "inc/n.h").write_text("#define N sizeof(__FILE__)\n")
        self.source('#include "n.h"\nextern "C" __global__ void k(int* x) { *x = N; }\n')
        options = (f"-I{self.folder}/inc", "-arch=sm_90")
        self.check_taken("CUBIN,PTX", *options, outcomes=["compiled"], kinds=["cubin"] * 2 + ["ptx"] * 2)
        self.check_taken("CUBIN,PTX", *options, outcomes=["hit"], kinds=["cubin"] * 2 + ["ptx"] * 2)

    def test_without_a_store(self) -> None:
        self.extra["CUKILN_DISABLE_STORE"] = "1"
        self.source(PLAIN)
        self.host = Path(sys.executable)
        words = ("-c", TAKES, str(self.nvrtc), str(self.folder / "text.cu"), "CUBIN,PTX", "-arch=sm_90")
        self.assertEqual(self.run_host(*words, dropin=True), self.run_host(*words, dropin=False))
        self.assertEqual(self.outcomes(), ["compiled"])


# Calls NVRTC for one program, k.cu, and Python between: "c=OPTIONS", "name=EXPRESSION", "py:STATEMENT", or a part.
CALLS = """
import ctypes as c, hashlib, os, sys
nvrtc = c.CDLL(sys.argv[1])
program, size = c.c_void_p(), c.c_size_t()
print(nvrtc.nvrtcCreateProgram(c.byref(program), open(sys.argv[2], "rb").read(), b"k.cu", 0, None, None))
for step in sys.argv[3:]:
    if step.startswith("c="):
        options = [word.encode() for word in step[2:].split(",")]
        print(nvrtc.nvrtcCompileProgram(program, len(options), (c.c_char_p * len(options))(*options)))
    elif step.startswith("name="):
        print(nvrtc.nvrtcAddNameExpression(program, step[5:].encode()))
    elif step.startswith("py:"):
        exec(step[3:])
    else:
        print(step, getattr(nvrtc, f"nvrtcGet{step}Size")(program, c.byref(size)), size.value)
        taken = c.create_string_buffer(size.value)
        print(getattr(nvrtc, f"nvrtcGet{step}")(program, taken), hashlib.sha256(taken.raw).hexdigest())
"""


class Calls(Dropin):
    """What one program returns after several calls is what NVRTC returns, in a first and in a second process."""

    def check_calls(self, text: str, *steps: str, header: str = "#define N 7\n") -> None:
        self.host = Path(sys.executable)
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc, steps=steps):
                self.nvrtc = nvrtc
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                words = ("-c", CALLS, str(nvrtc), self.source(text), *steps)
                got = []
                for dropin in (False, True, True):
                    (self.folder / "inc/n.h").write_text(header)
                    got.append(self.run_host(*words, dropin=dropin))
                self.assertEqual(got[1:], got[:1] * 2)

    def test_ptx_is_that_of_the_cubins_files(self) -> None:
        """fault 316: whatever is in their places when it is asked for."""
        text = '#include "n.h"\nextern "C" __global__ void k(int* x) { *x = N; }\n'
        for step in ("open('inc/n.h', 'w').write('#define N 8')", "os.unlink('inc/n.h')", "os.chdir('/')"):
            self.check_calls(text, "c=-Iinc,-arch=sm_90", "py:" + step, "CUBIN", "PTX")

    def test_results_of_each_kind_stay(self) -> None:
        """fault 317"""
        text = 'extern "C" __global__ void k() {\n#ifdef BAD\nasm("nonsense;");\n#endif\n}\n'
        self.check_calls(text, "c=-arch=sm_90", "c=-arch=sm_90,-dlto", "c=-arch=sm_19", "CUBIN", "LTOIR")
        self.check_calls(text, "c=-dlto,-arch=sm_90", "c=-arch=sm_90", "c=-DBAD,-arch=sm_90", "PTX", "LTOIR")
        self.check_calls("#ifdef BAD\n#error ptxas\n#endif\n" + text, "c=-arch=sm_90", "c=-DBAD,-arch=sm_90", "CUBIN")

    def test_names_come_before_the_first_compile(self) -> None:
        self.check_calls('extern "C" __global__ void k() {}\n', "c=-arch=sm_90", "name=k", "c=-arch=sm_19", "name=k")


OPENED = "py:print(sorted({line.split('/')[-1].strip() for line in open('/proc/self/maps') if '/libnvrtc' in line}))"
VERSION = "py:a, b = c.c_int(), c.c_int(); print({}.nvrtcVersion(c.byref(a), c.byref(b)), a.value, b.value)"


class LateOpening(Dropin):
    """NVRTC is opened when its functions are needed, and its builtins library when it compiles."""

    def setUp(self) -> None:
        super().setUp()
        self.host = Path(sys.executable)
        self.steps = ("c=-arch=sm_90", "CUBIN")
        self.direct = ("c=-arch=sm_90,-DT=__DATE__", "CUBIN")

    def calls(self, library: Path, *steps: str, dropin: bool = True) -> list[str]:
        return self.run_host("-c", CALLS, str(library), self.source(PLAIN), *steps, dropin=dropin).splitlines()

    def test_by_the_host(self) -> None:
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                self.nvrtc = nvrtc
                plain = self.calls(nvrtc, *self.steps, *self.direct, dropin=False)
                for outcome in ("compiled", "hit"):
                    got = self.calls(nvrtc, *self.steps, OPENED, *self.direct, OPENED)
                    self.assertEqual(self.outcomes()[0], outcome)
                    self.assertEqual(got.pop(), str(sorted((self.builtins().name, nvrtc.name))))
                    self.assertEqual(got.pop(4), str([nvrtc.name]))
                    self.assertEqual(got, plain)

    def builtins(self) -> Path:
        return next(self.nvrtc.parent.glob("libnvrtc-builtins.so.*"))

    def test_by_nobody_before_it_is_needed(self) -> None:
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                self.nvrtc = nvrtc
                plain = self.calls(nvrtc, *self.steps, *self.direct, VERSION.format("nvrtc"), dropin=False)
                self.extra["CUKILN_NVRTC_LIBRARY"] = str(nvrtc)
                for outcome in ("compiled", "hit"):
                    got = self.calls(LIBRARY, *self.steps, OPENED, *self.direct, OPENED, VERSION.format("nvrtc"))
                    self.assertEqual(self.outcomes()[0], outcome)
                    self.assertEqual(got.pop(4), "[]")
                    self.assertEqual(got.pop(7), str(sorted((self.builtins().name, nvrtc.name))))
                    self.assertEqual(got, plain)

    def test_another_version_is_the_hosts_own(self) -> None:
        """It is not the real one, although that was not opened yet."""
        self.nvrtc, other = nvrtcs()[:2]
        self.extra["CUKILN_NVRTC_LIBRARY"] = str(self.nvrtc)
        opens = f"py:other = c.CDLL('{other}'); same = c.CDLL('{self.nvrtc}')"
        versions = [VERSION.format(name) for name in ("nvrtc", "same", "other")]
        got = self.calls(LIBRARY, *self.steps, opens, *versions)[-3:]
        expected = [self.calls(library, VERSION.format("nvrtc"), dropin=False)[-1] for library in (self.nvrtc, self.nvrtc, other)]
        self.assertEqual(got, expected)
        self.assertNotEqual(got[0], got[2])

    def test_one_that_cannot_be_opened(self) -> None:
        wrong = self.folder / "libnvrtc.so.13"
        wrong.write_text("no library")
        self.extra["CUKILN_NVRTC_LIBRARY"] = str(wrong)
        self.assertEqual(self.calls(LIBRARY, "c=-arch=sm_90", "c=-dlto", VERSION.format("nvrtc")), ["0", "11", "11", "11 0 0"])


class Failures(Dropin):
    """fault 208: codes and logs of what does not compile."""

    def check_failed(self, *words: str, count: int = 1) -> str:
        return self.check_same(*words, first=["failed"] * count, second=["failed"] * count)

    def check_remembered(self, *words: str) -> str:
        """fault 412: another process has the same code and log, and compiles nothing."""
        for nvrtc in nvrtcs():
            self.nvrtc = nvrtc
            with self.subTest(nvrtc=nvrtc):
                plain = self.check_failed(*words)
                with mock.patch.dict(self.extra, CUKILN_OFFLINE="1"):
                    self.assertEqual(self.run_host(*words, dropin=True), plain)
                self.assertEqual(self.outcomes(), ["failed"])
        return plain

    def counters(self, *words: str) -> dict:
        done = subprocess.run([COMMAND, "--store", self.folder / "store", "--json", *(words or ["stats"])], check=True,
                              env=self.environment(), capture_output=True, text=True)  # fmt: skip
        return json.loads(done.stdout)

    def test_broken_text(self) -> None:
        words = (self.source(BROKEN), "a.cu", ":k", "-arch=sm_90")
        plain = self.check_remembered(*words)
        self.extra["AGAIN"] = "1"
        self.check_failed(*words, count=3)
        self.assertIn("compile: 6\n", plain)
        self.assertIn('identifier "undefined" is undefined', plain)

    def test_name_expression_of_nothing(self) -> None:
        self.assertIn("compile: 6\n", self.check_remembered(self.source(PLAIN), "a.cu", ":nothing", "-arch=sm_90"))

    def test_missing_header(self) -> None:
        plain = self.check_remembered(self.source(HEADERS), "a.cu", "-arch=sm_90")
        self.assertIn("h.h", plain)

    def test_name_of_a_folder(self) -> None:
        (self.folder / "inc/folder.h").mkdir()
        plain = self.check_remembered(self.source('#include "folder.h"\n' + PLAIN), "a.cu", "-Iinc", "-arch=sm_90")
        self.assertIn('"folder.h": is a directory', plain)

    def test_kinds_of_one_program_have_one_failure(self) -> None:
        text = self.source(BROKEN)
        for options in (("-arch=compute_90",), ("-arch=compute_90", "-dlto"), ("-arch=compute_90", "-G")):
            self.check_remembered(text, "a.cu", *options)

    def test_counters(self) -> None:
        words = (self.source(BROKEN), "a.cu", "-arch=sm_90")
        for hits in range(3):
            self.run_host(*words, dropin=True)
            now = self.counters()
            self.assertEqual(now["failures"], {"hits": hits, "stored": 1, "evicted": 0})
            self.assertEqual((now["failed"], now["compiles"], now["entries"], now["hits"], now["misses"]), (1, 0, 0, 0, 1))
        self.assertEqual(self.counters("ls")["entries"], [])
        self.assertEqual(self.counters("verify"), self.counters("verify") | {"checked": 1, "blobs": 0, "damaged": 0})

    def test_a_header_that_appears(self) -> None:
        """fault 413"""
        words = (self.source('#include "new.h"\n' + PLAIN), "a.cu", "-Iinc", "-Iinc/sub", "-arch=compute_90")
        self.check_failed(*words)
        for place in ("inc/sub", "inc"):  # the second is found before the first
            (self.folder / place / "new.h").write_text(f"#warning {place}\n")
            self.check_same(*words, first=["compiled"], second=["hit"])
            (self.folder / place / "new.h").write_text("#error\n")
            self.check_failed(*words)
        self.assertEqual(self.counters()["failures"]["stored"], 3)

    def test_a_damaged_row(self) -> None:
        """fault 413"""
        words = (self.source(BROKEN), "a.cu", "-arch=sm_90")
        for number, damage in enumerate((
            "UPDATE payload SET data=CAST(replace(CAST(data AS TEXT), 'undefined', 'undefinee') AS BLOB)",
            "UPDATE payload SET data=x''", "DELETE FROM payload", "UPDATE object SET details=x'00'",
            "UPDATE object SET kind=''", "UPDATE request SET tree=x'07'", "UPDATE object SET bytes=7",
        )):  # fmt: skip
            with self.subTest(damage):
                self.check_failed(*words)
                self.assertEqual(self.counters()["failed"], number + 1)
                (database,) = (self.folder / "store").glob("v6/gen-*/store.db")
                with contextlib.closing(sqlite3.connect(database)) as store, store:
                    self.assertEqual(store.execute(damage).rowcount, 1)
        self.check_failed(*words)
        self.assertEqual(self.counters("verify")["damaged"], 0)

    def test_what_is_not_the_texts_fault_is_tried_again(self) -> None:
        """fault 414"""
        worker = self.folder / "worker"
        worker.write_text("#!/bin/sh\nkill -9 $$\n")
        worker.chmod(0o700)
        with mock.patch.dict(self.extra, CUKILN_WORKER=str(worker)):
            self.run_host(self.source(BROKEN), "a.cu", "-arch=sm_90", dropin=True)
        self.assertEqual(self.outcomes()[0], "bypassed")
        nonsense = self.source('extern "C" __global__ void k(int* x) { asm volatile("nonsense;"); }\n')
        self.run_host(nonsense, "a.cu", "-arch=sm_90", dropin=True)
        self.assertEqual(self.outcomes()[0], "failed")
        self.assertEqual(self.counters()["failures"]["stored"], 0)
        self.check_failed(self.source(BROKEN), "a.cu", "-arch=sm_90")
        self.assertEqual(self.counters()["failures"], {"hits": 1, "stored": 1, "evicted": 0})

    def test_nobody_else_gets_it(self) -> None:
        """fault 418"""
        self.check_failed(self.source(BROKEN), "a.cu", "-arch=sm_90")
        self.run_host(self.source(PLAIN), "a.cu", "-arch=compute_90", dropin=True)
        (entry,) = self.counters("ls")["entries"]
        (database,) = (self.folder / "store").glob("v6/gen-*/store.db")
        with contextlib.closing(sqlite3.connect(database)) as store:
            ((name,),) = store.execute("SELECT lower(hex(name)) FROM object WHERE kind<>''").fetchall()
        for command in (("show", name), ("export", "-o", "named.ckb", name), ("rm", name)):
            done = subprocess.run([COMMAND, "--store", self.folder / "store", *command], cwd=self.folder, check=False,
                                  env=self.environment(), capture_output=True, text=True)  # fmt: skip
            self.assertNotEqual(done.returncode, 0, command)
        self.assertFalse((self.folder / "named.ckb").exists())
        exported = self.counters("export", "-o", str(self.folder / "all.ckb"))
        self.assertEqual((exported["entries"], exported["blobs"]), (1, 0))
        self.assertNotIn(bytes.fromhex(name), (self.folder / "all.ckb").read_bytes())
        self.assertIn(bytes.fromhex(entry["key"]), (self.folder / "all.ckb").read_bytes())

    def test_a_loader_compiles_again(self) -> None:
        """fault 419"""
        text = self.source(BROKEN)
        self.check_failed(text, "text.cu", "-arch=sm_90")
        for count in (2, 3):
            done = subprocess.run([COMMAND, "--store", self.folder / "store", "compile", "--arch", "sm_90", text],
                                  env=self.environment() | {"CUKILN_DAEMON": "off", "CUKILN_NVRTC_LIBRARY": str(self.nvrtc)},
                                  check=False, capture_output=True, text=True)  # fmt: skip
            self.assertIn('identifier "undefined" is undefined', done.stderr)
            self.assertEqual(self.counters()["failed"], count)
        self.assertEqual(self.counters()["failures"], {"hits": 1, "stored": 1, "evicted": 0})

    def test_a_program_that_fails_under_the_hidden_name_of_a_folder_only(self) -> None:
        """fault 214: a header may compute from its name."""
        (self.folder / "inc/n.h").write_text(f'static_assert(sizeof(__FILE__) == {len(f"{self.folder}/inc/n.h") + 1}, "no");\n')
        words = (self.source('#include "n.h"\n' + PLAIN), f"{self.folder}/p.cu", f"-I{self.folder}/inc", "-arch=compute_90")
        self.assertIn("compile: 0\n", self.check_same(*words, first=["compiled"], second=["hit"]))
        (self.folder / "inc/n.h").write_text('static_assert(sizeof(__FILE__) == 1, "no");\n')
        self.check_failed(*words)

    def test_unknown_option_and_target(self) -> None:
        self.assertIn("compile: 5\n", self.check_failed(self.source(PLAIN), "a.cu", "--nothing"))
        # No worker is asked for a target that no NVRTC knows.
        plain = self.check_same(self.source(PLAIN), "a.cu", "-arch=sm_19", first=["bypassed"], second=["bypassed"])
        self.assertIn("compile: 5\n", plain)

    def test_an_option_that_is_a_dash(self) -> None:
        for option in ("-", "--"):
            self.assertIn("compile: 5\n", self.check_failed(self.source(PLAIN), "a.cu", option))

    def test_what_only_the_assembler_refuses(self) -> None:
        """There is PTX, and the log has a zero more than others."""
        text = self.source('extern "C" __global__ void k(int* x) { asm volatile("nonsense;"); }\n#warning w\n')
        plain = self.check_same(text, "a.cu", "-arch=sm_90", first=["failed", "bypassed"], second=["failed", "bypassed"])
        self.assertIn("compile: 6\n", plain)
        self.assertIn("ptxas", plain)

    def test_what_the_assembler_refuses_after_a_success(self) -> None:
        """fault 345: there is no cubin, of the success neither."""
        text = 'extern "C" __global__ void k(int* x) {\n#ifdef BAD\n  asm volatile("nonsense;");\n#endif\n}\n'
        self.extra["THEN"] = "-DBAD"
        words = (self.source(text), "a.cu", "-arch=sm_90")
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                self.nvrtc = nvrtc
                plain = self.run_host(*words, dropin=False)
                self.assertIn("then: 6\n", plain)
                self.assertEqual(self.run_host(*words, dropin=True), plain)

    def test_huge_log(self) -> None:
        """fault 209"""
        text = "".join(f"#warning {i} {'x' * 200}\n" for i in range(5000)) + PLAIN
        for nvrtc in nvrtcs()[:1]:
            self.nvrtc = nvrtc
            plain = self.check_same(self.source(text), "a.cu", "-arch=compute_90", first=["compiled"], second=["hit"])
            self.assertGreater(len(plain), 1_000_000)

    def test_hostile_calls(self) -> None:
        """fault 205"""
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                self.nvrtc = nvrtc
                plain = self.run_host("hostile", dropin=False)
                self.assertEqual(self.run_host("hostile", dropin=True), plain)

    def test_handles_of_destroyed_programs_are_no_programs(self) -> None:
        """fault 206"""
        codes = [line.rsplit(": ", 1)[1] for line in self.run_host("destroyed", dropin=True).splitlines()]
        self.assertEqual(codes, ["0", "4", "4", "4", "4"])

    def test_threads_on_one_program(self) -> None:
        """fault 207"""
        self.assertIn("0 threads failed", self.run_host("threads", dropin=True))


class OptionLists(Dropin):
    """fault 361: options are read as the NVRTC in use reads them, however they are written."""

    SPACES = ("", "", "", "", " ", "\t", "\n ", "\v\f\r")
    VALUES = ("sm_90", "sm_80", "sm_75", "sm_90a", "sm_100", "compute_90", "compute_80", "compute_100")
    ODD_VALUES = ("sm_19", "sm_090", "SM_90", "90", "native", "lto_90", "sm_90,sm_80", "")
    OTHERS = ("-dlto", "--dlink-time-opt", "--optix-ir", "-optix-ir", "--enable-tile", "--tile-only", "-lineinfo", "-G",
              "-rdc=true", "--relocatable-device-code=false", "-dc", "-std=c++17", "--std=c++20", "-fmad=false", "-w",
              "--use_fast_math", "-DA=1", "-I.", "--maxrregcount=32")  # fmt: skip
    ODD_OTHERS = ("-D", "-I", "-include", "-dlto=true", "--dlto", "-optix-ir=false", "-arch", "--gpu-architecture", "", " ",
                  "-", "--", "nonsense", "k.cu", "-dw", "--arch=sm_90", "-arch =sm_90", "-arch= sm_90")  # fmt: skip

    def option(self, chance: random.Random) -> list[str]:
        before, after = chance.choice(self.SPACES), chance.choice(self.SPACES)
        is_odd = chance.random() < 0.1
        if chance.random() < 0.45:
            return [before + chance.choice(self.ODD_OTHERS if is_odd else self.OTHERS) + after]
        name = chance.choice(("-arch", "--gpu-architecture"))
        value = chance.choice(self.ODD_VALUES if is_odd else self.VALUES)
        if chance.random() < 0.7:
            return [f"{before}{name}={value}{after}"]
        return [before + name, chance.choice(self.SPACES) + value + after]

    def options(self, chance: random.Random) -> list[str]:
        return [word for _ in range(chance.choice((1, 2, 2, 3))) for word in self.option(chance)]

    def check_lists(self, nvrtc: Path, lists: list[list[str]]) -> str:
        self.nvrtc = nvrtc
        file = self.folder / "lists"
        file.write_text("".join("".join(f"{word}\x1f" for word in one) + "\x1e" for one in lists), newline="")
        self.extra = {"PART_TOO": "TileIR"} if "13.5" in str(nvrtc) else {}
        plain = self.run_host("lists", str(file), dropin=False)
        through = self.run_host("lists", str(file), dropin=True)
        self.assertIn("compiled", self.outcomes())
        for expected, found in zip(plain.split("list "), through.split("list "), strict=True):
            number = expected.split(":")[0]
            self.assertEqual(found, expected, lists[int(number)] if number else "")
        return plain

    def test_some(self) -> None:
        lists = [
            ["-arch=sm_90", "-arch=compute_90"], ["-arch=compute_80", "-arch=sm_90"],
            ["-arch=sm_90", "--gpu-architecture", "compute_80"], [" -arch=sm_90"], ["\t-arch=sm_90 "], ["\n-arch", " sm_90"],
            ["-arch=sm_90", " -dlto"], ["-arch=sm_90", "--enable-tile"], ["-arch=sm_90", " --tile-only"],
        ]  # fmt: skip
        for nvrtc in nvrtcs():
            with self.subTest(nvrtc=nvrtc):
                plain = self.check_lists(nvrtc, lists)
                if "13.5" in str(nvrtc):
                    self.assertIn("TileIR: 0 289", plain)

    def test_random_ones(self) -> None:
        for seed, nvrtc in enumerate(nvrtcs()):
            with self.subTest(nvrtc=nvrtc):
                chance = random.Random(seed)
                self.check_lists(nvrtc, [self.options(chance) for _ in range(30)])


class Sources(Dropin):
    """export --sources: each file that a line table names is where it points."""

    HEADER = "__device__ inline void twice(int* x) {\n  atomicAdd(x, *x);\n}\n"
    TEXT = '#include "sub/t.h"\nextern "C" __global__ void plain(int* x) {\n  twice(x);\n}\n'

    def check_laid(self, option: str) -> bytes:
        """Returns the cubin."""
        (self.folder / "inc/sub/t.h").write_text(self.HEADER)
        words = (self.source(self.TEXT), "w.cu", "-Iinc", "-arch=sm_90", option)
        self.run_host(*words, dropin=True)
        entries = json.loads(self.run_command("--json", "ls"))["entries"]
        shown = {one["key"]: json.loads(self.run_command("--json", "show", one["key"])) for one in entries}
        (key,) = [key for key, entry in shown.items()
                  if entry["request"]["output"] == "cubin" and option in entry["request"]["arguments"]]  # fmt: skip
        self.assertNotIn("compiled without", self.run_command("export", "--sources", "laid", key))
        self.run_command("show", key, "--cubin", "-o", "k.cubin")
        cubin = (self.folder / "k.cubin").read_bytes()
        named = {os.path.normpath(path) for path in files_of_line_table(cubin)}
        self.assertEqual(named, {f"{self.folder}/w.cu", f"{self.folder}/inc/sub/t.h"})
        laid = self.folder / f"laid{self.folder}"
        self.assertEqual((laid / "w.cu").read_text(), self.TEXT)
        self.assertEqual((laid / "inc/sub/t.h").read_text(), self.HEADER)
        shutil.rmtree(self.folder / "laid")
        return cubin

    def test_with_line_information(self) -> None:
        for option in ("-lineinfo", "--generate-line-info"):
            with self.subTest(option=option):
                self.check_laid(option)

    def test_with_device_debug(self) -> None:
        for option in ("-G", "--device-debug"):
            with self.subTest(option=option):
                cubin = self.check_laid(option)
                self.assertIn(b"twice", section(cubin, ".debug_info"))


class Misses(Dropin):
    """What changes a result makes another entry. fault 210: a file that is edited or appears is a miss."""

    def outcome(self, *words: str) -> str:
        plain = self.run_host(*words, dropin=False)
        self.assertEqual(self.run_host(*words, dropin=True), plain)
        return self.outcomes()[0]

    def test_every_input_counts(self) -> None:  # fault 398
        text = self.source(HEADERS)
        base = (text, "w.cu", IN_MEMORY, "-Iinc", "-arch=compute_90")
        self.assertEqual(self.outcome(*base), "compiled")
        self.assertEqual(self.outcome(*base), "hit")
        for changed in ((text, "v.cu", IN_MEMORY, "-Iinc", "-arch=compute_90"),
                        (text, "w.cu", IN_MEMORY.replace("1", "7"), "-Iinc", "-arch=compute_90"),
                        (text, "w.cu", IN_MEMORY, "-Iinc", "-arch=compute_89"),
                        (text, "w.cu", IN_MEMORY, "-Iinc", "-arch=compute_90", "-lineinfo"),
                        (text, "w.cu", IN_MEMORY, "-Iinc", "-arch=compute_90", ":k")):
            self.assertEqual(self.outcome(*changed), "compiled", changed)
        (self.folder / "inc/sub/d.h").write_text(ON_DISK.replace("2", "3"))
        self.assertEqual(self.outcome(*base), "compiled")
        (self.folder / "inc/sub/d.h").write_text(ON_DISK)
        self.assertEqual(self.outcome(*base), "hit")

    def test_an_edited_program_of_one_name(self) -> None:  # fault 396
        words = ("w.cu", "-arch=sm_90")
        for text in (PLAIN, PLAIN.replace("= 1", "= 2")):
            self.assertEqual(self.outcome(self.source(text), *words), "compiled")
            self.assertEqual(self.outcome(self.source(text), *words), "hit")
        self.assertEqual(self.outcome(self.source(PLAIN), *words), "hit")

    def test_a_program_that_is_repaired(self) -> None:  # fault 397
        """What failed is not in the way of what it is after an edit."""
        text = self.source('#include "part.h"\n' + PLAIN)
        words = (text, "w.cu", "-Iinc", "-arch=sm_90")
        self.assertEqual(self.outcome(*words), "failed")
        for part, outcome in (("broken", "failed"), ("", "compiled"), ("", "hit"), ("broken", "failed"), ("", "hit")):
            (self.folder / "inc/part.h").write_text(part)
            self.assertEqual(self.outcome(*words), outcome, part)

    def test_the_order_of_folders_and_headers_in_memory(self) -> None:  # fault 395
        for folder, value in (("one", 1), ("two", 2)):
            (self.folder / folder).mkdir()
            (self.folder / folder / "v.h").write_text(f"#pragma once\n__device__ int value = {value};\n")
        text = self.source('#include "v.h"\n#include <v.h>\n__global__ void k(int* x) { *x = value; }\n')
        results = []
        for words in (("-Ione", "-Itwo"), ("-Itwo", "-Ione"), ("v.h=#pragma once\n__device__ int value = 3;\n", "-Ione")):
            given = (text, "w.cu", *[word for word in words if "=" in word and word[0] != "-"],
                     *[word for word in words if word[0] == "-"], "-arch=compute_90")  # fmt: skip
            plain = self.run_host(*given, dropin=False)
            for outcome in ("compiled", "hit"):
                self.assertEqual(self.run_host(*given, dropin=True), plain)
                self.assertEqual(self.outcomes(), [outcome], words)
            results.append(plain)
        self.assertEqual(len(set(results)), 3)

    def test_a_header_that_appears(self) -> None:
        words = (self.source(HEADERS), "w.cu", IN_MEMORY, "-Iinc", "-arch=compute_90")
        self.assertEqual(self.outcome(*words), "compiled")
        (self.folder / "inc/absent.h").write_text("")
        self.assertEqual(self.outcome(*words), "failed")

    def test_the_working_folder_of_relative_names(self) -> None:
        words = (self.source(HEADERS), "w.cu", IN_MEMORY, "-Iinc", "-arch=compute_90")
        self.assertEqual(self.outcome(*words), "compiled")
        other = self.folder / "other"
        (other / "inc/sub").mkdir(parents=True)
        (other / "inc/sub/d.h").write_text(ON_DISK.replace("2", "5"))
        self.report_file = self.folder / "report"
        self.folder, whole = other, self.folder
        self.addCleanup(setattr, self, "folder", whole)
        self.assertEqual(self.outcome(*words), "compiled")


class Opening(Dropin):
    """fault 216: how a host may come by NVRTC."""

    def test_by_name(self) -> None:
        self.extra["HOST_OPENS"] = self.nvrtc.name  # LD_LIBRARY_PATH has its folder
        self.check_same(self.source(PLAIN), "a.cu", "-arch=compute_90", first=["compiled"], second=["hit"])

    def test_in_a_folder_of_the_library_that_opens_it(self) -> None:
        """dlopen searches the RUNPATH of its caller, which is the host and not the drop-in; for other libraries too."""
        if shutil.which("patchelf") is None:
            self.skipTest("patchelf is not installed")
        self.nvrtc = nvrtcs()[-1]  # finds its builtins library itself
        self.host = self.folder / "bin/host"
        self.host.parent.mkdir()
        shutil.copy(HOST, self.host)
        beside = self.folder / "beside"
        beside.mkdir()
        for library in self.nvrtc.parent.iterdir():
            (beside / library.name).symlink_to(library)
        (beside / "libother.so").symlink_to(self.nvrtc)
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/../beside", self.host], check=True)
        words = (self.source(PLAIN), "a.cu", "-arch=compute_90")
        self.extra |= {"HOST_OPENS": self.nvrtc.name, "LD_LIBRARY_PATH": ""}
        self.check_same(*words, first=["compiled"], second=["hit"])
        self.extra["HOST_OPENS"] = "libother.so"
        self.check_same(*words, first=[], second=[])

    def test_by_a_host_that_is_linked_with_the_drop_in(self) -> None:
        self.extra["HOST_OPENS"] = str(LIBRARY)
        self.extra["CUKILN_NVRTC_LIBRARY"] = str(self.nvrtc)
        with_library = self.run_host(self.source(PLAIN), "a.cu", "-arch=sm_90", dropin=True)
        self.extra["HOST_OPENS"] = str(self.nvrtc)
        self.assertEqual(with_library, self.run_host(self.source(PLAIN), "a.cu", "-arch=sm_90", dropin=False))

    def test_a_library_that_is_not_there(self) -> None:
        self.extra["HOST_OPENS"] = "libnvrtc.so.99"
        self.run_host(self.source(PLAIN), "a.cu", dropin=True, code=2)

    def test_a_fork(self) -> None:
        """fault 218"""
        self.assertIn("parent 0 child 0", self.run_host("fork", dropin=True))
        self.assertEqual(sorted(self.outcomes()), ["compiled"] * 3 + ["hit"] * 2)


# As cuda.bindings: the functions that the process has, else those of the library at this path, for which
# cuda.pathfinder opens the builtins library too.
FINDS_NVRTC = """
import ctypes as c, hashlib, sys
from pathlib import Path
nvrtc = c.CDLL(None)
if not hasattr(nvrtc, "nvrtcVersion"):
    library = Path(sys.argv[1])
    for builtins in library.parent.glob("libnvrtc-builtins.so.*"):
        c.CDLL(str(builtins))
    nvrtc = c.CDLL(str(library))
numbers = c.c_int(), c.c_int()
print(nvrtc.nvrtcVersion(*map(c.byref, numbers)), [number.value for number in numbers])
for text in (b"__global__ void k(int* x) { *x = 1; }", b"#ifdef __DATE__\\n__global__ void k(int* x) { *x = 2; }\\n#endif"):
    program, size = c.c_void_p(), c.c_size_t()
    print(nvrtc.nvrtcCreateProgram(c.byref(program), text, b"k.cu", 0, None, None))
    print(nvrtc.nvrtcCompileProgram(program, 1, (c.c_char_p * 1)(b"-arch=sm_90")))
    print(nvrtc.nvrtcGetCUBINSize(program, c.byref(size)))
    code = c.create_string_buffer(size.value)
    print(nvrtc.nvrtcGetCUBIN(program, code), size.value, hashlib.sha256(code.raw).hexdigest())
"""


class VirtualEnvironments(Dropin):
    """fault 360: NVRTC is in the environment of the Python that runs, and nothing else says where."""

    def test_nvrtc_and_its_builtins_are_found(self) -> None:
        for number, nvrtc in enumerate(nvrtcs()):
            with self.subTest(nvrtc=nvrtc):
                self.host = environment_with(nvrtc, self.folder / f"environment {number}")
                self.extra = {"LD_LIBRARY_PATH": ""}
                words = ("-c", FINDS_NVRTC, str(nvrtc))
                plain = self.check_same(*words, first=["compiled", "bypassed"], second=["hit", "bypassed"])
                self.assertEqual(len(re.findall(r"^0 \d{4} ", plain, re.MULTILINE)), 2, plain)

    def test_nvrtc_that_a_variable_names_finds_its_builtins(self) -> None:
        self.host = Path(sys.executable)
        self.extra = {"LD_LIBRARY_PATH": "", "CUKILN_NVRTC_LIBRARY": str(self.nvrtc)}
        words = ("-c", FINDS_NVRTC, str(self.nvrtc))
        self.check_same(*words, first=["compiled", "bypassed"], second=["hit", "bypassed"])


# Closes all descriptors after its first compile, as programs do that detach, and opens files of its own.
CLOSES_ALL = """
import ctypes as c, os, sys
nvrtc = c.CDLL(sys.argv[1])
def compile(number):
    program, size = c.c_void_p(), c.c_size_t()
    text = b"__global__ void k(int* x) { *x = %d; }" % number
    code = nvrtc.nvrtcCreateProgram(c.byref(program), text, b"k.cu", 0, None, None)
    code |= nvrtc.nvrtcCompileProgram(program, 1, (c.c_char_p * 1)(b"-arch=sm_90"))
    return code | nvrtc.nvrtcGetCUBINSize(program, c.byref(size)) | (size.value == 0)
print("first", compile(1), compile(2))
sys.stdout.flush()
if sys.argv[2] == "in a child" and os.fork() != 0:
    sys.exit(os.wait()[1] != 0)
os.closerange(3, 4096)
os.mkdir("own")
count = int(sys.argv[3])
own = [os.open(f"own/{number}", os.O_RDWR | os.O_CREAT) for number in range(count)]
for file in own:
    os.write(file, b"mine" * 10000)
print("then", [compile(number) for number in (1, 2, 3, 4)])
for file in own:
    assert os.pread(file, 1 << 20, 0) == b"mine" * 10000, os.readlink(f"/proc/self/fd/{file}")
sys.stdout.flush()
"""


class ClosedDescriptors(Dropin):
    """fault 362: no file of the program has bytes of cukiln's, and none is closed."""

    def check_own_files(self, where: str, count: int) -> None:
        self.host = Path(sys.executable)
        shown = self.run_host("-c", CLOSES_ALL, str(self.nvrtc), where, str(count), dropin=True)
        self.assertEqual(shown, "first 0 0\nthen [0, 0, 0, 0]\n")

    def test_in_the_process(self) -> None:
        self.check_own_files("in the process", 40)

    def test_with_the_numbers_of_high_ones(self) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limit[1]), limit[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limit)
        self.check_own_files("in the process", 1100)

    def test_in_a_child(self) -> None:
        self.check_own_files("in a child", 40)


OWN_NVRTC = """
import ctypes as c, sys
own = c.CDLL(sys.argv[1], getattr(c, sys.argv[2]))
def version():
    numbers = c.c_int(), c.c_int()
    print(nvrtc.nvrtcVersion(*map(c.byref, numbers)), [number.value for number in numbers], flush=True)
order = sys.argv[3:]
for word in order:
    if word == "run":
        own.own_nvrtc_run()
    else:
        nvrtc = c.CDLL(None if word == "process" else word)
        version()
"""


class OwnNvrtc(Dropin):
    """fault 363: a library has an NVRTC in it, exports it, and gets it, whatever other NVRTC the process uses."""

    LIBRARY_WITH_OWN = str(LIBRARY.parent / "libown_nvrtc.so")

    def check_own(self, *words: str) -> None:
        self.host = Path(sys.executable)
        plain = self.run_host("-c", OWN_NVRTC, self.LIBRARY_WITH_OWN, *words, dropin=False)
        self.assertIn("12.3, code 0, 7 bytes, static\n", plain)
        self.assertEqual(self.run_host("-c", OWN_NVRTC, self.LIBRARY_WITH_OWN, *words, dropin=True), plain)
        self.assertEqual(self.report_file.read_text(), f"own 0 {self.LIBRARY_WITH_OWN}\t\n")  # fault 422

    def test_alone(self) -> None:
        self.check_own("RTLD_LOCAL", "run")

    def test_of_the_whole_process(self) -> None:
        self.check_own("RTLD_GLOBAL", "run", "process")
        self.check_own("RTLD_GLOBAL", "process", "run")

    def test_beside_another(self) -> None:
        self.check_own("RTLD_LOCAL", "run", str(self.nvrtc), "run")
        self.check_own("RTLD_LOCAL", str(self.nvrtc), "run", str(self.nvrtc))


class KilledHosts(Dropin):
    def test_what_is_known_of_headers_is_stored_with_the_compile(self) -> None:
        """fault 423: the process ends without its handlers; the next one need not read the headers."""
        (header,) = REPOSITORY.glob(".cukiln-cuda/nvidia/*/include/cuda_fp16.h")  # older than a stamp's coarsest tick
        text = self.source("#include <cuda_fp16.h>\n" + PLAIN)
        self.host = Path(sys.executable)
        words = ("-c", TAKES + "import os\nsys.stdout.flush()\nos._exit(0)\n", str(self.nvrtc), text, "CUBIN")
        self.run_host(*words, f"-I{header.parent}", "-arch=sm_90", dropin=True)
        self.assertEqual(self.outcomes(), ["compiled"])
        (database,) = (self.folder / "store").rglob("store.db")
        with contextlib.closing(sqlite3.connect(database)) as connection:
            stored = {row[0] for row in connection.execute("SELECT path FROM stat_cache")}
        self.assertIn(str(header), stored)


class FirstFork(Dropin):
    def test_a_fork_while_a_thread_opens_nvrtc(self) -> None:
        """fault 365"""
        slow = self.folder / "libnvrtc.so.12"
        slow.symlink_to(LIBRARY.parent / "libown_nvrtc.so")
        self.extra = {"HOST_OPENS": str(LIBRARY), "CUKILN_NVRTC_LIBRARY": str(slow), "OWN_NVRTC_IS_SLOW": "1"}
        self.assertEqual(self.run_host("first fork", dropin=True), "parent 12 child 12\n")


class Run(Dropin):
    """`cukiln run`, fault 217"""

    def run_command(self, *words: str, json_too: bool = True) -> tuple[int, dict, str]:
        done = subprocess.run(
            [COMMAND, "--store", self.folder / "store", *(["--json"] if json_too else []), "run", *words],
            env=self.environment() | {"CUKILN_DAEMON": "off"}, cwd=self.folder, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if json_too else {}, done.stderr

    def test_totals(self) -> None:
        words = ("--", str(HOST), self.source(TEMPLATES), "a.cu", ":k<int>", "-arch=compute_90")
        code, first, shown = self.run_command(*words)
        self.assertEqual((code, first["compiled"], first["hits"], first["exit_code"]), (0, 1, 0, 0))
        self.assertIn("lowered k<int>: 0 _Z1kIiEvPT_", shown)
        code, second, _ = self.run_command(*words)
        self.assertEqual((code, second["compiled"], second["hits"]), (0, 0, 1))
        self.assertEqual(second["saved_ms"], first["compile_ms"])
        code, _, shown = self.run_command(*words, json_too=False)
        self.assertEqual(code, 0)
        self.assertIn("1 program of NVRTC: 1 in the store (", shown)

    def test_what_nvrtc_does_itself_is_told_with_the_reason(self) -> None:
        self.extra["NVRTC_APPEND_FLAGS"] = "-lineinfo"
        _, totals, _ = self.run_command("--", str(HOST), self.source(PLAIN), "a.cu")
        self.assertEqual(totals["bypassed"], 1)
        self.assertEqual(totals["bypass_reasons"], {"the variable NVRTC_APPEND_FLAGS=-lineinfo": 1})

    def test_each_library_has_a_row(self) -> None:
        """fault 421: which library's programs hit, were compiled, failed and were bypassed, and why."""
        text = self.source(PLAIN)
        module = self.folder / "lib/site-packages/pkg/a_long_name_of_a_folder/engine.cpython-312-x86_64-linux-gnu.so"
        module.parent.mkdir(parents=True)
        shutil.copy(HOST, module)
        broken = self.folder / "broken.cu"
        broken.write_text(BROKEN)
        lines = [f"{HOST} {text} a.cu -arch=compute_90", f"{module} {text} a.cu -arch=compute_90",
                 f"{module} {broken} a.cu -arch=compute_90", f"{module} {text} a.cu --time=t", f"{HOST} {text} a.cu --time=t"]  # fmt: skip
        name = "pkg/a_long_name_of_a_folder/engine.so"
        _, totals, _ = self.run_command("--", "sh", "-c", "; ".join(lines))
        libraries = {one["name"]: one for one in totals["libraries"]}
        counts = {one: [libraries[one][of] for of in ("hits", "compiled", "failed", "bypassed")] for one in libraries}
        self.assertEqual(counts, {HOST.name: [0, 1, 0, 1], name: [1, 0, 1, 1]})
        self.assertEqual(libraries[name]["bypass_reasons"], {"the option --time=t": 1})
        self.assertEqual(libraries[name]["saved_ms"], libraries[HOST.name]["compile_ms"])
        _, _, shown = self.run_command("--", "sh", "-c", "; ".join(lines), json_too=False)
        table = re.search(r"(?m)^5 programs of NVRTC: .*\n((?:  .*\n)+)", shown)
        assert table is not None, shown
        rows = table[1].splitlines()
        self.assertEqual([row.split()[:1] for row in rows[:3]], [["library"], [HOST.name], ["...ng_name_of_a_folder/engine.so"]])
        self.assertEqual(rows[2].split()[1:5], ["1", "0", "1", "1"])
        self.assertEqual(rows[3:], ["  2 by NVRTC itself: the option --time=t"])
        self.assertLessEqual(max(map(len, rows)), 80)

    def test_what_is_not_reached_is_said(self) -> None:
        """fault 422: a process that used CUDA made no call that comes here."""
        driver = self.folder / "libcuda.so.1"
        driver.symlink_to(LIBRARY.parent / "libcuda_fake.so")
        program = Path(os.path.realpath(sys.executable)).name
        for code, unreached in (("pass", []), (f"import ctypes; ctypes.CDLL('{driver}')", [program])):
            _, totals, _ = self.run_command("--", sys.executable, "-c", code)
            self.assertEqual(list(totals["unreached"]), unreached)
        _, _, shown = self.run_command("--", sys.executable, "-c", code, json_too=False)
        self.assertIn(f"\n  not reached: {program}: it used CUDA, and no call to NVRTC was seen\n", shown)
        self.extra["LD_PRELOAD"] = str(driver)  # a host that uses both
        _, totals, _ = self.run_command("--", str(HOST), self.source(PLAIN), "a.cu", "-arch=compute_90")
        self.assertEqual((totals["compiled"], totals["unreached"]), (1, {}))

    def test_a_library_that_cannot_be_opened_is_said(self) -> None:
        """fault 460: the program runs as it does without cukiln."""
        words = (str(HOST), self.source(PLAIN), "a.cu", "-arch=compute_90")
        plain = self.run_host(*words[1:], dropin=False)
        folder = self.folder / "copy"
        folder.mkdir()
        for file in (COMMAND, LIBRARY):
            shutil.copy(file, folder)
        (name,) = (file.name for file in LIBRARY.parent.glob("libcukiln.so.*") if file.name.count(".") == 3)
        (folder / name).write_text("no library")  # or that of the build is found
        with mock.patch.dict(globals(), COMMAND=folder / "cukiln"):
            _, totals, shown = self.run_command("--", *words)
        self.assertEqual(shown.partition("\n")[2], plain)  # without the time
        self.assertEqual((totals["compiled"], list(totals["unreached"])), (0, [name]))
        self.assertRegex(totals["unreached"][name], rf"^it cannot be opened, so nothing is stored: {folder}/{name}: ")

    def test_the_exit_code_is_the_programs(self) -> None:
        self.assertEqual(self.run_command("--", "sh", "-c", "exit 7")[0], 7)
        self.assertEqual(self.run_command("--", "sh", "-c", "kill -TERM $$")[0], 128 + signal.SIGTERM)
        self.assertEqual(self.run_command("--", "/nonexistent")[0], 2)
        self.assertEqual(self.run_command()[0], 2)

    def test_a_path_that_ld_preload_cannot_name_is_refused(self) -> None:
        """fault 383"""
        for name in ("sp ace", "co:lon", "dol$lar"):
            prefix = self.folder / name
            prefix.mkdir()
            shutil.copy(COMMAND, prefix / "cukiln")
            shutil.copy(LIBRARY, prefix / LIBRARY.name)
            done = subprocess.run([prefix / "cukiln", "run", "--", "touch", "ran"], cwd=self.folder, check=False,
                                  env=self.environment(), capture_output=True, text=True, timeout=100)  # fmt: skip
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("LD_PRELOAD cannot name", done.stderr)
        self.assertFalse((self.folder / "ran").exists())

    def test_entries_of_all_kinds_are_whole(self) -> None:
        for options in (("-arch=sm_90",), ("-arch=compute_90",), ("-arch=sm_90", "-dlto"), ("--optix-ir",)):
            self.run_command("--", str(HOST), self.source(PLAIN), "a.cu", *options)

        def command(*words: str) -> dict:
            done = subprocess.run([COMMAND, "--store", self.folder / "store", "--json", *words], check=True,
                                  capture_output=True, text=True)  # fmt: skip
            return json.loads(done.stdout)

        self.assertEqual(command("verify"), command("verify") | {"checked": 5, "damaged": 0})
        entries = command("ls")["entries"]
        kinds = sorted(command("show", entry["key"])["request"]["output"] for entry in entries)
        self.assertEqual(kinds, ["cubin", "lto-ir", "optix-ir", "ptx", "ptx"])
        for entry in entries:
            done = subprocess.run([COMMAND, "--store", self.folder / "store", "show", entry["key"], "--ptx"],
                                  check=False, capture_output=True, text=True)  # fmt: skip
            kind = command("show", entry["key"])["request"]["output"]
            self.assertEqual(done.returncode == 0, kind == "ptx", done.stderr)
            self.assertEqual(".visible .entry plain(" in done.stdout, kind == "ptx")


class Daemon(Dropin):
    """Where `cukilnd` compiles."""

    def test_programs_are_compiled_by_the_daemon(self) -> None:
        runtime = self.folder / "run"
        runtime.mkdir(mode=0o700)
        self.extra |= {"XDG_RUNTIME_DIR": str(runtime), "CUKILN_NVRTC_LIBRARY": str(self.nvrtc)}

        def daemon(word: str) -> str:
            done = subprocess.run([COMMAND, "--store", self.folder / "store", "daemon", word], check=True, text=True,
                                  env=self.environment(), capture_output=True)  # fmt: skip
            return done.stdout + done.stderr

        daemon("start")
        self.addCleanup(daemon, "stop")
        quiet = '#include "h.h"\n#include "sub/q.h"\n__global__ void k(int* x) { int unused; x[0] = A + Q; }\n'
        (self.folder / "inc/sub/q.h").write_text("#define Q 7\n#warning q\n")
        for options in (("-arch=sm_90",), ("-arch=sm_90", "-dlto")):
            words = (self.source(quiet), f"{self.folder}/p.cu", IN_MEMORY, f"-I{self.folder}/inc", *options)
            plain = self.run_host(*words, dropin=False)
            for outcome in ("compiled", "hit"):
                self.extra["CUKILN_DAEMON"] = "require"
                self.assertEqual(self.run_host(*words, dropin=True), plain)
                self.assertEqual(set(self.outcomes()), {outcome})
        self.assertIn("2 compiled", daemon("status"))  # fault 420: PTX of the cubin's compile
        words = (self.source(BROKEN), "a.cu", "-arch=sm_90")
        self.check_same(*words, first=["failed"], second=["failed"])
        with mock.patch.dict(self.extra, CUKILN_OFFLINE="1"):  # fault 412: the daemon's client remembers it
            self.assertEqual(self.run_host(*words, dropin=True), self.run_host(*words, dropin=False))
        self.assertEqual(self.outcomes(), ["failed"])


class Direct(Dropin):
    """fault 213: what cannot be stored is NVRTC's own, and is counted."""

    def check_direct(self, *words: str) -> None:
        plain = self.run_host(*words, dropin=False)
        for _ in range(2):
            self.assertEqual(self.run_host(*words, dropin=True), plain)
            self.assertEqual(self.outcomes()[0], "bypassed")

    def test_a_macro_of_the_date(self) -> None:
        self.check_direct(self.source("#ifdef __DATE__\n" + PLAIN + "#endif\n"), "a.cu", "-arch=sm_90")

    def test_an_environment_that_nvrtc_reads(self) -> None:
        self.extra["NVRTC_APPEND_FLAGS"] = "-lineinfo"
        self.check_direct(self.source(PLAIN), "a.cu", "-arch=compute_90")
        self.extra = {"NVRTCWIZ": "1"}
        self.check_direct(self.source(PLAIN), "a.cu", "-arch=compute_90")

    def test_an_environment_that_the_code_generator_reads(self) -> None:
        """fault 315"""
        words = (self.source(PLAIN), "a.cu", "-arch=sm_90")
        self.check_same(*words, first=["compiled"], second=["hit"])
        for name, value in (("NV_NVVM_VERSION", "nvvm-latest"), ("NV_NVVM_VERSION", "x"), ("LLVM_OVERRIDE_PRODUCER", "x")):
            self.extra = {name: value}
            self.check_direct(*words)

    def test_other_variables_of_such_names_change_nothing(self) -> None:
        """fault 410"""
        words = (self.source(PLAIN), "a.cu", "-arch=compute_90")
        self.check_same(*words, first=["compiled"], second=["hit"])
        self.extra = {"NVRTC_HOME": "/x", "NVRTC_APPEND_FLAGS_OF_MINE": "-G", "NVRTC_DISABLE_PCH": "1"}
        self.check_same(*words, first=["hit"], second=["hit"])

    def test_an_option_of_precompiled_headers_that_is_none(self) -> None:
        for option in ("--pch=x", "--create-pch", "--use-pch=", "--pch-verbose=maybe"):
            self.check_direct(self.source(PLAIN), "a.cu", "-arch=compute_90", option)
        self.check_direct(self.source(PLAIN), "a.cu", "-arch=compute_90", "--create-pch=x", "--use-pch=x")

    def test_a_flow_callback(self) -> None:
        plain = self.run_host("flow", dropin=False)
        self.assertIn("called: 1", plain)
        self.assertEqual(self.run_host("flow", dropin=True), plain)
        self.assertEqual(self.outcomes(), ["bypassed"])

    def test_without_a_worker(self) -> None:
        """fault 211"""
        self.extra["CUKILN_WORKER"] = "/nonexistent"
        self.check_direct(self.source(PLAIN), "a.cu", "-arch=sm_90")

    def test_where_compiles_are_forbidden(self) -> None:
        self.extra["CUKILN_OFFLINE"] = "1"
        self.check_direct(self.source(PLAIN), "a.cu", "-arch=sm_90")

    def test_a_store_that_cannot_be_trusted(self) -> None:
        """fault 212"""
        (self.folder / "store").mkdir(mode=0o777)
        (self.folder / "store").chmod(0o777)
        plain = self.run_host(self.source(PLAIN), "a.cu", "-arch=sm_90", dropin=False)
        self.assertEqual(self.run_host(self.source(PLAIN), "a.cu", "-arch=sm_90", dropin=True), plain)


if __name__ == "__main__":
    if not nvrtcs():
        sys.exit(f"no NVRTC below {REPOSITORY}: run scripts/bootstrap --tests")
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
