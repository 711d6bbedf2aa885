# SPDX-License-Identifier: Apache-2.0
"""What is shipped is hardened: what a memory error meets in a host's process, and in the worker's.

usage: hardening_test.py [--unoptimised] BINARY…

Reads the binaries with readelf and nm. `--unoptimised` is for a Debug build, which has no FORTIFY.
This is fault 117.
"""

import argparse
import platform
import re
import subprocess
import sys
from pathlib import Path

ENDBR64 = b"\xf3\x0f\x1e\xfa"


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def branch_protected(binary):
    """Whether functions begin with endbr64. The property note cannot tell: Debian's own start-up files
    lack it, so no program there has one."""
    section = re.search(r"\] \.text +PROGBITS +(\w+) (\w+) (\w+)", output_of("readelf", "-SW", binary))
    address, offset, size = (int(number, 16) for number in section.groups())
    code = Path(binary).read_bytes()[offset : offset + size]
    exported = [
        int(line.split()[0], 16) - address
        for line in output_of("nm", "-D", "--defined-only", binary).splitlines()
        if " T " in line
    ]
    ours = [at for at in exported if 0 <= at < size]
    if ours:  # start-up code of libc's, which a program exports with -rdynamic, does not
        return sum(code[at : at + 4] == ENDBR64 for at in ours) > 0.99 * len(ours)
    return code.count(ENDBR64) * 1024 > size  # stripped: one in a KiB; without the flag there are two in all


def failures_of(binary, optimised):
    header = output_of("readelf", "-hW", binary)
    segments = output_of("readelf", "-lW", binary)
    dynamic = output_of("readelf", "-dW", binary)
    called = re.findall(r"U (__\w+_chk(?:_fail)?)", output_of("nm", "-D", "--undefined-only", binary))
    fortified = [name for name in called if name != "__stack_chk_fail"]
    flags = "".join(re.findall(r"\(FLAGS(?:_1)?\).*", dynamic))
    stack = re.search(r"GNU_STACK.*", segments)
    wanted = {
        "its address is random (PIE, or a library)": "DYN (" in header,
        "an executable is marked as PIE": "INTERP" not in segments or "PIE" in flags,
        "relocations are read-only": "GNU_RELRO" in segments,
        "symbols are bound at start": "NOW" in flags,
        "the stack is not executable": stack is not None and "RWE" not in stack[0],
        "nothing is writable and executable": not re.search(r"LOAD .* RWE ", segments),
        "code needs no relocation": "TEXTREL" not in dynamic,
        "stacks have guards": "__stack_chk_fail" in called,
        "libc checks sizes (FORTIFY)": bool(fortified) or not optimised,
        "branches land where they may": platform.machine() != "x86_64" or branch_protected(binary),
    }
    return [rule for rule, holds in wanted.items() if not holds]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unoptimised", action="store_true")
    parser.add_argument("binaries", nargs="+")
    given = parser.parse_args()
    failed = 0
    for binary in given.binaries:
        failures = failures_of(binary, not given.unoptimised)
        failed += len(failures)
        print(f"{Path(binary).name}: " + ("; ".join(f"NOT: {rule}" for rule in failures) or "hardened"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
