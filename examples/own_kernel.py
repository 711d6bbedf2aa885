# SPDX-License-Identifier: Apache-2.0
"""A kernel of one's own on PyTorch tensors: a template in a file with a header, compiled for the
GPU that is here, kept in the store, launched on PyTorch's current stream."""

import sys
from pathlib import Path

import torch

import cukiln

FOLDER = Path(__file__).parent / "own_kernel"


def main() -> int:
    if not torch.cuda.is_available():
        print(
            "no GPU here; `python -m cukiln compile examples/own_kernel/saxpy.cu "
            "--name 'axpy<float>'` does all but the launch",
            file=sys.stderr,
        )
        return 3
    saxpy = cukiln.get_cuda_module(
        "saxpy",
        [FOLDER / "saxpy.cu"],
        extra_cuda_cflags=["-O3", "--use_fast_math"],  # nvcc's spellings are understood
        names=["axpy<float>"],  # a name expression: it instantiates the template
    )
    axpy = saxpy["axpy<float>"]

    x = torch.full((1000,), 2.0, device="cuda")
    y = torch.ones(1000, device="cuda")
    axpy[4, 256](3.0, x, y, y.numel())

    hits = cukiln.default_loader().stats().hits
    print(f"3 * 2 + 1 = {y[0].item():g}, {y[-1].item():g} (7 expected), {hits} from the store")
    return 0 if bool((y == 7).all()) else 1


if __name__ == "__main__":
    sys.exit(main())
