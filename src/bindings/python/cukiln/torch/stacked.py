# SPDX-License-Identifier: Apache-2.0
"""Experts as transformers keeps them: stacked, called with ids before weights, some with biases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ._checkpoints import from_mxfp4
from ._weights import blank
from .experts import NVFP4MoE

# gpt-oss: gate and up in pairs of rows.
GPT_OSS: dict[str, Any] = {"limit": 7.0, "alpha": 1.702, "beta": 1.0, "interleaved": True}
PROJECTIONS = ("gate_up_proj", "down_proj")


class NVFP4Experts(NVFP4MoE):
    """An NVFP4MoE that takes `(x, topk_ids, topk_weights)`, as the experts of transformers, and may
    have biases: `w13_bias` bfloat16 [experts, 2 · width], in the order of w13's rows, and `w2_bias`
    [experts, hidden].
    """

    def __init__(
        self, experts: int, hidden_size: int, width: int, *, bias: bool = False, **settings: Any
    ) -> None:
        super().__init__(experts, hidden_size, width, **settings)
        device = settings.get("device")
        for name, columns in (("w13_bias", 2 * width), ("w2_bias", hidden_size)):
            if bias:
                self.register_buffer(name, blank((experts, columns), torch.bfloat16, device))

    @classmethod
    def from_module(cls, module: nn.Module, **settings: Any) -> NVFP4Experts:
        """Quantises the experts of a transformers model: `gate_up_proj` and `down_proj`, their
        biases, and their activation, which is tried on numbers. On meta they make an empty one."""
        reason = unsupported_reason(module)
        if reason is not None:
            raise ValueError(f"a {type(module).__name__} is given, {reason}")
        weights = [getattr(module, name).detach() for name in PROJECTIONS]
        if module.is_transposed:
            weights = [weight.transpose(1, 2) for weight in weights]
        settings = {**cast(dict[str, Any], _activation(module)), **settings}
        empty = weights[0].is_meta
        layer = cls.from_bf16(*weights, bias=module.has_bias and empty, **settings)
        if module.has_bias and not empty:
            layer._set_biases(*(getattr(module, f"{name}_bias") for name in PROJECTIONS))
            layer.bind()
        return layer.train(module.training)

    @classmethod
    def from_mxfp4(
        cls, tensors: Mapping[str, Tensor], prefix: str = "", **settings: Any
    ) -> NVFP4Experts:
        """Of gpt-oss' tensors, `gate_up_proj_blocks` and so on behind a prefix like
        `model.layers.3.mlp.experts.`: the same numbers in NVFP4. Biases count where they are there;
        the activation is gpt-oss' unless `settings` say otherwise."""
        parts = []
        for name in PROJECTIONS:
            for kind in ("blocks", "scales"):
                if f"{prefix}{name}_{kind}" not in tensors:
                    raise KeyError(f"the checkpoint has no {prefix}{name}_{kind}")
            blocks, scales = (tensors[f"{prefix}{name}_{kind}"] for kind in ("blocks", "scales"))
            if blocks.dim() != 4 or scales.dim() != 3 or len(blocks) != len(scales):
                raise ValueError(
                    f"{prefix}{name}_blocks is {tuple(blocks.shape)} and {name}_scales "
                    f"{tuple(scales.shape)}; expected [experts, rows, blocks, 16] and [experts, "
                    "rows, blocks]"
                )
            parts.append(
                [
                    from_mxfp4(f"{prefix}{name} of expert {index}", *expert)
                    for index, expert in enumerate(zip(blocks, scales, strict=True))
                ]
            )
        up_parts, down_parts = parts
        rows, half = up_parts[0][0].shape
        biases = [tensors.get(f"{prefix}{name}_bias") for name in PROJECTIONS]
        layer = cls._from_parts(
            up_parts, down_parts, 2 * half, rows // 2, None, None, {**GPT_OSS, **settings}
        )
        if any(bias is not None for bias in biases):
            layer._set_biases(*biases)
        layer.process_weights_after_loading()
        return layer

    def _set_biases(self, up: Tensor | None, down: Tensor | None) -> None:
        device = self.w13_weight.device
        for name, bias, columns in (
            ("w13_bias", up, 2 * self.width),
            ("w2_bias", down, self.hidden_size),
        ):
            if bias is None:
                bias = torch.zeros(self.experts, columns)
            if tuple(bias.shape) != (self.experts, columns):
                raise ValueError(
                    f"{name} is {tuple(bias.shape)}; expected ({self.experts}, {columns})"
                )
            bias = bias.detach().contiguous().to(device, torch.bfloat16, copy=True)
            self._buffers[name] = bias

    def _take_biases(
        self,
        tensors: Mapping[str, Tensor],
        prefixes: Sequence[str],
        names: tuple[str, str, str],
        ratios: list[float],
    ) -> None:
        given = [f"{prefix}{name}.bias" in tensors for prefix in prefixes for name in names]
        if not any(given):
            return
        if not all(given):
            raise ValueError(
                f"{given.count(True)} of {len(given)} biases of experts are in the checkpoint; expected "
                "all, or none"
            )
        gate, upward, down = (
            [tensors[f"{prefix}{name}.bias"] for prefix in prefixes] for name in names
        )
        both = [
            torch.cat([one, other.float() / ratio])
            for one, other, ratio in zip(gate, upward, ratios, strict=True)
        ]
        self._set_biases(torch.stack(both), torch.stack(down))

    def interleave(self) -> None:
        """Gate above up becomes pairs of rows."""
        state = self.state_dict()
        for name in ("w13_weight", "w13_weight_scale", "w13_bias"):
            if name in state:
                halves = state[name].unflatten(1, (2, self.width))
                state[name] = halves.transpose(1, 2).flatten(1, 2)
        self.__dict__["interleaved"] = True  # the runner that follows knows
        self.load_state_dict(state)

    def forward(  # type: ignore[override]  # in the order of transformers
        self, x: Tensor, topk_ids: Tensor, topk_weights: Tensor
    ) -> Tensor:
        return super().forward(x, topk_weights, topk_ids)


# ---- Experts of transformers

_LAYOUT = ("has_gate", "has_bias", "is_transposed", "is_concatenated")


def is_stacked(module: nn.Module) -> bool:
    """Whether a module keeps experts as transformers 5 does."""
    return hasattr(module, "_apply_gate") and all(
        isinstance(getattr(module, name, None), nn.Parameter) and getattr(module, name).dim() == 3
        for name in PROJECTIONS
    )


def unsupported_reason(module: nn.Module) -> str | None:
    """Why NVFP4Experts cannot replace these experts; None where it can."""
    if not is_stacked(module):
        return "which has no stacked gate_up_proj and down_proj of transformers 5"
    missing = [name for name in _LAYOUT if not hasattr(module, name)]
    if missing:
        return f"which does not say {' and '.join(missing)}, as transformers 5.23 does"
    if not module.has_gate:
        return "whose experts have no gate"
    if getattr(module, "has_post_expert_norm", False):
        return "whose experts end in a norm"
    if getattr(module, "_is_expert_parallel", False):
        return "which has a part of the experts"
    if _activation(module) is None:
        return "whose activation is no SwiGLU that NVFP4MoE has"
    return None


def _activation(module: nn.Module) -> dict[str, Any] | None:
    """The settings with which NVFP4MoE computes what `_apply_gate` does; None if no settings do."""
    limit = float(
        getattr(module, "limit", None) or getattr(module, "swiglu_limit", None) or math.inf
    )
    reach = 20.0 if limit == math.inf else 3 * limit
    numbers = torch.linspace(-reach, reach, 64, dtype=torch.float32, device="cpu")
    gate_up = torch.stack([numbers, numbers.flip(0) * 0.9, numbers, numbers.roll(7)]).view(2, 128)
    try:
        with torch.device("cpu"), torch.no_grad():
            given = module._apply_gate(gate_up.clone())
    except (RuntimeError, TypeError):  # it takes other tensors
        return None
    for alpha in {1.0, float(getattr(module, "alpha", 1.0))}:
        for beta in (0.0, 1.0):
            settings: dict[str, Any] = {"limit": limit, "alpha": alpha, "beta": beta}
            settings["interleaved"] = not module.is_concatenated
            expected = _swiglu(gate_up, **settings)
            if given.shape == expected.shape and torch.allclose(given, expected, 1e-4, 1e-4):
                return settings
    return None


def _swiglu(both: Tensor, limit: float, alpha: float, beta: float, interleaved: bool) -> Tensor:
    gate, upward = (both[:, 0::2], both[:, 1::2]) if interleaved else both.chunk(2, dim=-1)
    gate, upward = gate.clamp(max=limit), upward.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (upward + beta)
