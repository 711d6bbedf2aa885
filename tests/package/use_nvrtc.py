# SPDX-License-Identifier: Apache-2.0
"""A program that knows NVIDIA's interfaces only: compiles a file for sm_90, links it by the nvJitLink beside NVRTC, and prints the
size of the cubin.

usage: use_nvrtc.py LIBRARY FILE
"""

import ctypes
import sys
from pathlib import Path

nvrtc = ctypes.CDLL(sys.argv[1])
program = ctypes.c_void_p()
text = Path(sys.argv[2]).read_bytes()
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, sys.argv[2].encode(), 0, None, None) == 0
options = (ctypes.c_char_p * 2)(b"-arch=sm_90", b"-rdc=true")
assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0
size = ctypes.c_size_t()
assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
cubin = ctypes.create_string_buffer(size.value)
assert nvrtc.nvrtcGetCUBIN(program, cubin) == 0

(library,) = Path(sys.argv[1]).parent.glob("libnvJitLink.so.*")
linker, link = ctypes.CDLL(str(library)), ctypes.c_void_p()
assert linker.nvJitLinkCreate(ctypes.byref(link), 1, options) == 0
assert linker.nvJitLinkAddData(link, 1, cubin, size, b"add") == 0
assert linker.nvJitLinkComplete(link) == 0
assert linker.nvJitLinkGetLinkedCubinSize(link, ctypes.byref(size)) == 0
assert size.value > 0
print(size.value)
