# SPDX-License-Identifier: Apache-2.0
"""What programs built against an older cukiln rely on is compared with tests/golden/abi.txt: the exported
symbols, the soname (fault 426), and sizes and offsets of the C structs.

usage: abi_test.py [--update] NM COMPILER LIBRARY GOLDEN HEADER…
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\n\} \1;", re.DOTALL)
COMMENT = re.compile(r"//[^\n]*")
MEMBER = re.compile(r"(\w+)(?:\[[^\]]*\])?\s*;")


def symbols(nm: str, library: str) -> list[str]:
    listing = subprocess.run(
        [nm, "--dynamic", "--defined-only", "--demangle", library],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return sorted({line.split(" ", 2)[2] for line in listing.splitlines()})


def soname(nm: str, library: str) -> str:
    dynamic = subprocess.run([nm.removesuffix("nm") + "readelf", "--dynamic", library], capture_output=True, text=True, check=True)
    return "soname " + re.findall(r"soname: \[(.*)\]", dynamic.stdout)[0]


def layouts(compiler: str, header: Path) -> list[str]:
    """`struct.member offset`, and `struct size`, as a C compiler sees them."""
    include = next(folder for folder in header.parents if folder.name == "include")
    lines = []
    for name, body in STRUCT.findall(header.read_text(encoding="utf-8")):
        lines.append(f'printf("%s: %zu bytes\\n", "{name}", sizeof({name}));')
        for member in MEMBER.findall(COMMENT.sub("", body)):
            lines.append(f'printf("%s.%s at %zu\\n", "{name}", "{member}", offsetof({name}, {member}));')
    program = (
        f"#include <stdio.h>\n#include <{header.relative_to(include)}>\nint main(void) {{\n"
        + "\n".join(lines)
        + "\nreturn 0; }\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "layouts.c", Path(folder) / "layouts"
        source.write_text(program, encoding="utf-8")
        subprocess.run([compiler, f"-I{include}", source, "-o", binary], check=True)
        return subprocess.run([binary], capture_output=True, text=True, check=True).stdout.splitlines()


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--update", action="store_true")
    for name in ("nm", "compiler", "library"):
        arguments.add_argument(name)
    arguments.add_argument("golden", type=Path)
    arguments.add_argument("headers", type=Path, nargs="+")
    given = arguments.parse_args()

    now = [line for header in given.headers for line in layouts(given.compiler, header)]
    if not now:
        sys.exit(f"{given.headers} have no struct: expected `typedef struct name {{ … }} name;`")
    now += [soname(given.nm, given.library), *symbols(given.nm, given.library)]
    if given.update:
        given.golden.write_text("\n".join(now) + "\n", encoding="utf-8")
        return 0
    kept = given.golden.read_text(encoding="utf-8").splitlines()
    changes = [
        line
        for line in difflib.unified_diff(kept, now, str(given.golden), "this build", lineterm="", n=0)
        if not line.startswith("@@")
    ]
    if changes:
        print("\n".join(changes))
        print("\nThe ABI differs from the one that was kept. Where a line is gone or changed, programs built before")
        print("break: keep it, or raise the minor version, of which the soname is made. Then keep the new one: add --update to this command.")
        return 1
    print(f"{len(now)} lines, as kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
