# SPDX-License-Identifier: Apache-2.0
"""Only the documented C functions and the library's own namespaces leave it.

usage: exports_test.py NM LIBRARY --headers HEADER… --namespaces NAME… --without NAME…
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path


# For libcukiln_nvrtc and libcukiln_nvjitlink, which are built with libcukiln.
INTERNAL = {"cukiln_nvrtc_find", "cukiln_nvrtc_open"}


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("nm")
    arguments.add_argument("library")
    arguments.add_argument("--headers", nargs="+")
    arguments.add_argument("--namespaces", nargs="+")
    arguments.add_argument("--without", nargs="*", help="namespaces of cukiln's that are another library's")
    given = arguments.parse_args()
    nm, library, headers = given.nm, given.library, given.headers
    listing = subprocess.run(
        [nm, "--dynamic", "--defined-only", "--demangle", library],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = [line.split(" ", 2)[2] for line in listing.splitlines()]
    failures = []

    spaces = "|".join(map(re.escape, given.namespaces))
    cxx = re.compile(rf"(?:(?:vtable|typeinfo|typeinfo name) for )?(?:{spaces})::")
    inside = "".join(rf"{name}::|" for name in given.without)
    for name in names:
        if not name.startswith("cukiln_") and not cxx.match(name):
            failures.append(f"{name} is exported")
        # The layers below the public API stay inside, and what is the other library's is not there.
        if re.match(
            rf"cukiln::(?:{inside}\(anonymous|embedded::|c::|torch::|detail::|nvfp4::detail::"
            r"|SqliteStore|DriverApi|Builder)",
            name,
        ):
            failures.append(f"{name} is exported")

    text = "".join(Path(header).read_text(encoding="utf-8") for header in headers)
    declared = set(re.findall(r"CUKILN_API[^;(]*?\b(cukiln_\w+)\(", text))
    exported = {name for name in names if name.startswith("cukiln_")} - INTERNAL
    failures += [f"{name} is declared and not exported" for name in sorted(declared - exported)]
    failures += [f"{name} is exported and not declared" for name in sorted(exported - declared)]
    if not declared:
        failures.append(f"no function found in {headers}")

    print(
        "\n".join(failures) or f"{len(exported)} C functions, {len(names) - len(exported)} of C++"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
