# SPDX-License-Identifier: Apache-2.0
"""The example of a kernel of one's own. On a GPU it runs in tests/gpu/torch."""

import os
import subprocess
import sys
from pathlib import Path

import cukiln

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_without_a_gpu_the_example_says_what_can_be_done():
    run = subprocess.run(
        [sys.executable, EXAMPLES / "own_kernel.py"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    )
    assert run.returncode == 3
    assert "`python -m cukiln compile examples/own_kernel/saxpy.cu" in run.stderr


def test_the_examples_kernel_launches(cuda, loader):
    cuda.parameters("_Z4axpyIfEvT_PKS0_PS0_i", 4, 8, 8, 4)
    module = cukiln.get_cuda_module(
        "saxpy",
        [EXAMPLES / "own_kernel" / "saxpy.cu"],
        ["-O3", "--use_fast_math"],
        names=["axpy<float>"],
        loader=loader,
    )
    module["axpy<float>"][4, 256](3.0, None, None, 1000)
    assert cuda.launches() == 1 and cuda.last().grid == (4, 1, 1)
