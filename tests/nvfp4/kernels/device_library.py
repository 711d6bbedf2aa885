# SPDX-License-Identifier: Apache-2.0
"""What the tests of device code on the CPU share: NumPy and ml_dtypes, as scripts/bootstrap --tests fetches them, and
the library that the compiler in a test's arguments makes of device code."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
FETCHED = REPOSITORY / ".cukiln-numpy"

sys.path[:0] = [str(FETCHED), str(HERE.parents[1] / "support")]
try:
    import ml_dtypes  # noqa: F401
    import numpy  # noqa: F401, ICN001
except ImportError as missing:
    sys.exit(f"{missing}: {FETCHED} is not there, or for another Python. Run scripts/bootstrap --tests.")
from host_compiler import build


class CompileError(Exception):
    """What the compiler said."""


def compile_library(source: str, folder: Path, name: str, *flags: str) -> ctypes.CDLL:
    """`source`: a file beside this one, which includes translated device code from the folder."""
    library = folder / f"{name}.so"
    all_flags = ["-std=c++20", "-O2", "-ffp-contract=off", "-w", "-shared", "-fPIC", f"-I{HERE}", "-I.", *flags]
    if error := build(sys.argv[1:], all_flags, HERE / source, library):
        raise CompileError(error)
    return ctypes.CDLL(str(library))
