# SPDX-License-Identifier: Apache-2.0
"""The types of the package, as type checkers see them in it and in a program."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "bindings" / "python" / "cukiln"
PROGRAM = """
from pathlib import Path
import cukiln

with cukiln.Loader(store=Path("store")) as loader:
    spec = cukiln.ModuleSpec(cukiln.Source("a.cu", ""), define={"N": 4})
    kernel: cukiln.Kernel = loader.get(spec)
    kernel[1, (2, 3), None, 1024](kernel.native, 2.0)
    reveal_type(loader.compile(spec)[0].kernels[0].registers)
try:
    cukiln.get_cuda_module("a", ["a.cu"]).a.launch(grid=1, block=32)
except cukiln.CompileError as error:
    error.log.upper()
loader.get("a.cu")
kernel["grid"]
kernel.launch(grid=1, block=32, streams=0)
cukiln.preload_all(module=["a"])
reveal_type(cukiln.__version__)
cukiln.Kernels
cukiln.Loader(daemon="never", jobs=None, compile_timeout=0.5)
cukiln.ModuleSpec("a.cu", link="none")
reveal_type(loader.compile(spec)[0].outcome)
"""

LAYERS = """
import torch
from torch import nn
from cukiln.torch import NVFP4Linear, NVFP4TrainableLinear, quantize_

layer = NVFP4Linear.from_linear(nn.Linear(64, 16))
reveal_type(layer)
reveal_type(layer.runner_id)
reveal_type(quantize_(nn.Sequential()).replaced)
quantize_(nn.Sequential(), lambda name, linear: name.startswith("mlp"))
NVFP4Linear(64, 16, activations="fp8")
layer.reserve("many")
NVFP4TrainableLinear(64, 64, parallel_mode="diagonal")
"""


SAID = {
    "program.py": [
        'type is "int"',
        'expected "ModuleSpec"',
        'Invalid index type "str"',
        'Unexpected keyword argument "streams"',
        'Unexpected keyword argument "module"',
        'type is "str"',
        'no attribute "Kernels"',
        "expected \"Literal['auto', 'off', 'require'] | None\"",
        "expected \"Literal['rdc', 'lto'] | None\"",
        "Literal['hit'] | Literal['compiled'] | Literal['failed'] | Literal['missing']",
    ],
    "layers.py": [
        'type is "cukiln.torch.layers.NVFP4Linear"',
        'type is "int"',
        'type is "tuple[str, ...]"',
        "Literal['bf16', 'nvfp4'] | None",
        'incompatible type "str"; expected "int"',
        "Literal['column', 'row'] | None",
    ],
}


def test_the_package_is_strictly_typed(tmp_path):
    (tmp_path / "untyped.py").write_text("def f(x): return x\n")
    options = ["--config-file", "pyproject.toml", "--cache-dir", tmp_path / "cache"]
    for checked, errors in ((["-p", "cukiln"], 0), ([tmp_path / "untyped.py"], 1)):
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *options, *checked],
            capture_output=True,
            text=True,
            check=False,
            cwd=REPOSITORY,
        )
        assert done.returncode == errors, done.stdout + done.stderr


def test_programs_are_checked_against_an_installed_package(tmp_path):
    """py.typed tells, in site-packages. PyTorch's own types are left out: they take minutes."""
    site = tmp_path / "site-packages"
    shutil.copytree(PACKAGE, site / "cukiln")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *SAID],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    lines = [line for line in checked.stdout.splitlines() if "error:" in line or "Revealed" in line]
    for file, expected in SAID.items():
        said = [line for line in lines if line.startswith(file)]
        assert len(said) == len(expected), checked.stdout + checked.stderr
        for line, words in zip(said, expected, strict=True):
            assert words in line
