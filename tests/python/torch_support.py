# SPDX-License-Identifier: Apache-2.0
"""What the tests of the ops share: small matrices, and layers with weights."""

import numpy as np
import torch

import cukiln.torch as ct
from nvfp4_emulation import Quantized

ops = torch.ops.nvfp4


def matrix(rows, columns, seed=0, scale=1.0):
    return (
        torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
        .mul(scale)
        .bfloat16()
    )


def numbers(tensor):
    return tensor.float().numpy()


def assert_rounded(given, expected):
    """bf16, half a unit from a sum that was made in double, in whatever order."""
    slack = 2**-40 * np.abs(expected).max(initial=0)
    np.testing.assert_allclose(numbers(given), expected, rtol=1.001 * 2**-8, atol=slack)


def linear_runner(out_features=48, in_features=64, seed=1, **options):
    weight = matrix(out_features, in_features, seed)
    global_scale = ops.amax_gsa(weight)
    return ct.LinearRunner(
        *ops.quantize_nvfp4_from_buffer(weight, global_scale), global_scale, **options
    )


def moe_weights(experts=3, hidden=64, width=32, seed=0):
    up = [Quantized(numbers(matrix(2 * width, hidden, seed + e))) for e in range(experts)]
    down = [Quantized(numbers(matrix(hidden, width, seed + 50 + e))) for e in range(experts)]
    return up, down


def moe_runner(up, down, **options):
    def stacked(matrices):
        data, scales, global_scale = zip(*(each.tensors() for each in matrices), strict=True)
        return torch.stack(data), torch.stack(scales), torch.stack(global_scale)[:, 1].contiguous()

    options.setdefault("activation_global_scale", torch.tensor([64.0, 1 / 64]))
    return ct.MoeRunner(*stacked(up), *stacked(down), **options)


class Foreign:
    """Another backend's layer: y = x * weight^T by PyTorch, behind both kinds of op."""

    def __init__(self, out_features=48, in_features=64):
        self.weight = matrix(out_features, in_features, 7)

    def _run_impl(self, x, topk_weights=None, topk_ids=None):
        if topk_weights is None:
            return x @ self.weight.T
        scale = (topk_weights * (topk_ids + 1)).sum(1, keepdim=True)
        return (x * scale).bfloat16()


def workspace(weight):
    n, k = weight.shape

    def empty_bytes(rows, columns):
        return torch.empty(rows, columns, dtype=torch.uint8, device=weight.device)

    def scales(rows, columns):
        return empty_bytes(-(-rows // 128) * 128, -(-columns // 64) * 4)

    out = (
        empty_bytes(n, k // 2),
        scales(n, k),
        empty_bytes(k, n // 2),
        scales(k, n),
        torch.empty(2, device=weight.device),
    )
    ops.quantize_weight_(weight.detach(), *out)
    return out


def sampler_state(seed=0):
    return torch.tensor([seed, 0, 0])
