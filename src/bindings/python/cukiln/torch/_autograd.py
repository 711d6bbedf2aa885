# SPDX-License-Identifier: Apache-2.0
"""The gradients of `nvfp4::linear_fwd`: each is one op, so that a compiled backward has two nodes.

    quantize_weight_(weight, w_data, w_scales, wt_data, wt_scales, w_global_scale)
    y, *saved = linear_fwd(x, weight, w_data, w_scales, wt_data, wt_scales, w_global_scale, bias)

The first quantises the weight and its transpose into a workspace, again when the weight changes.

Rounding counts as the identity (straight-through): the gradient of what was rounded is that of
the rounded. Between a forward and its backward the workspace must not be quantised again:
autograd keeps it, not a copy, and notices only if its version counts (`increment_version` of
torch.autograd.graph, as NVFP4TrainableLinear does). There is no second derivative: a backward
through the gradients is an error.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, _, _, wt_data, wt_scales, w_global_scale, bias = inputs
    _, xt_data, xt_scales, x_global_scale = output
    ctx.save_for_backward(wt_data, wt_scales, w_global_scale, xt_data, xt_scales, x_global_scale)
    ctx.has_bias = bias is not None
    ctx.mark_non_differentiable(xt_data, xt_scales, x_global_scale)
    ctx.set_materialize_grads(False)


@once_differentiable
def _backward(ctx: Any, dy: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    wt_data, wt_scales, w_global_scale, xt_data, xt_scales, x_global_scale = ctx.saved_tensors
    dx = dw = db = None
    if dy is not None:
        dy = dy.contiguous()
        if ctx.needs_input_grad[0]:
            dx = torch.ops.nvfp4.linear_dgrad(dy, wt_data, wt_scales, w_global_scale)
        if ctx.needs_input_grad[1]:
            dw = torch.ops.nvfp4.linear_wgrad(dy, xt_data, xt_scales, x_global_scale)
        if ctx.has_bias and ctx.needs_input_grad[7]:
            db = dy.sum(0, dtype=torch.float32).to(dy.dtype)
    return dx, dw, None, None, None, None, None, db


torch.library.register_autograd("nvfp4::linear_fwd", _backward, setup_context=_setup_context)
