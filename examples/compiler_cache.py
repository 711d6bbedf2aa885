#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a compiler of your own makes, kept in cukiln's store: here the assembly of a C compiler.

    python examples/compiler_cache.py FILE.c...

`cukiln ls --blobs` lists what is stored. For Triton, cuda.core, Inductor and tvm-ffi there is
nothing to write: see cukiln.adapters.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import cukiln

COMPILER = ("cc", "-O2", "-S", "-x", "c", "-", "-o", "-")


def compiler_version() -> bytes:
    return subprocess.run(["cc", "--version"], capture_output=True, check=True).stdout


def compile_cached(blobs: cukiln.BlobStore, version: bytes, source: bytes) -> tuple[str, bytes]:
    # The key has to cover all that can change the result. Headers are not in this one: a compile of
    # CUDA C++ by cukiln.Loader finds and checks them itself.
    key = hashlib.sha256(b"\0".join([version, *map(str.encode, COMPILER), source])).digest()
    if (assembly := blobs.get(key)) is not None:
        return "hit", assembly
    assembly = subprocess.run(COMPILER, input=source, capture_output=True, check=True).stdout
    try:
        blobs.put(key, assembly)
    except cukiln.Error as error:  # a cache that fails must not fail the compile
        print(f"not stored: {error}", file=sys.stderr)
    return "compiled", assembly


def main(files: list[str]) -> int:
    if not files:
        print(__doc__, file=sys.stderr)
        return 2
    blobs, version = cukiln.BlobStore("cc-assembly"), compiler_version()
    for name in files:
        outcome, assembly = compile_cached(blobs, version, Path(name).read_bytes())
        print(f"{name}: {outcome}, {len(assembly.splitlines())} lines of assembly")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
