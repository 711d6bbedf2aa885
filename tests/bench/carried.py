# SPDX-License-Identifier: Apache-2.0
"""What travels with programs that are built here and run on a machine with a GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from results import COMMIT_FILE, commit_of


def write_commit(programs: Path) -> None:
    """Puts the commit beside programs that are carried to a machine without git."""
    (programs / COMMIT_FILE).unlink(missing_ok=True)
    (programs / COMMIT_FILE).write_text(commit_of(programs) + "\n", encoding="utf-8")


def copy_libraries(built: Path, folder: Path, *programs: str) -> None:
    """Copies cukiln's libraries and worker, `programs` beside them, and what these need and a machine with a GPU may lack."""
    files = [built / name for name in (*programs, "libcukiln.so", "libcukiln_nvfp4.so", "cukiln-compile-worker")]
    needed = subprocess.run(["ldd", files[0]], capture_output=True, text=True, check=True).stdout
    for file in [*files, *re.findall(r"=> (/\S*/lib(?:sqlite3|zstd|xxhash)\.so\S*)", needed)]:
        shutil.copy(file, folder)
