# SPDX-License-Identifier: Apache-2.0
"""NVFP4TrainableLinear over two GPUs, tensor and sequence parallel, by NCCL.

usage: parallel_test.py [RESULTS.json]   with cukiln and PyTorch to be imported
"""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

import torch
from rows import run

from cukiln.torch import use_loader

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import torch_parallel_ranks as parallel


@unittest.skipIf(torch.cuda.device_count() < parallel.RANKS, "one GPU")
class Parallel(unittest.TestCase):
    def test_ranks_compute_parts_of_the_whole(self):
        use_loader()
        expected = parallel.run_alone("cuda")
        with tempfile.TemporaryDirectory() as folder:
            ranks = parallel.run_ranks(folder, "nccl", "cuda", "inductor")
        parallel.check_tensor_parallel(ranks[False], expected)
        parallel.check_sequence_parallel(ranks[True], expected)


if __name__ == "__main__":
    sys.exit(run(Parallel))
