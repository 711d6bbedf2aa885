# SPDX-License-Identifier: Apache-2.0
"""A package that AOTInductor made of the layers, in a process of its own: opening one ends a process
where the package and PyTorch disagree about the C++ library, and no other test should go with it.

usage: aotinductor_test.py [RESULTS.json]   with cukiln and PyTorch to be imported
       aotinductor_test.py --control        the same with two nn.Linear, without any of cukiln
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

import torch
from rows import run

DEVICE = "cuda"


def packaged(model: torch.nn.Module, x: torch.Tensor, folder: str) -> Callable[..., torch.Tensor]:
    """The model, through a package for any number of tokens."""
    program = torch.export.export(
        model, (x,), dynamic_shapes=({0: torch.export.Dim("tokens", min=2, max=64)},)
    )
    # Without -Bsymbolic, templates of the C++ library in the package bind to PyTorch's own, which
    # another compiler made: on some machines not even a package of nn.Linear can be opened.
    compiler = Path(folder, "c++")
    compiler.write_text(
        '#!/bin/sh\ncase " $* " in *" -shared "*) set -- "$@" -Wl,-Bsymbolic ;; esac\n'
        'exec "${CXX:-g++}" "$@"\n'
    )
    compiler.chmod(0o755)
    with torch._inductor.config.patch({"cpp.cxx": (str(compiler),)}):
        package = torch._inductor.aoti_compile_and_package(
            program, package_path=str(Path(folder, "block.pt2"))
        )
    return torch._inductor.aoti_load_package(package)


def control() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(512, 256), torch.nn.Linear(256, 512))
    model = model.to(DEVICE, torch.bfloat16)
    x = torch.randn(4, 512, device=DEVICE, dtype=torch.bfloat16)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        packaged(model, x, folder)(x)


class AotInductor(unittest.TestCase):
    def test_an_aotinductor_package_runs(self):
        died = subprocess.run([sys.executable, __file__, "--control"], check=False).returncode
        if died < 0:  # nothing of ours was there
            self.skipTest(f"PyTorch's own package of nn.Linear ends in {signal.Signals(-died).name}")
        from layers_test import block, cosine

        model = block()
        x = torch.randn(4, 512, device=DEVICE, dtype=torch.bfloat16)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            run_package = packaged(model, x, folder)
            for tokens in (4, 31):
                x = torch.randn(tokens, 512, device=DEVICE, dtype=torch.bfloat16)
                found = cosine(run_package(x), model(x))
                print(f"  {tokens} tokens: cosine {found:.5f}", file=sys.stderr)
                self.assertGreater(found, 0.999)


if __name__ == "__main__":
    if sys.argv[1:] == ["--control"]:
        control()
    else:
        sys.exit(run(AotInductor))
