# SPDX-License-Identifier: Apache-2.0
"""Builds device code for the CPU in two steps, compiling and linking, since ccache keeps objects only: of the mutants
of a source that did not change, none is compiled again."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path


def scratch_folder() -> tempfile.TemporaryDirectory:
    """A folder to build in, below the test's own: paths from it to the sources are the same in all checkouts, as in
    ccache's keys."""
    return tempfile.TemporaryDirectory(prefix="build-", dir=Path.cwd())


def build(compiler, flags, source, output, *linked) -> str:
    """Builds `output` in its folder; returns what the compiler says if that fails, else nothing. `flags` are for both
    steps, `linked` for the second."""
    output = Path(output)
    for step in ([*flags, "-c", source, "-o", f"{output.name}.o"], [*flags, f"{output.name}.o", *linked, "-o", output.name]):
        done = subprocess.run([*compiler, *map(str, step)], cwd=output.parent, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.stderr or f"the compiler ended with {done.returncode}"
    return ""
