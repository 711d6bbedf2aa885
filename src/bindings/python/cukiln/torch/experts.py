# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts and shared experts with NVFP4 weights; the rest as in `layers`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._layer import E4M3, Layer, as_rows, check, largest, like, one_scale
from ._runners import MoeRunner, Runner
from ._weights import BLOCK, K_MULTIPLE, gsa_of, quantize

_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_IDS = {torch.int32, torch.int64}
_LAST_ID = (1 << 31) - 1


def _check_map(expert_map: Tensor, experts: int) -> None:
    if expert_map.dim() != 1 or expert_map.dtype not in _IDS:
        raise ValueError(
            f"expert_map is {tuple(expert_map.shape)} {expert_map.dtype}; [ids] int32 or int64 is "
            "expected"
        )
    if not expert_map.is_meta and ((expert_map < -1) | (expert_map >= experts)).any():
        raise ValueError(
            f"expert_map has {expert_map.min()} to {expert_map.max()}; -1, for none, to "
            f"{experts - 1} are expected"
        )


class NVFP4MoE(Layer):
    """A mixture of experts: for each token, the sum over its experts of
    weight · (SwiGLU(x · gateᵀ, x · upᵀ) · downᵀ), in one node.

    SwiGLU: gate = min(gate, limit), up = clamp(up, ±limit), then
    gate · sigmoid(alpha · gate) · (up + beta). Empty until weights are loaded: `w13_…` is gate
    above up, or in pairs of rows if `interleaved`, `w2_…` is down, each of all experts; the rest as
    in `NVFP4Linear`. What lies between the products has a fixed scale, `w2_input_scale`; where a
    checkpoint lacks it, that of the largest value that the limit allows, or without a limit
    decode 1, for values up to 2688.
    """

    matrices = (("w13_weight", "w13_weight_scale"), ("w2_weight", "w2_weight_scale"))
    decodes = ("w13_weight_scale_2", "w2_weight_scale_2")
    optional = ("w13_input_scale", "w2_input_scale")

    def __init__(
        self,
        experts: int,
        hidden_size: int,
        width: int,
        *,
        limit: float = math.inf,
        alpha: float = 1.0,
        beta: float = 0.0,
        interleaved: bool = False,
        expert_map: Tensor | None = None,
        max_topk: int = 8,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("hidden_size", hidden_size), ("width", width)):
            if value <= 0 or value % K_MULTIPLE:
                raise ValueError(f"{name} is {value}; a positive multiple of 32 is expected")
        for name, count in (("experts", experts), ("max_topk", max_topk)):
            if count <= 0:
                raise ValueError(f"{name} is {count}; a positive number is expected")
        if expert_map is not None:
            _check_map(expert_map, experts)
        self.experts, self.hidden_size, self.width = experts, hidden_size, width
        self.limit, self.alpha, self.beta = limit, alpha, beta
        self.interleaved, self.max_topk = interleaved, max_topk
        for part in ("w13", "w2"):
            rows, columns = self.shape(f"{part}_weight")
            codes, blocks = (experts, rows, columns // 2), (experts, rows, columns // BLOCK)
            for name, value in (
                ("weight", torch.empty(codes, dtype=torch.uint8, device=device)),
                ("weight_scale", torch.empty(blocks, dtype=E4M3, device=device)),
                ("weight_scale_2", torch.empty(experts, dtype=torch.float32, device=device)),
                ("input_scale", torch.zeros((), dtype=torch.float32, device=device)),
            ):
                self.register_buffer(f"{part}_{name}", value)
        self.register_buffer("expert_map", expert_map, persistent=False)

    @classmethod
    def from_linear(
        cls,
        experts: Iterable[nn.Module],
        *,
        names: tuple[str, str, str] = _PROJECTIONS,
        input_scale: float | Tensor | None = None,
        activation_scale: float | Tensor | None = None,
        **settings: Any,
    ) -> NVFP4MoE:
        """Quantises experts that have nn.Linear under `names`: gate, up, down. `input_scale` and
        `activation_scale`: decode, of the inputs of the two products."""
        up_parts, down_parts = [], []
        hidden = width = 0
        for index, expert in enumerate(experts):
            gate, upward, down = (getattr(expert, name) for name in names)
            if index == 0:
                width, hidden = gate.weight.shape
            for name, linear in zip(names, (gate, upward, down), strict=True):
                rows, columns = (hidden, width) if linear is down else (width, hidden)
                if tuple(linear.weight.shape) != (rows, columns):
                    raise ValueError(
                        f"{name} of expert {index} is {tuple(linear.weight.shape)}; "
                        f"({rows}, {columns}) is expected"
                    )
                if linear.bias is not None:
                    raise ValueError(f"{name} has a bias; experts without are expected")
            up_parts.append(quantize(torch.cat([gate.weight, upward.weight])))
            down_parts.append(quantize(down.weight))
        layer = cls._from_parts(
            up_parts, down_parts, hidden, width, input_scale, activation_scale, settings
        )
        layer.bind()
        return layer

    @classmethod
    def from_checkpoint(
        cls,
        tensors: Mapping[str, Tensor],
        prefixes: Sequence[str],
        *,
        names: tuple[str, str, str] = _PROJECTIONS,
        **settings: Any,
    ) -> NVFP4MoE:
        """Of a ModelOpt checkpoint. `prefixes`: of each expert, up to the projection's name, like
        `model.layers.3.mlp.experts.0.`."""
        kinds = ("weight", "weight_scale", "weight_scale_2", "input_scale")

        def tensor(prefix: str, name: str, kind: str) -> Tensor | None:
            return tensors.get(f"{prefix}{name}.{kind}")

        def matrix(path: str, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
            for kind in kinds[:3]:
                if f"{path}.{kind}" not in tensors:
                    raise KeyError(f"the checkpoint has no {path}.{kind}")
            codes, scales, decode = (tensors[f"{path}.{kind}"] for kind in kinds[:3])
            check(f"{path}.weight", codes, torch.uint8, rows, columns // 2)
            check(f"{path}.weight_scale", scales, E4M3, rows, columns // BLOCK)
            if decode.numel() != 1:
                raise ValueError(f"{path}.weight_scale_2 is {tuple(decode.shape)}; one is expected")
            return codes, scales, decode.reshape(1)

        def part(prefix: str, rows: int, columns: int, *given: str) -> tuple[Tensor, ...]:
            matrices = [matrix(prefix + name, rows, columns) for name in given]
            codes, scales, decode = (torch.cat(kind) for kind in zip(*matrices, strict=True))
            return codes, scales, one_scale(decode)

        def input_scale(*given: str) -> Tensor:
            every = [tensor(prefix, name, "input_scale") for prefix in prefixes for name in given]
            return largest([one for one in every if one is not None])

        gate, upward, down = names
        first = tensor(prefixes[0], gate, "weight") if prefixes else None
        if first is None or first.dim() != 2:
            found = "none" if first is None else tuple(first.shape)
            raise KeyError(
                f"of the first of {len(prefixes)} experts {gate}.weight is {found}; [width, "
                "hidden / 2] is expected, under each of the prefixes"
            )
        width, hidden = first.shape[0], 2 * first.shape[1]
        up_parts = [part(prefix, width, hidden, gate, upward) for prefix in prefixes]
        down_parts = [part(prefix, hidden, width, down) for prefix in prefixes]
        layer = cls._from_parts(
            up_parts,
            down_parts,
            hidden,
            width,
            input_scale(gate, upward),
            input_scale(down),
            settings,
        )
        layer.process_weights_after_loading()
        return layer

    @classmethod
    def from_stacked(cls, tensors: Mapping[str, Tensor | None], **settings: Any) -> NVFP4MoE:
        """Of all experts' tensors under this layer's own names, as inference engines hold them.
        Scales may be one for each expert and projection."""
        weight = tensors["w13_weight"]
        experts, width2, half = weight.shape
        layer = cls._sized(experts, 2 * half, width2 // 2, **settings)
        for part in ("w13", "w2"):
            for kind in ("weight", "weight_scale"):
                setattr(layer, f"{part}_{kind}", tensors[f"{part}_{kind}"].detach())
            decode = tensors[f"{part}_weight_scale_2"].reshape(experts, -1)
            decode = torch.stack([one_scale(each) for each in decode]).to(weight.device)
            setattr(layer, f"{part}_weight_scale_2", decode)
            input_scale = largest(tensors.get(f"{part}_input_scale")).to(weight.device)
            setattr(layer, f"{part}_input_scale", input_scale)
        layer.process_weights_after_loading()
        return layer

    @classmethod
    def _from_parts(
        cls,
        up_parts: list[tuple[Tensor, ...]],
        down_parts: list[tuple[Tensor, ...]],
        hidden_size: int,
        width: int,
        input_scale: float | Tensor | None,
        activation_scale: float | Tensor | None,
        settings: dict[str, Any],
    ) -> NVFP4MoE:
        """Codes, block scales and global scale (decode, or encode and decode) of each expert."""
        layer = cls._sized(len(up_parts), hidden_size, width, **settings)
        for name, parts in (("w13", up_parts), ("w2", down_parts)):
            codes, scales, decode = (torch.stack(kind) for kind in zip(*parts, strict=True))
            setattr(layer, f"{name}_weight", codes)
            setattr(layer, f"{name}_weight_scale", scales)
            setattr(layer, f"{name}_weight_scale_2", decode.view(len(parts), -1)[:, -1].clone())
        device = layer.w13_weight.device
        layer.w13_input_scale = largest(input_scale).to(device)
        layer.w2_input_scale = largest(activation_scale).to(device)
        return layer

    @classmethod
    def _sized(cls, experts: int, hidden_size: int, width: int, **settings: Any) -> NVFP4MoE:
        return cls(experts, hidden_size, width, device="meta", **settings)

    def shape(self, codes: str) -> tuple[int, int]:
        if codes == "w13_weight":
            return 2 * self.width, self.hidden_size
        return self.hidden_size, self.width

    def _activation_decode(self) -> Tensor:
        if self.w2_input_scale > 0:
            return self.w2_input_scale
        most = self.limit * (self.limit + abs(self.beta))
        return torch.full_like(self.w2_input_scale, min(most / 2688, 1.0))

    def make_runner(self) -> Runner:
        expert_map = self.expert_map
        if expert_map is not None:
            expert_map = expert_map.to(self.w13_weight.device, torch.int32).contiguous()
        return MoeRunner(
            self.w13_weight,
            self.w13_weight_scale,
            self.w13_weight_scale_2,
            self.w2_weight,
            self.w2_weight_scale,
            self.w2_weight_scale_2,
            activation_gsa=gsa_of(self._activation_decode()),
            hidden_gsa=gsa_of(self.w13_input_scale) if self.w13_input_scale > 0 else None,
            expert_map=expert_map,
            interleaved=self.interleaved,
            limit=self.limit,
            alpha=self.alpha,
            beta=self.beta,
            max_topk=self.max_topk,
        )

    def forward(self, x: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Tensor:
        """topk_weights and topk_ids [..., topk], with x's leading shape. An id that is no expert's
        is skipped."""
        self.require_ready()
        if topk_ids.dtype not in _IDS or topk_ids.dim() == 0 or topk_ids.shape[-1] == 0:
            raise ValueError(
                f"topk_ids is {tuple(topk_ids.shape)} {topk_ids.dtype}; [..., topk] int32 or int64 "
                "is expected"
            )
        if not x.device == topk_weights.device == topk_ids.device:
            raise ValueError(
                f"x is on {x.device}, topk_weights on {topk_weights.device} and topk_ids on "
                f"{topk_ids.device}; one device is expected"
            )
        topk = topk_ids.shape[-1]
        if topk_ids.dtype == torch.int64:  # what does not fit must not become somebody's id
            topk_ids = topk_ids.clamp(-1, _LAST_ID).to(torch.int32)
        y = self.call(
            torch.ops.nvfp4.moe_gemm.default,
            as_rows(x, self.hidden_size),
            topk_weights.reshape(-1, topk).to(torch.float32).contiguous(),
            topk_ids.reshape(-1, topk).contiguous(),
            size=self.hidden_size,
        )
        return like(y, x)

    def extra_repr(self) -> str:
        return (
            f"experts={self.experts}, hidden_size={self.hidden_size}, width={self.width}, "
            f"runner_id={self.runner_id}"
        )


class NVFP4SharedExpert(NVFP4MoE):
    """SwiGLU(x · gateᵀ, x · upᵀ) · downᵀ, gate clamped before SiLU, in one node: the expert that
    every token has. `from_linear([mlp])`, `from_checkpoint(tensors, ["….shared_experts."])`."""

    def __init__(self, hidden_size: int, width: int, **settings: Any) -> None:
        super().__init__(1, hidden_size, width, max_topk=1, **settings)

    @classmethod
    def _sized(cls, experts: int, hidden_size: int, width: int, **settings: Any) -> NVFP4MoE:
        if experts != 1:
            raise ValueError(f"{experts} experts are given; a shared expert is one")
        return cls(hidden_size, width, device="meta", **settings)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], 1)
        weights = torch.ones(shape, dtype=torch.float32, device=x.device)
        ids = torch.zeros(shape, dtype=torch.int32, device=x.device)
        return super().forward(x, weights, ids)
