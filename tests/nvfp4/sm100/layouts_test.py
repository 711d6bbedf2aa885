# SPDX-License-Identifier: Apache-2.0
"""Descriptors and layouts of the sm_100a kernels, beside CUTLASS's own types.

usage: layouts_test.py COMPILER…
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from host_compiler import build, scratch_folder

REPOSITORY = Path(__file__).resolve().parents[3]
FETCHED = REPOSITORY / ".cukiln-cutlass"
CUTLASS = FETCHED / "cutlass_library" / "source" / "include"
CUDA = FETCHED / "nvidia" / "cu13" / "include"


def main():
    if not (CUTLASS / "cute" / "tensor.hpp").is_file():
        sys.exit(f"{CUTLASS} has no CUTLASS: run scripts/bootstrap --tests")
    ours = [f"-I{REPOSITORY / folder}" for folder in (".", "tests", "tests/nvfp4", "include")]
    theirs = [word for folder in (CUTLASS, CUDA, CUDA / "cccl") for word in ("-isystem", str(folder))]
    with scratch_folder() as folder:
        program = Path(folder, "layouts")
        flags = ["-std=c++20", "-O1", "-w", *ours, *theirs]
        if error := build(sys.argv[1:], flags, Path(__file__).with_name("layouts.cpp"), program):
            sys.exit(error)
        return subprocess.run([program], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
