# SPDX-License-Identifier: Apache-2.0
"""libcukiln_nvjitlink beside nvJitLink itself: a host makes the same calls with either, and prints the same.

usage: link_dropin_test.py LIBRARY COMMAND REPOSITORY [unittest's arguments]
"""

import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from environments import environment_with  # noqa: E402

LIBRARY, COMMAND, REPOSITORY = (Path(argument).absolute() for argument in sys.argv[1:4])

Step = list[str | int]

# Compiles a text with NVRTC and writes one part of the result.
MAKES_INPUT = """
import ctypes as c, sys
from pathlib import Path
library, part, out, *options = sys.argv[1:]
for builtins in Path(library).parent.glob("libnvrtc-builtins.so.*"):
    c.CDLL(str(builtins))
nvrtc, program, size = c.CDLL(library), c.c_void_p(), c.c_size_t()
assert nvrtc.nvrtcCreateProgram(c.byref(program), sys.stdin.buffer.read(), b"k.cu", 0, None, None) == 0
words = [word.encode() for word in options]
assert nvrtc.nvrtcCompileProgram(program, len(words), (c.c_char_p * len(words))(*words)) == 0
assert getattr(nvrtc, f"nvrtcGet{part}Size")(program, c.byref(size)) == 0
code = c.create_string_buffer(size.value)
assert getattr(nvrtc, f"nvrtcGet{part}")(program, code) == 0
Path(out).write_bytes(code.raw)
"""

# Makes the calls of each step, and prints what they return.
HOST = """
import ctypes as c, hashlib, json, os, sys, threading
from pathlib import Path
library = c.CDLL(None if sys.argv[1] == "process" else sys.argv[1])
suffix = os.environ.get("HOST_SUFFIX", "")
def function(name):
    return getattr(library, f"__nvJitLink{name}{suffix}" if suffix else f"nvJitLink{name}")
PARTS = ["LinkedCubin", "LinkedPtx", "ErrorLog", "InfoLog"] + os.environ.get("HOST_PARTS", "").split()
def run(steps):
    handle, kept, given = c.c_void_p(), [], []
    for word, *values in steps:
        said = []
        if word == "create":
            said = [function("Create")(c.byref(handle), len(values), (c.c_char_p * len(values))(*(v.encode() for v in values)))]
        elif word == "create without":
            said = [function("Create")(None, 1, (c.c_char_p * 1)(b"-arch=sm_90")), function("Create")(c.byref(handle), 1, None),
                    function("Create")(c.byref(handle), 0, None)]
        elif word in ("data", "short", "half"):
            kind, file, name = values
            data = Path(file).read_bytes()
            size = {"data": len(data), "short": len(data) - 2, "half": len(data) // 2}[word]
            add = function("AddData")
            add.argtypes = [c.c_void_p, c.c_int, c.c_char_p, c.c_size_t, c.c_char_p]
            given.append((data, None if name is None else name.encode()))  # nvJitLink keeps pointers
            said = [add(handle, kind, data if kind >= 0 else None, size, given[-1][1])]
        elif word == "file":
            given.append(None if values[1] is None else values[1].encode())
            said = [function("AddFile")(handle, values[0], given[-1])]
        elif word == "complete":
            said = [function("Complete")(handle)]
        elif word == "parts":
            for part in PARTS:
                size = c.c_size_t(77)
                code = function(f"Get{part}Size")(handle, c.byref(size))
                bytes = c.create_string_buffer(b"Z" * (size.value + 16), size.value + 16)
                said.append((part, code, size.value, function(f"Get{part}")(handle, bytes),
                             hashlib.sha256(bytes.raw).hexdigest()[:16], bytes.raw[:400] if part.endswith("Log") else ""))
        elif word == "null":
            for part in PARTS:
                said += [function(f"Get{part}{end}")(handle, None) for end in (values or ["Size", ""])]
        elif word == "no handle":
            handle, before = c.c_void_p(), handle
            kept.append(before)
        elif word == "number":
            handle = c.c_void_p(values[0])
        elif word == "keep":
            kept.append(c.c_void_p(handle.value))
        elif word == "kept":
            handle = kept.pop()
        elif word == "destroy":
            said = [function("Destroy")(c.byref(handle)), handle.value is None]
        elif word == "destroy nothing":
            said = [function("Destroy")(None)]
        elif word == "version":
            numbers = c.c_uint(), c.c_uint()
            said = [library.nvJitLinkVersion(*map(c.byref, numbers)), [number.value for number in numbers]]
        print(word, values[-1:] if word != "create" else values, said, flush=True)
for steps in json.loads(sys.stdin.read()):
    run(steps)
"""

TEXTS = {
    "main": 'extern "C" __device__ int f(int); extern "C" __global__ void k(int* x) { *x = f(*x); }',
    "part": 'extern "C" __device__ int f(int x) { return 3 * x; }',
    "other": 'extern "C" __device__ int f(int x) { return 4 * x; }',
}
KINDS = {
    "cubin": (1, "CUBIN", ["-arch=sm_90", "-rdc=true"]),
    "ptx": (2, "PTX", ["-arch=compute_90", "-rdc=true"]),
    "lto": (3, "LTOIR", ["-arch=sm_90", "-dlto"]),
}


def linkers() -> list[Path]:
    found = sorted(REPOSITORY.glob(".cukiln-cuda/nvidia/*/lib/libnvJitLink.so.*"))
    return found + sorted(REPOSITORY.glob(".cukiln-cuda-tested/*/nvidia/*/lib/libnvJitLink.so.*"))


def nvrtc_of(linker: Path) -> Path:
    (found,) = linker.parents[2].glob("*/lib/libnvrtc.so.*")
    return found


@functools.cache
def inputs_of(linker: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cukiln-link-inputs-"))
    unittest.addModuleCleanup(shutil.rmtree, folder)
    for (kind, (_, part, options)), name in itertools.product(KINDS.items(), TEXTS):
        subprocess.run([sys.executable, "-c", MAKES_INPUT, nvrtc_of(linker), part, folder / f"{name}.{kind}", *options],
                       input=TEXTS[name].encode(), check=True, timeout=300)  # fmt: skip
    (folder / "garbage").write_bytes(b"garbage" * 9)
    (folder / "broken.ptx").write_bytes((folder / "part.ptx").read_bytes().replace(b"ret;", b"rat;"))
    (folder / "empty").write_bytes(b"")
    cubin = (folder / "main.cubin").read_bytes()
    header = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64 + len(cubin))
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(cubin), 0, 0, 7, 1, 90, 0, 0, 17, 0, 0)
    (folder / "main.fat").write_bytes(header + entry + cubin)
    return folder


class LinkDropin(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.report_file = self.folder / "report"
        self.linker = linkers()[0]
        self.opens = ""
        self.python = Path(sys.executable)
        self.extra: dict[str, str] = {}

    def environment(self) -> dict[str, str]:
        parts = "LinkedLTOIR" if "13.5" in str(self.linker) else ""  # which others lack
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "HOST_PARTS": parts, **self.extra}

    def run_host(self, *links: list[Step], dropin: bool, code: str = HOST) -> str:
        environment = self.environment()
        if dropin:
            self.report_file.write_text("")
            environment |= {"LD_PRELOAD": str(LIBRARY), "CUKILN_STORE": str(self.folder / "store"), "CUKILN_DAEMON": "off",
                            "CUKILN_RUN_REPORT": str(self.report_file)}  # fmt: skip
        done = subprocess.run([self.python, "-c", code, self.opens or str(self.linker)], env=environment, cwd=self.folder,
                              input=json.dumps(links), capture_output=True, text=True, timeout=300)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def outcomes(self) -> list[str]:
        return [line.split()[0].removeprefix("link-") for line in self.report_file.read_text().splitlines()]

    def check_same(self, *links: list[Step], first: list[str], second: list[str]) -> str:
        plain = self.run_host(*links, dropin=False)
        for expected in (first, second):
            self.assertEqual(self.run_host(*links, dropin=True), plain)
            self.assertEqual(self.outcomes(), expected)
        return plain

    def file(self, name: str) -> str:
        return str(inputs_of(self.linker) / name)

    def data(self, name: str, *, kind: str = "", called: str | None = "n") -> Step:
        return ["data", KINDS[kind or name.split(".")[1]][0], self.file(name), called]

    def link(self, *names: str, options: tuple[str, ...] = ("-arch=sm_90",)) -> list[Step]:
        """Creates, adds and links."""
        return [["create", *options], *(self.data(name) for name in names), ["complete"]]


class SameResults(LinkDropin):
    """fault 430: all that a link returns is nvJitLink's, linked or found."""

    def check_all(self, make: Callable[[], list[Step]]) -> None:
        for self.linker in linkers():
            with self.subTest(linker=self.linker):
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                steps = make()
                plain = self.check_same([*steps, ["parts"], ["destroy"]], first=["compiled"], second=["hit"])
                self.assertIn("complete [] [0]\n", plain)

    def test_lto_ir(self) -> None:
        for more in ([], ["-ptx"], ["-lineinfo"], ["-O0", "-ftz=1", "-Xptxas=-O1"]):
            options = ("-arch=sm_90", "-lto", *more)
            self.check_all(lambda options=options: self.link("main.lto", "part.lto", options=options))

    def test_ptx(self) -> None:
        self.check_all(lambda: self.link("main.ptx", "part.ptx"))

    def test_cubins(self) -> None:
        self.check_all(lambda: self.link("main.cubin", "part.cubin"))

    def test_all_at_once_and_without_a_name(self) -> None:
        self.check_all(lambda: [["create", "-arch=sm_90", "-lto"], self.data("main.lto", called=None), ["data", 10, self.file("part.ptx"), "p"],
                                ["complete"]])  # fmt: skip

    def test_files(self) -> None:
        self.check_all(lambda: [["create", "-arch=sm_90", "-lto"], ["file", 3, self.file("main.lto")], ["file", 10, self.file("part.cubin")],
                                ["complete"]])  # fmt: skip

    def test_several_links_of_a_process(self) -> None:
        links = [
            [*self.link("main.ptx", "part.ptx"), ["parts"], ["destroy"]],
            [*self.link("main.cubin", "part.cubin"), ["parts"]],
        ]
        self.check_same(*links, links[0], first=["compiled", "compiled", "hit"], second=["hit"] * 3)


class Errors(LinkDropin):
    """Codes and logs of what does not link, and of calls that are wrong, are nvJitLink's."""

    def check_sequences(self, make: Callable[[], list[list[Step]]]) -> None:
        for self.linker in linkers():
            with self.subTest(linker=self.linker):
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                links = make()
                plain = self.run_host(*links, dropin=False)
                for _ in ("cold", "warm"):
                    self.assertEqual(self.run_host(*links, dropin=True), plain)

    def test_options_and_inputs(self) -> None:
        """fault 431"""
        plain: Step = ["create", "-arch=sm_90"]
        lto: Step = ["create", "-arch=sm_90", "-lto"]
        refused = (["-foo", "-arch=sm_90"], ["-arch=sm_19"], ["-arch=bla"], ["-arch=sm_90", "-ptx"], ["-lto"], [" -arch=sm_90"])
        main: Callable[[], Step] = lambda: self.data("main.ptx", called="a name that the log of the link has")  # noqa: E731
        self.check_sequences(lambda: [
            # Whose options and first inputs are known to be taken then.
            [plain, main(), self.data("part.ptx"), ["complete"], ["destroy"]],
            [*self.link("main.lto", "part.lto", options=("-arch=sm_90", "-lto")), ["destroy"]],
            [plain, main(), self.data("broken.ptx"), ["parts"], ["destroy"]],
            [plain, main(), ["complete"], ["parts"], ["destroy"]],
            *([["create", *options], ["parts"], ["destroy"]] for options in refused),
            [plain, self.data("main.lto"), ["parts"], ["destroy"]],
            *([plain, [word, kind, self.file("garbage"), *name], ["parts"], ["destroy"]]
              for kind in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 77) for word, name in (("data", ["g"]), ("file", []))),
            [plain, ["data", 1, self.file("empty"), "e"], ["parts"], ["file", 1, self.file("empty")], ["parts"]],
            [plain, ["file", 1, "/nonexistent"], ["file", 1, None], ["file", 1, "/"], ["parts"]],
            [plain, self.data("broken.ptx"), ["parts"], ["destroy"]],
            [plain, ["short", 2, self.file("part.ptx"), "p"], ["parts"], ["destroy"]],
            *([plain, [word, 4, self.file("main.fat"), "m"], self.data("part.cubin"), ["complete"], ["parts"], ["destroy"]]
              for word in ("data", "half")),
            [plain, self.data("part.ptx"), ["parts"], self.data("broken.ptx"), ["parts"], ["destroy"]],
            [lto, ["complete"], ["parts"], ["null"], ["destroy"]],
            [lto, self.data("main.lto"), ["complete"], ["parts"], ["destroy"]],
            [lto, self.data("part.lto"), self.data("part.lto"), ["complete"], ["parts"], ["destroy"]],
        ])  # fmt: skip

    def test_null_arguments(self) -> None:
        """fault 431"""
        self.check_sequences(lambda: [
            [["create without"], ["version"]],
            [["no handle"], ["complete"], ["parts"], ["null"], self.data("main.lto"), ["file", 3, self.file("main.lto")], ["destroy"],
             ["destroy nothing"]],
            [["create", "-arch=sm_90"], ["null"], ["data", -1, self.file("part.cubin"), "n"], ["parts"]],
        ])  # fmt: skip

    def test_calls_in_another_order(self) -> None:
        """fault 432: before a link, after one that was found, and twice."""
        self.check_sequences(lambda: [
            [["create", "-arch=sm_90", "-lto"], ["parts"], self.data("main.lto"), ["parts"], self.data("part.lto"), ["null"], ["complete"],
             ["parts"], ["null"], ["parts"], ["complete"], ["parts"], ["destroy"], ["destroy"]],
            *([*self.link("main.cubin", "part.cubin"), ["null", end], ["parts"], ["destroy"]] for end in ("", "Size")),
            [*self.link("main.ptx", "part.ptx"), ["complete"], ["parts"], *self.added_late("part.ptx"), ["complete"], ["parts"], ["destroy"]],
            [*self.link("main.cubin", "part.cubin"), *self.added_late("other.cubin"), ["parts"], ["null"]],
        ])  # fmt: skip

    def added_late(self, name: str) -> list[Step]:
        return [] if "12.8" in str(self.linker) else [self.data(name), ["file", 1, self.file(name)]]  # which crashes

    def test_handles_of_destroyed_links_are_none(self) -> None:
        """fault 432: nvJitLink reads freed memory there."""
        said = self.run_host([["create", "-arch=sm_90"], ["keep"], ["destroy"], ["kept"], ["complete"], self.data("main.ptx"), ["destroy"]],
                             [["number", 12345], ["complete"], ["file", 1, "/"], ["destroy"]], dropin=True)  # fmt: skip
        self.assertEqual(re.findall(r"\[(\d+)[,\]]", said.replace("[12345]", "")), ["0", "0", *["3"] * 6])

    def test_without_nvjitlink(self) -> None:
        """fault 439: what a variable names is another library, or nothing finds one."""
        self.opens = "process"
        steps = [["version"], ["create", "-arch=sm_90"], ["complete"], ["file", 1, "/"], ["parts"], ["null"], ["destroy"]]
        self.extra["CUKILN_NVJITLINK_LIBRARY"] = str(nvrtc_of(self.linker))
        wrong = self.run_host(steps, dropin=True)
        self.extra = {}
        alone = self.folder / LIBRARY.name
        shutil.copy(LIBRARY, alone)  # without libcukiln beside it
        with unittest.mock.patch.dict(globals(), LIBRARY=alone):
            self.assertEqual(self.run_host(steps, dropin=True), wrong)
        for line in wrong.splitlines():
            self.assertRegex(line, r" \[(6|\('LinkedCubin', 6, 77, 6)")


class Misses(LinkDropin):
    def outcome(self, *steps: Step) -> list[str]:
        self.run_host([*steps, ["parts"]], dropin=True)
        return self.outcomes()

    def test_every_input_counts(self) -> None:
        """fault 433"""
        main, part, other = (["file", 1, self.file(f"{name}.cubin")] for name in TEXTS)
        linked = [["create", "-arch=sm_90"], main, part, ["complete"]]
        variants = [
            linked,
            [["create", "-arch=sm_90", "-maxrregcount=32"], main, part, ["complete"]],
            [["create", "-maxrregcount=32", "-arch=sm_90"], main, part, ["complete"]],
            [linked[0], part, main, ["complete"]],
            [linked[0], main, other, ["complete"]],
            [linked[0], main, ["file", 10, part[2]], ["complete"]],
            [linked[0], main, ["data", 1, part[2], None], ["complete"]],
            [linked[0], main, ["data", 1, part[2], "other"], ["complete"]],
        ]
        for steps in variants:
            self.assertEqual(self.outcome(*steps), ["compiled"], steps)
        for steps in variants:
            self.assertEqual(self.outcome(*steps), ["hit"], steps)
        for self.linker in linkers()[1:]:  # of another nvJitLink
            self.assertEqual(self.outcome(*linked), ["compiled"])

    def test_a_file_that_is_edited(self) -> None:
        """fault 433"""
        part = self.folder / "part.cubin"
        steps: list[Step] = [["create", "-arch=sm_90"], self.data("main.cubin"), ["file", 1, str(part)], ["complete"], ["parts"]]
        for name in ("part", "other"):
            shutil.copy(self.file(f"{name}.cubin"), part)
            self.check_same(steps, first=["compiled"], second=["hit"])

    def command(self, *words: str) -> str:
        environment = self.environment() | {"CUKILN_STORE": str(self.folder / "store"), "CUKILN_DAEMON": "off"}
        done = subprocess.run([COMMAND, *words], env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_what_is_gone_from_the_store_is_linked_again(self) -> None:
        """fault 434: a result, or the note that an input before it was taken; or what is stored is no result."""
        steps = [*self.link("main.ptx", "part.ptx"), ["parts"]]
        plain = self.run_host(steps, dropin=False)
        self.assertEqual(self.outcome(*steps), ["compiled"])
        blobs = json.loads(self.command("--json", "ls", "--blobs"))["blobs"]
        self.assertEqual([blob["kind"] for blob in blobs], ["nvjitlink"] * 3)  # of the options and of each input
        result = max(blobs, key=lambda blob: int(blob["size_bytes"]))
        for blob in blobs:
            self.command("rm", blob["id"])
            self.assertEqual(self.run_host(steps, dropin=True), plain)
            self.assertEqual(self.outcomes(), ["compiled" if blob is result else "hit"])
            self.assertEqual(self.outcome(*steps), ["hit"])
        (database,) = (self.folder / "store").rglob("store.db")
        for text in (b"", b"\xff" * 4096):
            with contextlib.closing(sqlite3.connect(database)) as connection, connection:
                connection.execute("UPDATE payload SET data = ?", (text,))
            self.assertEqual(self.run_host(steps, dropin=True), plain)


class Bypassed(LinkDropin):
    """fault 435: what cannot be stored is nvJitLink's own, and is counted with its reason."""

    def check_bypassed(self, steps: list[Step], why: str) -> None:
        for _ in range(2):
            self.run_host(steps, dropin=True)
            self.assertEqual(self.report_file.read_text().split("\t")[-1], f"{why}\n")
            self.assertEqual(self.outcomes(), ["bypassed"])
        self.assertEqual(list((self.folder / "store").rglob("*.cubin")), [])

    def test_options(self) -> None:
        shutil.copy(self.file("part.ptx"), self.folder / "other")  # which ptxas reads where it is named
        for option in ("-time", "-verbose", "-ltoir", "-Xptxas=other", "-Xptxas=-v", "-Xptxas=--verbose"):
            steps = self.link("main.lto", "part.lto", options=("-arch=sm_90", "-lto", option))
            self.check_bypassed(steps, f"the option {option}")

    def test_variables(self) -> None:
        for name in ("LLVM_OVERRIDE_PRODUCER", "FINALIZER_X"):
            self.extra = {name: "0"}
            self.check_bypassed(self.link("main.cubin", "part.cubin"), f"the variable {name}=0")
        self.extra = {"NVJITLINK": "1", "NVVM": "1"}
        self.check_same([*self.link("main.cubin", "part.cubin"), ["parts"]], first=["compiled"], second=["hit"])

    def test_a_store_that_cannot_be_trusted(self) -> None:
        (self.folder / "store").mkdir(mode=0o777)
        (self.folder / "store").chmod(0o777)
        steps = [*self.link("main.ptx", "part.ptx"), ["parts"]]
        self.check_same(steps, first=["bypassed"], second=["bypassed"])
        self.assertIn("nothing is stored on disk", self.report_file.read_text())

    def test_a_library_that_was_replaced(self) -> None:
        """fault 440: the process has the old one; results would be stored under the new one's digest."""
        (self.folder / "lib").mkdir()
        for name in (self.linker.name, "new"):
            shutil.copy(self.linker, self.folder / "lib" / name)
        self.opens = str(self.folder / "lib" / self.linker.name)
        replaced = HOST.replace("for steps in", f"os.rename({str(self.folder / 'lib/new')!r}, sys.argv[1])\nfor steps in")
        self.run_host(self.link("main.cubin", "part.cubin"), dropin=True, code=replaced)
        self.assertEqual(self.outcomes(), ["bypassed"])
        self.assertIn("was replaced since it was opened", self.report_file.read_text())


class Opening(LinkDropin):
    """fault 437: however a host comes by nvJitLink, and by every name that a version exports."""

    def check_linked(self) -> None:
        self.check_same(
            [["version"], *self.link("main.cubin", "part.cubin"), ["parts"], ["destroy"]], first=["compiled"], second=["hit"]
        )

    def test_by_name(self) -> None:
        self.opens = self.linker.name
        self.extra["LD_LIBRARY_PATH"] = str(self.linker.parent)
        self.check_linked()

    def test_each_name(self) -> None:
        for self.linker in linkers():
            with self.subTest(linker=self.linker):
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                theirs, ours = (
                    {match[1] for match in re.finditer(r"(?m) T (\w+)", self.symbols(library))}
                    for library in (self.linker, LIBRARY)
                )
                self.assertLessEqual(theirs, ours)
                suffixes = sorted(
                    name.removeprefix("__nvJitLinkCreate") for name in theirs if name.startswith("__nvJitLinkCreate")
                )
                self.assertGreater(len(suffixes), 0)
                for number, self.extra["HOST_SUFFIX"] in enumerate(suffixes):
                    steps = [*self.link("main.cubin", "part.cubin"), ["parts"], ["destroy"]]
                    self.check_same(steps, first=["hit" if number else "compiled"], second=["hit"])
                del self.extra["HOST_SUFFIX"]

    @staticmethod
    def symbols(library: Path) -> str:
        return subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout

    def test_in_the_environment_of_the_python_that_runs(self) -> None:
        """As cuda.bindings, which asks for the functions that the process has first."""
        finds = HOST.replace('c.CDLL(None if sys.argv[1] == "process" else sys.argv[1])', "c.CDLL(None)\n"
                             'if not hasattr(library, "nvJitLinkVersion"):\n    library = c.CDLL(sys.argv[1])')  # fmt: skip
        for number, self.linker in enumerate(linkers()):
            with self.subTest(linker=self.linker):
                self.python = environment_with(nvrtc_of(self.linker), self.folder / f"environment {number}")
                steps = [["version"], *self.link("main.ptx", "part.ptx"), ["parts"], ["destroy"]]
                plain = self.run_host(steps, dropin=False, code=finds)
                for outcome in ("compiled", "hit"):
                    self.assertEqual(self.run_host(steps, dropin=True, code=finds), plain)
                    self.assertEqual(self.outcomes(), [outcome])

    def test_the_one_that_a_variable_names(self) -> None:
        steps = [["version"], *self.link("main.cubin", "part.cubin"), ["parts"], ["destroy"]]
        plain = self.run_host(steps, dropin=False)
        self.opens = "process"
        self.extra["CUKILN_NVJITLINK_LIBRARY"] = str(self.linker)
        self.assertEqual(self.run_host(steps, dropin=True), plain)
        self.assertEqual(self.outcomes(), ["compiled"])

    def test_by_libraries_that_are_linked_with_it(self) -> None:
        """Each with its major version, though a process has one in front."""
        if shutil.which("cc") is None:
            self.skipTest("there is no C compiler")
        code = "import ctypes as c, sys\nfor path in sys.argv[1].split(','):\n    print(c.CDLL(path).run())\n"
        users = []
        for linker in linkers():
            with self.subTest(linker=linker):
                major = linker.name.removeprefix("libnvJitLink.so.")[:2]
                source = self.folder / f"user{major}.c"
                source.write_text(f"int __nvJitLinkCreate_{major}_0(void**, unsigned, const char**);\n"
                                  f"int run(void) {{ return __nvJitLinkCreate_{major}_0(0, 0, 0); }}\n")  # fmt: skip
                users.append(self.folder / f"libuser{len(users)}.so")
                subprocess.run(
                    ["cc", "-shared", "-fPIC", "-o", users[-1], source, linker, f"-Wl,-rpath,{linker.parent}"], check=True
                )
        alone = []
        for user in users:
            self.opens = str(user)
            alone.append(self.run_host(dropin=False, code=code))
            self.assertEqual(self.run_host(dropin=True, code=code), alone[-1])
        self.assertEqual(set(alone), {"3\n", "10\n"})  # of 12.8, and of 13.0 and 13.5
        for order in (users, users[::-1]):
            self.opens = ",".join(map(str, order))
            self.assertEqual(self.run_host(dropin=True, code=code), self.run_host(dropin=False, code=code))

    def test_by_a_library_that_opens_the_one_in_its_folder(self) -> None:
        """As cuFFT and cuSPARSE: by soname, with their RPATH, and by the names of the version that it says it is."""
        if shutil.which("cc") is None:
            self.skipTest("there is no C compiler")
        source = self.folder / "opens.c"
        source.write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int run(const char* options[], void* data, size_t size) {
  void* library = dlopen(NAME, RTLD_LAZY);
  if (library == NULL) return -1;
  unsigned major, minor;
  ((int (*)(unsigned*, unsigned*))dlsym(library, "nvJitLinkVersion"))(&major, &minor);
  char name[64];
  void* handle = NULL;
  size_t linked = 0;
#define CALL(function) (snprintf(name, sizeof name, "__nvJitLink" function "_%u_%u", major, minor), dlsym(library, name))
  int code = ((int (*)(void**, unsigned, const char**))CALL("Create"))(&handle, 1, options);
  code |= ((int (*)(void*, int, void*, size_t, const char*))CALL("AddData"))(handle, 1, data, size, "n");
  code |= ((int (*)(void*))CALL("Complete"))(handle);
  code |= ((int (*)(void*, size_t*))CALL("GetLinkedCubinSize"))(handle, &linked);
  code |= ((int (*)(void**))CALL("Destroy"))(&handle);
  return code ? -code : (int)linked;
}
""")
        code = ("import ctypes as c, sys\nfrom pathlib import Path\nlibrary, part = sys.argv[1].split(',')\ndata = Path(part).read_bytes()\n"
                "print(c.CDLL(library).run((c.c_char_p * 1)(b'-arch=sm_90'), data, c.c_size_t(len(data))))\n")  # fmt: skip
        for number, self.linker in enumerate(linkers()):
            with self.subTest(linker=self.linker):
                folder = self.folder / f"lib{number}"
                folder.mkdir()
                (folder / self.linker.name).symlink_to(self.linker)
                subprocess.run(["cc", "-shared", "-fPIC", f'-DNAME="{self.linker.name}"', "-o", folder / "libopens.so", source,
                                "-Wl,--disable-new-dtags,-rpath,$ORIGIN"], check=True)  # fmt: skip
                self.opens = f"{folder}/libopens.so,{self.file('part.cubin')}"
                plain = self.run_host(dropin=False, code=code)
                self.assertGreater(int(plain), 0)
                for outcome in ("compiled", "hit"):
                    self.assertEqual(self.run_host(dropin=True, code=code), plain)
                    self.assertEqual(self.outcomes(), [outcome])
                    self.assertIn(f"{folder}/libopens.so", self.report_file.read_text())


THREADS = (
    HOST[: HOST.index("for steps in")]
    + """
import io, contextlib
links = json.loads(sys.stdin.read())
def work():
    for steps in links:
        run(steps)
for at_once in range(3):
    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    if at_once == 0:  # nothing of the host's gets a byte of cukiln's
        os.closerange(3, 4096)
        os.mkdir("own")
        own = [os.open(f"own/{number}", os.O_RDWR | os.O_CREAT) for number in range(40)]
        [os.write(file, b"mine" * 10000) for file in own]
    import _ctypes
    _ctypes.dlclose(library._handle)
    library = c.CDLL(sys.argv[1])
assert all(os.pread(file, 1 << 20, 0) == b"mine" * 10000 for file in own)
"""
)


class Hosts(LinkDropin):
    def test_threads_forks_closed_libraries_and_closed_descriptors(self) -> None:
        """fault 438"""
        links = [[*self.link("main.ptx", "part.ptx"), ["parts"], ["destroy"]],
                 [*self.link("main.lto", "part.lto", options=("-arch=sm_90", "-lto")), ["parts"], ["destroy"]],
                 [["create", "-foo"], ["destroy"]]]  # fmt: skip
        plain = sorted(set(self.run_host(*links, dropin=False).splitlines()))
        said = self.run_host(*links, dropin=True, code=THREADS).splitlines()
        self.assertEqual(sorted(set(said)), plain)
        self.assertLessEqual({"compiled", "hit"}, set(self.outcomes()))


class Run(LinkDropin):
    """`cukiln run` puts both libraries in front."""

    # As cuDF: NVRTC makes LTO-IR, and nvJitLink links it.
    COMPILES_AND_LINKS = MAKES_INPUT.replace("Path(out).write_bytes(code.raw)", HOST.replace("import ctypes as c, hashlib, json, os, sys, threading", (
        "Path(out).write_bytes(code.raw)\nimport hashlib, json, os\nsys.argv[1] = os.environ['HOST_LINKER']")))  # fmt: skip

    def run_program(self, *links: list[Step], by: tuple[str, ...] = ()) -> tuple[str, str]:
        """Compiles a part, then links."""
        command = [COMMAND, "--store", self.folder / "store", *by, "run", "--"] if by else []
        words = [self.python, "-c", self.COMPILES_AND_LINKS.replace("sys.stdin.buffer.read()", repr(TEXTS["part"].encode())),
                 nvrtc_of(self.linker), "LTOIR", self.folder / "made.lto", *KINDS["lto"][2]]  # fmt: skip
        environment = self.environment() | {"CUKILN_DAEMON": "off", "HOST_LINKER": str(self.linker)}
        done = subprocess.run([*command, *words], env=environment, cwd=self.folder, input=json.dumps(links), capture_output=True, text=True,
                              timeout=300)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_lto_ir_of_nvrtc(self) -> None:
        """fault 430: the second process compiles nothing, and links nothing."""
        for self.linker in linkers():
            with self.subTest(linker=self.linker):
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                steps: list[Step] = [["create", "-arch=sm_90", "-lto"], self.data("main.lto"), ["data", 3, str(self.folder / "made.lto"), "m"],
                                     ["complete"], ["parts"]]  # fmt: skip
                plain, _ = self.run_program(steps)
                totals = []
                for made in (1, 0):
                    shown, said = self.run_program(steps, by=("--json",))
                    self.assertEqual(said, plain)
                    totals.append(json.loads(shown))
                    for kind in (totals[-1], totals[-1]["links"]):
                        self.assertEqual((kind["compiled"], kind["hits"], kind["bypassed"]), (made, 1 - made, 0))
                self.assertEqual(totals[1]["links"]["saved_ms"], totals[0]["links"]["compile_ms"])

    def test_table(self) -> None:
        """fault 421"""
        links = [self.link("main.cubin", "part.cubin"), self.link("main.cubin", "part.cubin"), self.link("garbage.cubin"),
                 self.link("main.cubin", "part.cubin", options=("-arch=sm_90", "-time"))]  # fmt: skip
        links[2][1] = ["data", 1, self.file("garbage"), "g"]
        _, said = self.run_program(*links, by=("--color", "never"))
        table = re.search(r"(?ms)^1 program of NVRTC: .*?\n(4 links of nvJitLink: .*)", said)
        assert table is not None, said
        rows = table[1].splitlines()
        self.assertRegex(
            rows[0],
            r"^4 links of nvJitLink: 1 in the store \(.* saved\), 1 linked \(.*\), 1 did not link, 1 by nvJitLink itself\.$",
        )
        self.assertEqual(rows[1].split(), ["library", "hits", "linked", "failed", "bypassed", "saved"])
        self.assertEqual(rows[2].split()[1:5], ["1"] * 4)
        self.assertEqual(rows[3:], ["  1 by nvJitLink itself: the option -time"])
        self.assertLessEqual(max(map(len, rows[1:])), 80)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
