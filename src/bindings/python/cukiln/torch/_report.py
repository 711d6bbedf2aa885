# SPDX-License-Identifier: Apache-2.0
"""What `quantize_` did to a model."""

from __future__ import annotations

import dataclasses
import warnings

from torch import nn

from ._linear import is_linear
from .stacked import is_stacked, unsupported_reason

_MAX_NAMES = 6  # names in a line


@dataclasses.dataclass(frozen=True)
class QuantizeReport:
    """`replaced`: names of the layers that are NVFP4 now. `left`: of each parameter of two or more
    dimensions that is not, its name and the reason. `parameters` counts numbers: those replaced,
    and those of the whole model, before."""

    replaced: tuple[str, ...]
    left: dict[str, str]
    replaced_parameters: int
    parameters: int

    def __str__(self) -> str:
        share = self.replaced_parameters / max(self.parameters, 1)
        lines = [
            f"{len(self.replaced)} layers replaced: {self.replaced_parameters:,} of "
            f"{self.parameters:,} parameters ({share:.1%})"
        ]
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.left.items():
            by_reason.setdefault(reason, []).append(name)
        lines += [f"left, {reason}: {shortened(names)}" for reason, names in by_reason.items()]
        return "\n".join(lines)

    def warn(self) -> None:
        """Of what a caller would not expect."""
        experts = [name for name, reason in self.left.items() if reason == STACKED]
        if experts:
            warnings.warn(
                f"quantize_ left parameters of three dimensions as they are, which are most of a "
                f"mixture of experts: {shortened(experts)}. NVFP4MoE takes experts of nn.Linear "
                "(from_linear), or a checkpoint's (from_checkpoint, from_stacked)",
                stacklevel=3,
            )
        if not self.replaced:
            warnings.warn(
                f"quantize_ replaced no layer: the model has no nn.Linear that the filter holds "
                f"for\n{self}",
                stacklevel=3,
            )


STACKED = "experts in one parameter"


def shortened(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def reason_changed(module: nn.Module) -> str | None:
    """Why a module does not compute what its class does; None if it does."""
    if "forward" in module.__dict__:
        return "its forward was replaced"
    if is_linear(module) and not module._parameters.keys() <= {"weight", "bias"}:
        return "its weight is computed from others"  # weight_norm, spectral_norm
    return None


def reason_left(module: nn.Module, parent: nn.Module | None, dimensions: int) -> str:
    """Why a parameter of a module stays, where the filter was not asked or said no."""
    if is_linear(module):
        if isinstance(parent, nn.TransformerEncoderLayer):
            return "its parent computes with the weight itself"
        return reason_changed(module) or "by the filter"
    if isinstance(module, nn.Linear):
        return "a subclass of nn.Linear"
    if is_stacked(module) and unsupported_reason(module) is None:
        return reason_changed(module) or "by the filter"
    if dimensions == 3 and not isinstance(module, nn.modules.conv._ConvNd):
        return STACKED
    return f"in a {type(module).__name__}"
