# SPDX-License-Identifier: Apache-2.0
"""Compiles with NVRTC over the real files, without any code of cukiln."""

import ctypes
import glob
import os
import struct
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def nvrtc_library():
    """Returns the path of libnvrtc: $CUKILN_NVRTC_LIBRARY, else the one of scripts/bootstrap, else a toolkit's."""
    if chosen := os.environ.get("CUKILN_NVRTC_LIBRARY"):
        return chosen
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    patterns = [str(REPOSITORY / ".cukiln-cuda/nvidia/*/lib/libnvrtc.so.*"),
                *(f"{toolkit}/lib64/libnvrtc.so.*" for toolkit in toolkits if toolkit)]
    for pattern in patterns:
        found = [path for path in sorted(glob.glob(pattern)) if ".alt." not in path]
        if found:
            return found[0]
    raise FileNotFoundError(f"no libnvrtc was found; searched {', '.join(patterns)}")


class Nvrtc:
    """NVRTC, loaded into this process."""

    def __init__(self, library):
        for builtins in sorted(glob.glob(str(Path(library).parent / "libnvrtc-builtins.so.*"))):
            if ".alt." not in builtins:
                ctypes.CDLL(builtins)
        self.library = ctypes.CDLL(library)

    def compile(self, path, flags):
        """Compiles a file. Returns (cubin, log); the cubin is None if the compile failed."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        arguments = [flag.encode() for flag in flags]
        text = Path(path).read_bytes()
        created = self.library.nvrtcCreateProgram(
            ctypes.byref(program), text, os.fsencode(path), 0, None, None)  # fmt: skip
        assert created == 0, created
        try:
            failed = self.library.nvrtcCompileProgram(
                program, len(arguments), (ctypes.c_char_p * len(arguments))(*arguments))  # fmt: skip
            log = self._take(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            return (None if failed else self._take(program, "CUBIN")), log
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _take(self, program, what):
        size = ctypes.c_size_t()
        assert getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
        memory = ctypes.create_string_buffer(size.value)
        assert getattr(self.library, f"nvrtcGet{what}")(program, memory) == 0
        return memory.raw


def code_of(cubin):
    """Returns the machine code of the kernel `k`, which contains no names of files and no flags."""
    sections, width, count, names = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    headers = [struct.unpack_from("<IIQQQQ", cubin, sections + i * width) for i in range(count)]
    start = headers[names][4]
    for name, _type, _flags, _address, offset, size in headers:
        if cubin[start + name :].startswith(b".text.k\0"):
            return cubin[offset : offset + size]
    raise ValueError("the cubin has no .text.k")
