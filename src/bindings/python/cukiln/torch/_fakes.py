# SPDX-License-Identifier: Apache-2.0
"""What the ops' results look like: shape, dtype and device, for tracing. No runner is asked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _runners  # noqa: F401  (defines cukiln::run_linear and cukiln::run_moe)


def _quantized(x: Tensor, rows: Any, columns: Any) -> tuple[Tensor, Tensor]:
    data = x.new_empty((rows, columns // 2), dtype=torch.uint8)
    scales = x.new_empty(((rows + 127) // 128 * 128, (columns + 63) // 64 * 4), dtype=torch.uint8)
    return data, scales


def _global_scale(x: Tensor) -> Tensor:
    return x.new_empty((2,), dtype=torch.float32)


@torch.library.register_fake("cukiln::run_linear")
@torch.library.register_fake("nvfp4::linear_gemm")
def _(x: Tensor, runner_id: int, out_features: int, fingerprint: int = 0) -> Tensor:
    return x.new_empty((x.shape[0], out_features), dtype=torch.bfloat16)


@torch.library.register_fake("cukiln::run_moe")
@torch.library.register_fake("nvfp4::moe_gemm")
def _(
    hidden_states: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    runner_id: int,
    hidden_size: int,
    fingerprint: int = 0,
) -> Tensor:
    return hidden_states.new_empty((hidden_states.shape[0], hidden_size), dtype=torch.bfloat16)


@torch.library.register_fake("nvfp4::amax_gsa")
def _(x: Tensor, divisor: float = 2688.0) -> Tensor:
    return _global_scale(x)


@torch.library.register_fake("nvfp4::fused_amax_quantize_nvfp4")
def _(x: Tensor, divisor: float = 2688.0) -> tuple[Tensor, Tensor, Tensor]:
    return *_quantized(x, x.shape[0], x.shape[1]), _global_scale(x)


@torch.library.register_fake("nvfp4::quantize_nvfp4")
def _(x: Tensor, encode_scale: float) -> tuple[Tensor, Tensor]:
    return _quantized(x, x.shape[0], x.shape[1])


@torch.library.register_fake("nvfp4::quantize_nvfp4_from_buffer")
def _(x: Tensor, global_scale: Tensor) -> tuple[Tensor, Tensor]:
    return _quantized(x, x.shape[0], x.shape[1])


@torch.library.register_fake("nvfp4::deinterleave_quantize_from_buffer")
def _(x: Tensor, global_scale: Tensor, interleaved: bool = False) -> tuple[Tensor, Tensor]:
    return _quantized(x, x.shape[0], x.shape[1])


@torch.library.register_fake("nvfp4::swiglu_quantize_from_buffer")
def _(
    x: Tensor,
    global_scale: Tensor,
    limit: float,
    alpha: float = 1.0,
    beta: float = 0.0,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor]:
    return _quantized(x, x.shape[0], x.shape[1] // 2)


@torch.library.register_fake("nvfp4::swiglu_amax_gsa")
def _(
    x: Tensor,
    limit: float,
    alpha: float = 1.0,
    beta: float = 0.0,
    interleaved: bool = False,
    divisor: float = 2688.0,
) -> Tensor:
    return _global_scale(x)


@torch.library.register_fake("nvfp4::gemm")
def _(
    a_data: Tensor,
    a_scales: Tensor,
    a_global_scale: Tensor,
    b_data: Tensor,
    b_scales: Tensor,
    b_global_scale: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    return a_data.new_empty((a_data.shape[0], b_data.shape[0]), dtype=torch.bfloat16)


@torch.library.register_fake("nvfp4::w4a16_gemm")
def _(
    x: Tensor,
    b_data: Tensor,
    b_scales: Tensor,
    b_global_scale: Tensor,
    bias: Tensor | None = None,
    constant_b: bool = False,
) -> Tensor:
    return x.new_empty((x.shape[0], b_data.shape[0]))


@torch.library.register_fake("nvfp4::quantize_weight_")
def _(
    weight: Tensor,
    w_data: Tensor,
    w_scales: Tensor,
    wt_data: Tensor,
    wt_scales: Tensor,
    w_global_scale: Tensor,
) -> None:
    return None


@torch.library.register_fake("nvfp4::linear_fwd")
def _(
    x: Tensor,
    weight: Tensor,
    w_data: Tensor,
    w_scales: Tensor,
    wt_data: Tensor,
    wt_scales: Tensor,
    w_global_scale: Tensor,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y = x.new_empty((x.shape[0], weight.shape[0]), dtype=torch.bfloat16)
    return y, *_quantized(x, x.shape[1], (x.shape[0] + 31) // 32 * 32), _global_scale(x)


@torch.library.register_fake("nvfp4::linear_dgrad")
def _(dy: Tensor, wt_data: Tensor, wt_scales: Tensor, w_global_scale: Tensor) -> Tensor:
    return dy.new_empty((dy.shape[0], wt_data.shape[0]), dtype=torch.bfloat16)


@torch.library.register_fake("nvfp4::linear_wgrad")
def _(dy: Tensor, xt_data: Tensor, xt_scales: Tensor, x_global_scale: Tensor) -> Tensor:
    return dy.new_empty((dy.shape[1], xt_data.shape[0]), dtype=torch.bfloat16)


@torch.library.register_fake("cukiln::sample")
def _(
    logits: Tensor,
    state: Tensor,
    temperature: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    joint: bool = False,
    row_seeds: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    rows = (logits.shape[0],)
    return logits.new_empty(rows, dtype=torch.int32), logits.new_empty(rows, dtype=torch.float32)


@torch.library.register_fake("cukiln::top_log_probabilities")
def _(
    logits: Tensor, count: int, temperature: Tensor | None = None, tokens: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    top = logits.new_empty((logits.shape[0], count), dtype=torch.float32)
    given = 0 if tokens is None else logits.shape[0]
    return top, top.new_empty(top.shape, dtype=torch.int32), top.new_empty((given,))
