# SPDX-License-Identifier: Apache-2.0
"""Kernels in another project's wheel: a system store as package data, which the package names to its own loader."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import BINARIES, in_another_process

MODULE = """
from importlib.resources import files
import cukiln

def load(**options):
    package = files(__name__)
    loader = cukiln.Loader(system_store=package / "store", **options)
    return loader, loader.preload(package / "kernels.json", targets=["sm_90a"], load=False)
"""
USES = """
import sys
sys.path.insert(0, {site!r})
import its_kernels
try:
    loader, report = its_kernels.load(offline=True)
    print(report.hits, report.compiled, report.failed)
except its_kernels.cukiln.NotFoundError as error:
    print("header changed" in str(error))
"""


@pytest.fixture
def wheel(home):
    """The downstream project's build: it compiles, and packs what git has and the store."""
    package = home / "build" / "its_kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE)
    (package / "scale.cuh").write_text("__device__ float factor() { return 3; }\n")
    (package / "scale.cu").write_text('#include "scale.cuh"\nextern "C" __global__ void scale(float* x) { *x *= factor(); }\n')
    manifest = {"format": 1, "modules": [{"name": "scale", "sources": ["scale.cu"]}]}
    (package / "kernels.json").write_text(json.dumps(manifest))
    command = [BINARIES / "cukiln", "preload", package / "kernels.json", "--arch", "sm_90a", "--system-store", package / "store"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    packed = home / "its_kernels-1-py3-none-any.whl"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*")):
            file.write(path, path.relative_to(package.parent))
        file.writestr("its_kernels-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: its-kernels\nVersion: 1\n")
        file.writestr("its_kernels-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("its_kernels-1.dist-info/RECORD", "")
    return packed


def install(wheel, site):
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheel],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wheel_brings_its_kernels(home, wheel, monkeypatch):  # fault 454
    for name in ("one", "another"):
        install(wheel, home / name)
        monkeypatch.setenv("CUKILN_STORE", str(home / name / "store of a new user"))
        assert in_another_process(USES.format(site=str(home / name))) == "1 0 0"
    for path in Path(home / "one").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert in_another_process(USES.format(site=str(home / "one"))) == "1 0 0"
    for path in Path(home / "one").rglob("*"):
        path.chmod(0o755)
    (home / "one" / "its_kernels" / "scale.cuh").write_text("__device__ float factor() { return 4; }\n")
    assert in_another_process(USES.format(site=str(home / "one"))) == "True"
