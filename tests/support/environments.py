# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with NVRTC and nvJitLink in them."""

import os
import subprocess
import sys
from pathlib import Path


def environment_with(nvrtc: Path, folder: Path) -> Path:
    """Makes a virtual environment with the wheel of this library, `…/nvidia/cu13/lib/libnvrtc.so.13`. Returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for path in nvrtc.parents[2].glob("*/*"):
        if path.parent.name in ("cu13", "cuda_nvrtc", "nvjitlink"):
            linked = packages / "nvidia" / path.parent.name / path.name
            linked.parent.mkdir(parents=True, exist_ok=True)
            linked.symlink_to(os.path.realpath(path))
    return folder / "bin/python3"
