# SPDX-License-Identifier: Apache-2.0
"""The loop of a sm_100a GEMM that issues its MMAs, from its machine code: how many instructions it has for a stage, and how long
they take to issue by the control word that the compiler gave each. Of its epilogue's innermost loop, the latter alone.

A control word has the clocks until the warp's next instruction may issue (the stall count), and scoreboards: those that the
instruction waits for, and those that it releases when it has read its operands or written its result. What a scoreboard costs
is not in the machine code, so the number of such waits is given beside the sum of stall counts, and `clocks` adds an assumed
time for each.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NVDISASM = REPOSITORY / ".cukiln-cutlass" / "nvidia" / "cu13" / "bin" / "nvdisasm"

FUNCTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(
    r"\s*/\*(?P<at>[0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][\w.]*)(?P<operands>[^;]*);"
    r"\s*/\* 0x[0-9a-f]{16} \*/"
)
CONTROL = re.compile(r"\s*/\* 0x(?P<word>[0-9a-f]{16}) \*/\s*$")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
NO_SCOREBOARD = 7


@dataclass(frozen=True)
class Instruction:
    at: int
    name: str
    target: str | None  # of a branch
    control: int

    @property
    def stall(self) -> int:
        return self.control >> 41 & 15

    @property
    def releases(self) -> set[int]:
        """Scoreboards that wait for its result or for its operands to be read."""
        return {self.control >> shift & 7 for shift in (46, 49)} - {NO_SCOREBOARD}

    @property
    def waits(self) -> set[int]:
        return {i for i in range(6) if self.control >> 52 + i & 1}


@dataclass(frozen=True)
class Function:
    instructions: list[Instruction]
    labels: dict[str, int]  # index of the instruction behind it

    def loops(self) -> list[list[Instruction]]:
        """The body of each backward branch."""
        found = []
        for end, branch in enumerate(self.instructions):
            begin = self.labels.get(branch.target or "", end + 1)
            if branch.name.startswith("BRA") and begin <= end:
                found.append(self.instructions[begin : end + 1])
        return found


@dataclass(frozen=True)
class IssueLoop:
    instructions: int
    stalls: int  # sum of stall counts, in clocks
    waits: int  # instructions that wait for a scoreboard
    mmas: int
    copies: int
    kinds: Counter
    epilogue_stalls: int  # of the innermost loop that loads sums from tensor memory, 0 if there is none

    def clocks(self, wait_clocks: float) -> float:
        return self.stalls + self.waits * wait_clocks


class NoIssueLoop(Exception):
    """A kernel has no loop, or several, with an MMA and a commit: the parser must be adapted to it."""


def functions(text: str) -> dict[str, Function]:
    """Of nvdisasm -hex -c: kernel -> its instructions."""
    found: dict[str, Function] = {}
    current, waiting = None, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            current = found.setdefault(match[1], Function([], {}))
        elif current is None:
            continue
        elif match := LABEL.match(line):
            current.labels[match[1]] = len(current.instructions)
        elif match := INSTRUCTION.match(line):
            target = TARGET.search(match["operands"])
            waiting = (int(match["at"], 16), match["name"], target[1] if target else None)
        elif waiting and (match := CONTROL.match(line)):
            current.instructions.append(Instruction(*waiting, int(match["word"], 16)))
            waiting = None
    return found


def issue_loop(name: str, function: Function) -> IssueLoop:
    """The innermost loop with an MMA and the commit of its stage; of several, the one with the most MMAs: others are for the first and
    last stages of a tile."""
    with_mma = [
        body
        for body in function.loops()
        if any(i.name.startswith("UTCOMMA") for i in body) and any(i.name.startswith("UTCBAR") for i in body)
    ]
    if not with_mma:
        raise NoIssueLoop(f"{name} has no loop with UTCOMMA and UTCBAR among {len(function.instructions)} instructions")
    innermost: list[list[Instruction]] = []
    for body in sorted(with_mma, key=len):
        if not any(body[0].at <= other[-1].at and other[0].at <= body[-1].at for other in innermost):
            innermost.append(body)
    body = max(innermost, key=lambda loop: sum(i.name.startswith("UTCOMMA") for i in loop))
    kinds = Counter(i.name for i in body)
    with_sums = [loop for loop in function.loops() if any(i.name.startswith("LDTM") for i in loop)]
    return IssueLoop(
        len(body),
        sum(i.stall for i in body),
        sum(1 for i in body if i.waits),
        sum(count for kind, count in kinds.items() if kind.startswith("UTCOMMA")),
        sum(count for kind, count in kinds.items() if kind.startswith("UTCCP")),
        kinds,
        sum(i.stall for i in min(with_sums, key=len)) if with_sums else 0,
    )


def disassemble(cubin: Path) -> dict[str, IssueLoop]:
    """Kernel -> its issue loop."""
    text = subprocess.run([NVDISASM, "-hex", "-c", cubin], check=True, capture_output=True, text=True).stdout
    return {name: issue_loop(name, function) for name, function in functions(text).items()}
