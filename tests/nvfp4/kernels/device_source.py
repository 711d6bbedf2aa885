# SPDX-License-Identifier: Apache-2.0
"""Device code for a host compiler: every asm statement becomes calls of the functions in ptx.hpp.

    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    product = ptx::mul_rn_f32(a, b);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
    ptx::prefetch_global_L2(from);

An instruction of STATEMENTS is a call with all of its operands, of which the function writes some.

The rest of the source stays as it is: device.hpp gives it what it takes from the CUDA language.
"""

from __future__ import annotations

import re
from pathlib import Path


STATEMENTS = re.compile(r"mma\.sync\.|cp\.async\.")


def translate(text: str) -> str:
    parts, at = [], 0
    for statement in re.finditer(r"\basm\s*(?:volatile\s*)?\(", text):
        end = closing(text, statement.end() - 1)
        if text[end + 1] != ";":
            raise ValueError(f"not a statement: {text[statement.start():end + 2]}")
        parts += [text[at : statement.start()], calls(text[statement.end() : end])]
        at = end + 2
    return "".join(parts) + text[at:]


def translate_files(source: Path, names: list[str], destination: Path) -> None:
    """Those files of a folder, and what they include from it."""
    left, done = list(names), set()
    while left:
        name = left.pop()
        text = (source / name).read_text(encoding="utf-8")
        (destination / name).write_text(translate(text), encoding="utf-8")
        done.add(name)
        left += set(re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)) - done


def closing(text: str, at: int) -> int:
    """Index of what closes the parenthesis at `at`."""
    depth, quoted = 0, False
    while True:
        if text[at] == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1


def calls(operands: str) -> str:
    """The statement's inside, as a block of C++."""
    strings = re.match(r'(?:\s|//[^\n]*|"(?:[^"\\]|\\.)*")*', operands).group()
    instructions = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings))
    instructions = instructions.replace("\\n", "\n").replace("\\t", "")
    values, at = [], len(strings)
    for operand in re.finditer(r'"[=+]?[a-z]"\s*\(', operands):
        if operand.start() >= at:
            at = closing(operands, operand.end() - 1)
            values.append(operands[operand.end() : at])
    lines = []
    for instruction in re.split(r"[;\n]", instructions):
        instruction = instruction.strip(" {}\n") if "," not in instruction else instruction.strip()
        if not instruction:
            continue
        if instruction.startswith("{."):  # a declaration that opens a scope
            instruction = instruction[1:]
        name, _, rest = instruction.partition(" ")
        if name == ".reg":
            kind, names = rest.split(" ", 1)
            lines.append(f"{'float' if kind == '.f32' else 'std::uint32_t'} {names};")
            continue
        if halves := re.fullmatch(r"mov\.b32 \{(\w+), (\w+)\}, (\S+)", instruction):
            low, high, pair = halves.groups()
            lines.append(with_operands(f"{low} = {pair} & 0xFFFF; {high} = {pair} >> 16;", values))
            continue
        if halves := re.fullmatch(r"mov\.b32 (\S+), \{(\w+), (\w+)\}", instruction):
            pair, low, high = halves.groups()
            lines.append(with_operands(f"{pair} = {low} | {high} << 16;", values))
            continue
        target, *given = [part.strip() for part in rest.replace("{", "").replace("}", "").split(",")]
        if target == "_":  # the result is not wanted
            target = ""
        if target.startswith("["):  # an address, and nothing is written
            target, given = "", [target[1:-1], *given]
        given = [part[1:-1] if part.startswith("[") else part for part in given]
        given = [re.sub(r"^0f([0-9A-F]{8})$", r"ptx::f32(0x\1u)", part) for part in given]
        if target and STATEMENTS.match(name):
            target, given = "", [target, *given]
        function = re.sub(r"::(?=\d)", "_", name.replace(".", "_"))
        line = f"ptx::{function}({', '.join(given)});"
        if target:
            line = f"{target} = {line}"
        lines.append(with_operands(line, values))
    return "{ " + " ".join(lines) + " }"


def with_operands(line: str, values: list[str]) -> str:
    return re.sub(r"%(\d+)", lambda number: f"({values[int(number[1])]})", line)
