#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packages that compile with NVRTC, and their own tests, without cukiln and under `cukiln run`: the same results by name, twice,
and what the second process found in the store. No GPU is needed.

usage: scripts/test --peers [--work FOLDER] [--python PYTHON] [--source NAME=FOLDER]… [--only PEER]… [-o FILE]

Builds nothing of cukiln: it takes build/release/bin. It makes virtual environments in --work (build/peers), with packages at the
versions below. Tests that a package does not bring are fetched by git from the address below, or, where that cannot be reached,
taken from a git folder that has the commit (--source). A driver that runs nothing stands in. It writes tests/peers/results/cpu.json
(-o: another file); exit code 1 if a result differs. As root it also runs Humming as another user, who must be able to read --work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BINARIES = REPOSITORY / "build" / "release" / "bin"
sys.path.insert(0, str(REPOSITORY / "tests" / "bench"))
sys.dont_write_bytecode = True
import results  # noqa: E402

NVRTC = ["nvidia-cuda-nvrtc==13.5.37", "nvidia-cuda-runtime==13.5.37", "nvidia-cuda-cccl==13.3.5.0.6", "cuda-bindings==13.5.0"]
PACKAGES = {
    "python": [*NVRTC, "cuda-core[cu13]==1.2.2", "numba-cuda[cu13]==0.30.4", "cupy-cuda13x==14.2.0", "apache-tvm-ffi==0.1.15.post2",
               "nvidia-cuda-crt==13.5.37", "nvidia-nvtx==13.5.25", "pytest==9.2.0", "psutil", "filecheck"],
    "humming": [*NVRTC, "torch==2.13.0", "triton==3.9.0", "humming-kernels==0.1.20", "jinja2", "safetensors", "tqdm", "tabulate",
                "filelock", "numpy", "packaging", "typing-extensions", "sympy", "networkx", "fsspec"],
    "vllm": ["torch==2.13.0", "compressed-tensors==0.17.0", "xgrammar==0.2.8", "apache-tvm-ffi==0.1.15.post2", "transformers<5.21",
             "pytest==9.2.0", *"aiohttp blake3 cachetools cbor2 cloudpickle einops fastapi filelock fsspec ijson jinja2 jsonschema"
             " llguidance loguru mcp msgspec networkx numpy openai orjson oss-harmony partial-json-parser pillow prometheus_client"
             " protobuf psutil py-cpuinfo pybase64 pydantic python-json-logger pyyaml pyzmq regex requests setproctitle sympy tiktoken"
             " tqdm uvloop watchfiles".split()],
}  # fmt: skip
# Which would bring CUDA's libraries, 4 GB.
WITHOUT_DEPENDENCIES = ("torch", "triton", "humming-kernels", "compressed-tensors", "xgrammar")
VLLM = "0.33.0"
SOURCES = {
    "cuda-python": ("https://github.com/NVIDIA/cuda-python", "cb56ab9f9ae3b4a0ef19666697336945925589a5"),
    "jitify": ("https://github.com/NVIDIA/jitify", "44e978b21fc8bdb6b2d7d8d179523c8350db72e5"),  # branch jitify2
    "googletest": ("https://github.com/google/googletest", "15460959cbbfa20e66ef0b5ab497367e47fc0a04"),  # 1.12.0, Jitify2's
}
OTHER_USER = 65534
COUNTS = ("hits", "compiled", "failed", "bypassed")


def call(words: list, **named: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in words], check=False, text=True, **named)


def must(words: list, **named: object) -> str:
    done = call(words, capture_output=True, **named)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, words))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


class Bench:
    def __init__(self, work: Path, python: str, given: dict[str, Path]):
        self.work = work
        self.python = python
        self.given = given
        self.rows: list[dict] = []
        self.bad = False
        self.software: dict[str, str] = {}
        self.scratch = work / "scratch"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        driver = work / "driver"
        driver.mkdir(exist_ok=True)
        for name in ("libcuda.so.1", "libcuda.so"):
            must(["cc", "-shared", "-fPIC", "-o", driver / name, HERE / "fake_driver.c", "-ldl"])
        self.environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "LD_LIBRARY_PATH": str(driver), "CUDA_CACHE_DISABLE": "1",
                            "PYTHONDONTWRITEBYTECODE": "1", "CUKILN_DAEMON": "off", "CUKILN_LOG": "error",
                            "CUKILN_SYSTEM_STORE": "/nonexistent", "HUMMING_COMPILER": "nvrtc", "CUPY_WITHOUT_GPU": "1"}  # fmt: skip

    def packages(self, name: str) -> Path:
        """The Python of a virtual environment with these packages."""
        folder, wanted = self.work / name, PACKAGES[name]
        python = folder / "bin" / "python"
        listed = folder / "requirements.json"
        if not listed.exists() or json.loads(listed.read_text()) != wanted:
            print(f"installing {name}", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
            must([self.python, "-m", "venv", folder])
            install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            alone = [each for each in wanted if each.split("==")[0] in WITHOUT_DEPENDENCIES]
            must([*install, *(each for each in wanted if each not in alone)])
            for each in alone:  # PyTorch's build for the CPU is smaller, where pip finds it
                if not each.startswith("torch==") or call([*install, "--no-deps", f"{each}+cpu"], capture_output=True).returncode != 0:
                    must([*install, "--no-deps", each])
            listed.write_text(json.dumps(wanted))
        for line in must([python, "-m", "pip", "freeze", "--disable-pip-version-check"]).splitlines():
            package, _, version = line.partition("==")
            if package in {each.split("==")[0].split("[")[0] for each in wanted if "==" in each}:
                self.software[package] = version
        return python

    def source(self, name: str) -> Path:
        """A checkout at the commit of the table."""
        address, commit = SOURCES[name]
        folder = self.work / f"{name}-{commit[:12]}"
        if not folder.exists():
            part = self.scratch / name
            part.mkdir()
            must(["git", "init", "-q", part])
            must(["git", "-C", part, "fetch", "-q", "--depth=1", self.given.get(name, address), commit])
            must(["git", "-C", part, "checkout", "-q", "FETCH_HEAD"])
            part.rename(folder)
        self.software[name] = commit
        return folder

    def run(self, words: list, store: Path | None, **more: object) -> tuple[subprocess.CompletedProcess, dict]:
        """The process, and what `cukiln run` counted; {} without a store, which is without cukiln."""
        home = Path(str(more.pop("home", self.scratch / "home")))
        home.mkdir(exist_ok=True, parents=True)
        environment = self.environment | {"HOME": str(home)} | dict(more.pop("variables", {}))
        before = [] if store is None else [BINARIES / "cukiln", "--json", "--store", store, "run", "--"]
        done = call([*before, *words], env=environment, capture_output=True, **more)
        if store is None:
            return done, {}
        try:
            said = json.loads(done.stdout)
        except ValueError:
            sys.exit(f"error: cukiln run printed no document:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        reasons = sorted({reason.partition("=")[0] for reason in said["bypass_reasons"]})
        return done, {name: said[name] for name in COUNTS} | ({"why_bypassed": reasons} if reasons else {})

    def suite(self, peer: str, what: str, words: list, read: Callable[[Path], dict[str, str]], clean: Path | None = None,
              known: tuple[tuple[str, ...], int, str] = ((), 0, ""), **more: object) -> None:  # fmt: skip
        """A suite of tests, plain and twice under cukiln. `words` has REPORT where its results are to go. `clean`: the checkout that
        the tests write to. `known`: tests that end differently, programs that are compiled again, and why."""
        store = self.scratch / "stores" / peer
        report = self.scratch / f"{peer}.report"
        found, counted = [], []
        for where in (None, store, store):
            report.unlink(missing_ok=True)
            if clean is not None:
                must(["git", "-C", clean, "clean", "-fdxq"])
            done, counts = self.run([str(word).replace("REPORT", str(report)) for word in words], where, **more)
            if not report.exists():
                sys.exit(f"error: {peer} wrote no results:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
            found.append(read(report))
            counted.append(counts)
        plain = found[0]
        differ = {name for other in found[1:] for name in plain.keys() | other.keys() if plain.get(name) != other.get(name)}
        outcomes = list(plain.values())
        self.keep({"peer": peer, "what": what} | {name: outcomes.count(name) for name in ("passed", "failed", "skipped")}
                  | {"differ": sorted(differ - set(known[0])), "differ_as_known": sorted(differ & set(known[0]))}
                  | {"empty_store": counted[1], "own_store": counted[2], "note": known[2]}, known[1])  # fmt: skip

    def program(self, peer: str, words: list, **more: object) -> Path:
        """A program that prints {seconds, kernels}, plain and twice under cukiln. Returns its store."""
        store = self.scratch / "stores" / peer
        row: dict = {"peer": peer, "what": "programs"}
        kernels = []
        for column, where in (("plain", None), ("empty_store", store), ("own_store", store)):
            row |= self.time(peer, column, words, where, kernels, **more)
        self.keep(row | {"kernels": len(kernels[0]), "differ": sum(each != kernels[0] for each in kernels)})
        return store

    def time(self, peer: str, column: str, words: list, store: Path | None, kernels: list, **more: object) -> dict:
        folder = self.scratch / f"{peer}-{column}"
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        variables = {"HUMMING_CACHE_DIR": str(folder)} | dict(more.pop("variables", {}))
        done, counts = self.run(words, store, variables=variables, **more)
        text = done.stdout if store is None else done.stderr
        try:
            said = json.loads(text[text.index('{"seconds"') :].splitlines()[0])
        except ValueError:
            sys.exit(f"error: {peer} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        kernels.append(said["kernels"])
        return {column: {"seconds": results.rounded(said["seconds"])} | counts}

    def keep(self, row: dict, may_compile: int = 0) -> None:
        row = {name: value for name, value in row.items() if name == "differ" or value not in ([], "")}
        self.rows.append(row)
        self.bad |= bool(row["differ"]) or row.get("own_store", {"compiled": 0})["compiled"] > may_compile
        print(json.dumps(row), file=sys.stderr)


def outcomes_of_pytest(report: Path) -> dict[str, str]:
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}.{case.get('name')}"] = {"skipped": "skipped"}.get(*bad, "failed") if bad else "passed"
    return found


def pytest(python: Path, *files: str) -> list:
    return [python, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir=.", "--confcutdir=.", "-p", "no:cacheprovider", "--junitxml=REPORT", *files]


def cuda_core(bench: Bench) -> None:
    python, source = bench.packages("python"), bench.source("cuda-python")
    files = [f"test_{name}.py" for name in ("program", "linker", "module", "program_compile_cache")]
    bench.suite("cuda.core", "its tests of Program, Linker, modules and caches", pytest(python, *files), outcomes_of_pytest, source,
                ((), 2, "two debug programs have the name of a random file"), cwd=source / "cuda_core" / "tests", variables={"PYTHONPATH": str(source / "cuda_python_test_helpers")})  # fmt: skip


def cuda_bindings(bench: Bench) -> None:
    python, source = bench.packages("python"), bench.source("cuda-python")
    bench.suite("cuda.bindings", "its tests of NVRTC and nvJitLink", pytest(python, "test_nvrtc.py", "test_nvjitlink.py"),
                outcomes_of_pytest, source, cwd=source / "cuda_bindings" / "tests",
                variables={"PYTHONPATH": str(source / "cuda_python_test_helpers")})  # fmt: skip


def numba_cuda(bench: Bench) -> None:
    modules = [f"numba.cuda.tests.{name}" for name in (
        "cudadrv.test_nvrtc", "cudadrv.test_linker", "cudadrv.test_linkable_code", "cudadrv.test_nvjitlink",
        "cudadrv.test_module_callbacks", "cudadrv.test_inline_ptx", "nocuda")]  # fmt: skip
    bench.suite("numba-cuda", "its tests of NVRTC, linking and those without a GPU",
                [bench.packages("python"), HERE / "run_numba_tests.py", "REPORT", *modules],
                lambda report: json.loads(report.read_text()))  # fmt: skip


def jitify2(bench: Bench) -> None:
    python, source, gtest = bench.packages("python"), bench.source("jitify"), bench.source("googletest") / "googletest"
    (toolkit,) = (python.parents[1] / "lib").glob("python3*/site-packages/nvidia/cu13")
    made = bench.scratch / "jitify"
    build = made / "build"
    build.mkdir(parents=True)
    for folder, to in (("example_headers", build), ("serialization_goldens", made)):
        shutil.copytree(source / folder, to / folder)
    paths = [bench.environment["LD_LIBRARY_PATH"], str(toolkit / "lib")]
    environment = bench.environment | {"LD_LIBRARY_PATH": ":".join(paths)}
    compile_ = ["c++", "-std=c++17", "-w", f"-I{source}", f"-I{toolkit}/include", f"-I{toolkit}/include/cccl", f"-I{build}"]
    libraries = [toolkit / "lib" / "libcudart.so.13", "-ldl", "-pthread"]
    for tool in ("stringify", "jitify2_preprocess"):
        must([*compile_, source / f"{tool}.cpp", "-o", build / tool, *libraries])
    text = must([build / "stringify", "example_headers/my_header1.cuh"], cwd=source)
    (build / "example_headers" / "my_header1.cuh.jit").write_text(text)
    must([build / "jitify2_preprocess", "-i", "--minify", "-o", build, "-s", "jitify2_test_kernels.cu.headers",
          "jitify2_test_kernels.cu"], cwd=source, env=environment)  # fmt: skip
    must([*compile_, f"-I{gtest}/include", f"-I{gtest}", "-include", "cuda_runtime.h", f'-DCUDA_INC_DIR="{toolkit}/include"',
          f'-DCUB_DIR="{toolkit}/include/cccl"', "-x", "c++", source / "jitify2_test.cu",
          build / "jitify2_test_kernels.cu.headers.jit.cpp", gtest / "src" / "gtest-all.cc", "-x", "none", "-o",
          build / "jitify2_test", *libraries])  # fmt: skip
    # Not by its XML, which the last of two runs in one process writes. A benchmark is no test of results.
    bench.suite("Jitify2", "its tests", ["sh", "-c", "./jitify2_test '--gtest_filter=-*LatencyBenchmark*' > REPORT 2>&1; true"],
                lambda report: {name: "passed" if word == "OK" else "failed" for word, name in re.findall(
                    r"^\[ +(OK|FAILED) +\] (\S+) \(\d+ ms\)$", report.read_text(), re.MULTILINE)},
                known=(("Jitify2Test.PrecompiledHeaders", "Jitify2Test.PrecompiledHeadersAutoHeapResize"), 0,
                       "two tests read NVRTC's notes on precompiled headers, which are not written"),
                cwd=build, variables={"LD_LIBRARY_PATH": environment["LD_LIBRARY_PATH"]})  # fmt: skip


def cupy(bench: Bench) -> None:
    python = bench.packages("python")
    (include,) = (python.parents[1] / "lib").glob("python3*/site-packages/nvidia/cu13/include")
    bench.program("CuPy", [python, HERE / "compiles_with_cupy.py", include])


def tvm_ffi(bench: Bench) -> None:
    bench.program("tvm-ffi", [bench.packages("python"), HERE / "compiles_with_tvm_ffi.py"])


def humming(bench: Bench) -> None:
    """Besides: its package copied, with new times, and a store into which a bundle was imported; the same as another user."""
    words = [bench.packages("humming"), HERE / "compiles_with_humming.py"]
    store = bench.program("Humming", words)
    row = bench.rows[-1]
    bundle = bench.scratch / "humming.ckb"
    must([BINARIES / "cukiln", "--store", store, "export", "-o", bundle], env=bench.environment | {"HOME": str(bench.scratch / "home")})
    (package,) = (Path(words[0]).parents[1] / "lib").glob("python3*/site-packages/humming")
    copied = bench.scratch / "root" / "of an image"
    shutil.copytree(package, copied / "humming", copy_function=shutil.copyfile)
    for program in (copied / "humming" / "_native").rglob("nvrtc_compile"):
        program.chmod(0o755)
    kernels: list = []
    users = {"bundle_in_another_root": {}, "another_user": {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}}
    for column, user in users.items():
        if user and os.geteuid() != 0:
            continue
        home = bench.scratch / column
        home.mkdir()
        os.chown(home, user.get("user", -1), user.get("group", -1))
        environment = bench.environment | {"HOME": str(home)}
        must([BINARIES / "cukiln", "--store", home / "store", "import", "--insecure", bundle], env=environment, **user)
        row |= bench.time("Humming", column, words, home / "store", kernels, home=home, variables={"PYTHONPATH": str(copied)}, **user)
    row["differ"] += sum(each != kernels[0] or len(each) != row["kernels"] for each in kernels)
    bench.bad |= row["differ"] != 0 or any(row[column]["compiled"] for column in users if column in row)
    print(json.dumps(row), file=sys.stderr)


def vllm(bench: Bench) -> None:
    """The plugin in vLLM's own Python code, which is all of its wheel that is used."""
    python = bench.packages("vllm")
    code, report = bench.work / f"vllm-{VLLM}", bench.scratch / "vllm.xml"
    if not code.exists():
        must([python, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", bench.scratch, f"vllm=={VLLM}"])
        with zipfile.ZipFile(next(bench.scratch.glob("vllm-*.whl"))) as wheel:
            wheel.extractall(bench.scratch / "vllm", [name for name in wheel.namelist() if name.endswith(".py") or ".dist-info/" in name])
        (bench.scratch / "vllm").rename(code)
    bench.software["vllm"] = VLLM
    done, _ = bench.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", REPOSITORY / "tests/python/torch_vllm_with_peers.py"],
        None, variables={"CUKILN_TEST_VLLM": str(code), "CUKILN_LIBRARY": str(BINARIES / "libcukiln.so"),
                         "CUKILN_TEST_BINARY_DIR": str(BINARIES), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": str(REPOSITORY / "src/bindings/python")})  # fmt: skip
    if not report.exists():
        sys.exit(f"error: vLLM's tests wrote no results:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    outcomes = list(outcomes_of_pytest(report).values())
    bench.keep({"peer": "vLLM", "what": "the plugin"} | {name: outcomes.count(name) for name in ("passed", "failed", "skipped")}
               | {"differ": sorted(name for name, outcome in outcomes_of_pytest(report).items() if outcome == "failed")})  # fmt: skip


# One line each; what runs tests of this repository beside a package calls `suite` with them.
PEERS: dict[str, Callable[[Bench], None]] = {
    "cuda.core": cuda_core,
    "cuda.bindings": cuda_bindings,
    "numba-cuda": numba_cuda,
    "Jitify2": jitify2,
    "CuPy": cupy,
    "tvm-ffi": tvm_ffi,
    "Humming": humming,
    "vLLM": vllm,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test --peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=REPOSITORY / "build" / "peers")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--source", action="append", default=[], metavar="NAME=FOLDER", help=f"one of {', '.join(SOURCES)}")
    parser.add_argument("--only", action="append", choices=PEERS)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "cpu.json")
    arguments = parser.parse_args()
    if not (BINARIES / "cukiln").exists():
        sys.exit(f"error: no cukiln in {BINARIES}; build it: scripts/test")
    given = {name: Path(folder).absolute() for name, _, folder in (each.partition("=") for each in arguments.source)}
    commit = results.commit_of(BINARIES)
    bench = Bench(arguments.work.absolute(), arguments.python, given)
    for name in arguments.only or PEERS:
        print(f"{name} …", file=sys.stderr)
        PEERS[name](bench)
    shutil.rmtree(bench.scratch)
    command = " ".join(["scripts/test --peers", *(f"--only {name}" for name in arguments.only or ())])
    made = results.record("peers", device={"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
                          commit=commit, command=command, software=bench.software,
                          note=f"load {os.getloadavg()[2]:.1f}", results=bench.rows)  # fmt: skip
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    results.write(arguments.output, made)
    print(arguments.output)
    if bench.bad:
        print("error: see `differ`, or what was compiled with the own store, in the rows above", file=sys.stderr)
    return int(bench.bad)


if __name__ == "__main__":
    sys.exit(main())
