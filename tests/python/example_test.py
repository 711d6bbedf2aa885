# SPDX-License-Identifier: Apache-2.0
"""The examples of a kernel of one's own, which on a GPU runs in tests/gpu/torch, of a cache and of a link."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_example_of_a_cache_compiles_once(tmp_path):
    source = tmp_path / "add.c"
    source.write_text("int add(int a, int b) { return a + b; }\n")
    for outcome in ("compiled", "hit"):
        run = subprocess.run(
            [sys.executable, EXAMPLES / "compiler_cache.py", source],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (run.returncode, run.stderr) == (0, "")
        assert run.stdout.startswith(f"{source}: {outcome}, ")
    broken = tmp_path / "broken.c"
    broken.write_text("int add(\n")
    run = subprocess.run([sys.executable, EXAMPLES / "compiler_cache.py", broken], check=False)
    assert run.returncode == 1
    assert len(cukiln.BlobStore("cc-assembly").list()) == 1  # a failure is not stored


@pytest.mark.usefixtures("link")
def test_the_example_of_a_link_compiles_the_library_once():
    def lines(*activations):
        run = subprocess.run(
            [sys.executable, EXAMPLES / "linked_kernels.py", *activations],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == (1 if "y" in activations else 0), run.stderr
        return [line.rpartition(", ")[0] for line in run.stdout.splitlines()]

    assert lines("x + 1", "x + 2") == [
        "x + 1: compiled, 3 compiles and links",
        "x + 2: compiled, 2 compiles and links",
    ]
    assert lines("x + 2") == ["x + 2: hit, 0 compiles and links"]
    assert lines("y") == []
