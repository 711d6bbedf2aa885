# SPDX-License-Identifier: Apache-2.0
"""Machine code of kernels: what `cukiln compile` makes of a module, as nvdisasm prints it. environment:
CUKILN_TEST_BINARY_DIR."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
NVDISASM = REPOSITORY / ".cukiln-cutlass" / "nvidia" / "cu13" / "bin" / "nvdisasm"
CUKILN = Path(os.environ["CUKILN_TEST_BINARY_DIR"], "cukiln")
MANIFEST = REPOSITORY / "cache" / "manifests" / "shipped.json"
NO_SCOREBOARD = 7

SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
LABEL = re.compile(r"(\.L_x_\d+):")
INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+((?:@!?U?P\w+\s+)?)([A-Z][\w.]*)\s*([^;]*);\s+/\* 0x[0-9a-f]{16} \*/")
HIGH_WORD = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")


@dataclass(frozen=True)
class Instruction:
    """Of 128 bits. It begins once the scoreboards of `waits` (a bit each) are at rest, and has `scoreboard` be busy until its
    result is there; NO_SCOREBOARD: none."""

    address: int
    predicate: str
    operation: str
    operands: str
    scoreboard: int
    waits: int
    stall: int  # clocks until the warp's next instruction may begin
    labels: tuple[str, ...]  # that are here


def modules():
    """Those of the shipped manifest."""
    if not NVDISASM.is_file():
        raise FileNotFoundError(f"{NVDISASM} is missing: run scripts/bootstrap --tests")
    return json.loads(MANIFEST.read_text())["modules"]


def disassemble(cubin):
    """kernel -> its instructions."""
    text = subprocess.run([NVDISASM, "-c", "-hex", cubin], check=True, capture_output=True, text=True).stdout
    kernels, kernel, labels = {}, None, []
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""]):
        if found := SECTION.match(line):
            kernel, labels = kernels.setdefault(found[1], []), []
        elif kernel is not None and (found := LABEL.match(line)):
            labels.append(found[1])
        elif kernel is not None and (found := INSTRUCTION.match(line)):
            control = int(HIGH_WORD.match(following)[1], 16) >> 41
            kernel.append(Instruction(int(found[1], 16), found[2].strip(), found[3], found[4].strip(),
                                      control >> 5 & 7, control >> 11 & 63, control & 15, tuple(labels)))  # fmt: skip
            labels = []
    return kernels


def compile_module(module, folder, store, arch, nvrtc=None):
    """(name -> what the compiler reports, name -> its instructions) of a module's kernels."""
    sources = [(MANIFEST.parent / source).resolve() for source in module["sources"]]
    define = [f"-D{name}" if value is True else f"-D{name}={value}"
              for name, value in module.get("define", {}).items()]  # fmt: skip
    done = subprocess.run(
        [CUKILN, "compile", *sources, *define, "--arch", arch, "-o", folder, "--json", "--store", store],
        check=True, capture_output=True, text=True,
        env=os.environ | ({"CUKILN_NVRTC_LIBRARY": str(nvrtc)} if nvrtc else {}))  # fmt: skip
    functions = {f["name"]: f for m in json.loads(done.stdout)["modules"] for f in m["kernels"]}
    code = {}
    for cubin in sorted(Path(folder).iterdir()):
        code |= disassemble(cubin)
    assert sorted(functions) == sorted(code), (sorted(functions), sorted(code))
    return functions, code
