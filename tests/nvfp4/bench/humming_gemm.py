# SPDX-License-Identifier: Apache-2.0
"""Humming's W4A16 GEMM, which vLLM prefers for NVFP4 weights on Hopper, with the tiles that it chooses itself for each number of
rows. Its kernels are compiled by NVRTC where they are measured; only the package is carried, in the folder `humming`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what is carried is gathered where it may be absent
    import torch

VERSION = "0.1.20"
REQUIREMENT = f"humming-kernels=={VERSION}"


def gather(folder: Path) -> None:
    """Without what it depends on: it needs PyTorch and Triton only, which are where it is measured."""
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, REQUIREMENT], check=True)


def linear_scales(scales: torch.Tensor, n: int, k: int) -> torch.Tensor:
    """e4m3 [n, k / 16] of atoms of 128 rows by 4 blocks, whose rows lie as [row % 32][row / 32 % 4]."""
    import torch

    row_atoms, column_atoms = -(-n // 128), -(-k // 64)
    atoms = scales.view(row_atoms, column_atoms, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return atoms.reshape(row_atoms * 128, column_atoms * 4)[:n, : k // 16].contiguous().view(torch.float8_e4m3fn)


class Humming:
    def __init__(self, packages: Path):
        sys.path.insert(0, str(packages))
        from humming.kernel.humming import HummingKernel
        from humming.layer import HummingLayer
        from humming.tune import get_heuristics_config

        self._layer, self._kernel, self._choose = HummingLayer, HummingKernel, get_heuristics_config

    def layers(self, weights: Sequence, n: int, k: int, rows: Sequence[int]) -> Callable[[int, torch.Tensor, torch.Tensor], None]:
        """A launch of the i-th of the weights, `(i, x, output)`, with all kernels for these numbers of rows compiled."""
        import torch

        layers = []
        for each in weights:
            with torch.device("cuda"):
                layer = self._layer(shape_n=n, shape_k=k, weight_config={"quant_method": "modelopt", "quant_algo": "nvfp4"},
                                    torch_dtype=torch.bfloat16)  # fmt: skip
            layer.load_from_tensors({"weight": each.data.view(n, k // 2), "weight_scale": linear_scales(each.scales, n, k),
                                     "weight_scale_2": each.global_scale[1].reshape(1)})  # fmt: skip
            layer.transform()
            layers.append(layer)
        compute = json.dumps({"use_batch_invariant": False, "use_f16_accum": False, "gemm_type": "dense"})
        of = layers[0].humming_config
        chosen = [self._choose(layer_config=of, shape_m=m, gemm_type="dense") for m in rows]
        tuning = json.dumps([[low, high, each] for low, high, each in zip([0, *rows[:-1]], [*rows[:-1], 1 << 30], chosen, strict=True)])
        self._kernel.prepare_kernels(of.to_str(), compute, tuning, 0)

        def launch(i: int, x: torch.Tensor, output: torch.Tensor) -> None:
            layers[i % len(layers)](x, outputs=output, compute_config=compute, tuning_config=tuning)

        return launch
