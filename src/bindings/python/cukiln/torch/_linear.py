# SPDX-License-Identifier: Apache-2.0
"""The linear layers of a model that `quantize_` replaces."""

from __future__ import annotations

from typing import cast

from torch import nn


def is_conv1d(module: nn.Module) -> bool:
    """Whether it is a Conv1D of transformers, and of no subclass."""
    kind = type(module)  # by its name: transformers need not be installed
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def is_linear(module: nn.Module) -> bool:
    """Whether it is an nn.Linear or a Conv1D of transformers, and of no subclass."""
    return type(module) is nn.Linear or is_conv1d(module)


def as_linear(module: nn.Module) -> nn.Linear:
    """A layer for which `is_linear` holds, as an nn.Linear: a Conv1D, whose weight is [in, out],
    over the same memory."""
    if isinstance(module, nn.Linear):
        return module
    weight, bias = cast(nn.Parameter, module.weight), cast(nn.Parameter, module.bias)
    linear = nn.Linear(*weight.shape, device="meta").train(module.training)
    linear.weight, linear.bias = nn.Parameter(weight.detach().t(), requires_grad=False), bias
    return linear
