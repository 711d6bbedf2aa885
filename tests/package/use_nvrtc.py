# SPDX-License-Identifier: Apache-2.0
"""A program that knows NVRTC's interface only: compiles a file for sm_90 and prints the size of the cubin.

usage: use_nvrtc.py LIBRARY FILE
"""

import ctypes
import sys
from pathlib import Path

nvrtc = ctypes.CDLL(sys.argv[1])
program = ctypes.c_void_p()
text = Path(sys.argv[2]).read_bytes()
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, sys.argv[2].encode(), 0, None, None) == 0
options = (ctypes.c_char_p * 1)(b"-arch=sm_90")
assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0
size = ctypes.c_size_t()
assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
assert size.value > 0
print(size.value)
