# SPDX-License-Identifier: Apache-2.0
"""What a wheel's libraries need of the system: opened by ctypes, with every symbol bound.

usage: use_library.py FOLDER
"""

import ctypes
import os
import sys

folder = sys.argv[1]
for name in ("libcukiln.so", "libcukiln_nvfp4.so"):
    library = ctypes.CDLL(os.path.join(folder, name), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    if name == "libcukiln.so":
        library.cukiln_version.restype = ctypes.c_char_p
        print(library.cukiln_version().decode())
