# SPDX-License-Identifier: Apache-2.0
"""One start with the cache of another project, in a process of its own.

usage: rivals.py RIVAL FOLDER PROGRAMS.json

PROGRAMS.json is [{"name": kernel, "code": CUDA C++}, ...]. The first call fills the cache in
FOLDER, the next ones measure. Imports and the device's initialisation are not counted;
everything from there to the last program in hand is. Prints {"programs_us": [...], "compiled": n,
"version": ...} with "cpu_us" where the device has no part in it and "hot_us" where a lookup can be
repeated; or says why it cannot run and exits with 3.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

HOT_ROUNDS = 2000


class NotHereError(Exception):
    """This rival cannot run on this machine."""


def now_us() -> float:
    return time.perf_counter_ns() / 1e3


def hot(look_up: Callable[[], object]) -> float:
    """The median of a lookup that was done many times before."""
    times = []
    for _ in range(HOT_ROUNDS):
        start = time.perf_counter_ns()
        look_up()
        times.append(time.perf_counter_ns() - start)
    return sorted(times)[len(times) // 2] / 1e3


def cuda_core(folder: Path, programs: list[dict]) -> dict:
    """FileStreamProgramCache: cubins in files, keyed by text and options. No headers are checked:
    it refuses include folders. Hands out bytes; loading them is another step."""
    import cuda.core
    from cuda.core import Program, ProgramOptions
    from cuda.core.utils import FileStreamProgramCache, make_program_cache_key

    options = ProgramOptions(arch="sm_100a", std="c++17")
    times, compiled = [], 0
    cpu_start = time.process_time_ns()
    start = now_us()
    cache = FileStreamProgramCache(str(folder / "cuda_core"))
    for program in programs:
        key = make_program_cache_key(code=program["code"], code_type="c++", options=options, target_type="cubin")
        if cache.get(key) is None:
            compiled += 1
            cache[key] = Program(program["code"], "c++", options).compile("cubin")
        times.append(now_us() - start)
        start = now_us()
    cpu_us = (time.process_time_ns() - cpu_start) / 1e3
    return {"programs_us": times, "cpu_us": cpu_us, "compiled": compiled, "version": cuda.core.__version__}


def cupy(folder: Path, programs: list[dict]) -> dict:
    """RawModule with its disk cache; loaded."""
    os.environ["CUPY_CACHE_DIR"] = str(folder / "cupy")
    import cupy

    if cupy.cuda.runtime.getDeviceCount() == 0:
        raise NotHereError("no device")
    cupy.zeros(1)
    known = set((folder / "cupy").glob("*"))
    times, modules = [], []
    start = now_us()
    for program in programs:
        module = cupy.RawModule(code=program["code"], options=("-std=c++17",))
        module.get_function(program["name"])
        modules.append((module, program["name"]))
        times.append(now_us() - start)
        start = now_us()
    compiled = len(set((folder / "cupy").glob("*")) - known)
    module, name = modules[0]
    return {"programs_us": times, "compiled": compiled, "hot_us": hot(lambda: module.get_function(name)),
            "version": cupy.__version__}


def triton(folder: Path, programs: list[dict]) -> dict:
    """As many variants of a kernel of its own; compiled or found, loaded, and launched once."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    import torch
    import triton
    import triton.language as tl

    if not torch.cuda.is_available():
        raise NotHereError("no device")

    @triton.jit
    def scale(x, n, factor: tl.constexpr, block: tl.constexpr):
        i = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(x + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)

    x = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()
    known = set((folder / "triton").glob("*"))
    times = []
    start = now_us()
    for i in range(len(programs)):
        scale[(4,)](x, 1024, i + 1, 256)
        times.append(now_us() - start)
        start = now_us()
    compiled = len(set((folder / "triton").glob("*")) - known)
    return {"programs_us": times, "compiled": compiled, "version": triton.__version__}


def cpp_extension(folder: Path, programs: list[dict]) -> dict:
    """torch.utils.cpp_extension.load of one file: what it takes when nothing changed."""
    import torch
    from torch.utils import cpp_extension

    if not torch.cuda.is_available() or cpp_extension.CUDA_HOME is None:
        raise NotHereError("no device, or no nvcc")
    build = folder / "cpp_extension"
    build.mkdir(parents=True, exist_ok=True)
    source = build / "scale.cu"
    if not source.exists():
        source.write_text(
            "#include <torch/extension.h>\n"
            + programs[0]["code"]
            + "\nvoid run() {}\n"
            + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }\n'
        )
    built = any(build.glob("*.so"))
    torch.zeros(1, device="cuda")
    start = now_us()
    cpp_extension.load("scale", [str(source)], build_directory=str(build))
    times = [now_us() - start]
    again = hot(lambda: cpp_extension.load("scale", [str(source)], build_directory=str(build)))
    return {"programs_us": times, "compiled": 0 if built else 1, "hot_us": again, "version": torch.__version__}


RIVALS = {"cuda_core": cuda_core, "cupy": cupy, "triton": triton, "cpp_extension": cpp_extension}


def main() -> int:
    rival, folder, programs = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    try:
        result = RIVALS[rival](folder, json.loads(programs.read_text()))
    except (ImportError, NotHereError) as reason:
        print(f"{rival}: {reason}", file=sys.stderr)
        return 3
    except (Exception) as reason:  # another project's library may raise anything
        print(f"{rival}: {type(reason).__name__}: {reason}", file=sys.stderr)
        return 3
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
