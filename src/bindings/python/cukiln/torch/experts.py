# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts and shared experts with NVFP4 weights; the rest as in `layers`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ._checkpoints import AsModelOpt, blocks_of_16, one_decode, refuse_smoothing
from ._layer import (
    Activations,
    Layer,
    as_rows,
    check,
    check_block_scales,
    check_weight,
    largest,
    like,
    one_scale,
)
from ._runners import MoeRunner, Runner
from ._weights import BLOCK, E4M3, K_MULTIPLE, blank, make_global_scale, quantize

_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_IDS = {torch.int32, torch.int64}
_LAST_ID = (1 << 31) - 1
_FEW_TOKENS = 16  # for each expert: with more, batch invariance was not shown on a GPU


def _projection(expert: nn.Module, index: int, name: str) -> nn.Linear:
    linear = getattr(expert, name, None)
    if not isinstance(linear, nn.Linear):
        found = "missing" if linear is None else f"a {type(linear).__name__}"
        raise ValueError(
            f"{name} of expert {index}, a {type(expert).__name__}, is {found}; expected an "
            "nn.Linear: `names` are those of gate, up and down"
        )
    return linear


def _is_linear_in_up(settings: Mapping[str, Any]) -> bool:
    """Whether SwiGLU with these settings is linear in up."""
    return settings.get("limit", math.inf) == math.inf and settings.get("beta", 0.0) == 0


def _check_map(expert_map: Tensor, experts: int) -> None:
    if expert_map.dim() != 1 or expert_map.dtype not in _IDS:
        raise ValueError(
            f"expert_map is {tuple(expert_map.shape)} {expert_map.dtype}; expected [ids] int32 or "
            "int64"
        )
    if not expert_map.is_meta and ((expert_map < -1) | (expert_map >= experts)).any():
        raise ValueError(
            f"expert_map has {expert_map.min()} to {expert_map.max()}; expected -1, for none, to "
            f"{experts - 1}"
        )


class NVFP4MoE(Layer):
    """A mixture of experts: for each token, the sum over its experts of
    weight · (SwiGLU(x · gateᵀ, x · upᵀ) · downᵀ), in one node.

    SwiGLU: gate = min(gate, limit), up = clamp(up, ±limit), then
    gate · sigmoid(alpha · gate) · (up + beta). Empty until weights are loaded: `w13_…` is gate
    above up, or in pairs of rows if `interleaved`, `w2_…` is down, each of all experts; the rest as
    in `NVFP4Linear`, `activations` too: in bf16 what lies between the GEMMs is not quantised
    either. Else it has a fixed scale, `w2_input_scale`, or where a checkpoint lacks it each token a
    scale of its own for each of its experts, by its amax, which takes one kernel more.
    """

    matrices = (("w13_weight", "w13_weight_scale"), ("w2_weight", "w2_weight_scale"))
    decodes = ("w13_weight_scale_2", "w2_weight_scale_2")
    optional = ("w13_input_scale", "w2_input_scale")
    copied: tuple[str, ...] = ("expert_map",)
    settings = ("activations", "limit", "alpha", "beta", "interleaved")

    w13_weight: Tensor
    w13_weight_scale: Tensor
    w13_weight_scale_2: Tensor
    w13_input_scale: Tensor
    w2_weight: Tensor
    w2_weight_scale: Tensor
    w2_weight_scale_2: Tensor
    w2_input_scale: Tensor
    w13_bias: Tensor | None  # of NVFP4Experts only
    w2_bias: Tensor | None
    expert_map: Tensor | None

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
        activations: Activations = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(activations)
        for name, value in (("hidden_size", hidden_size), ("width", width)):
            if value <= 0 or value % K_MULTIPLE:
                raise ValueError(f"{name} is {value}; expected a positive multiple of 32")
        for name, count in (("experts", experts), ("max_topk", max_topk)):
            if count <= 0:
                raise ValueError(f"{name} is {count}; expected a positive number")
        if expert_map is not None:
            _check_map(expert_map, experts)
        self.experts, self.hidden_size, self.width = experts, hidden_size, width
        self.limit, self.alpha, self.beta = limit, alpha, beta
        self.interleaved, self.max_topk = interleaved, max_topk
        for part in ("w13", "w2"):
            rows, columns = self.shape(f"{part}_weight")
            data, blocks = (experts, rows, columns // 2), (experts, rows, columns // BLOCK)
            for name, value in (
                ("weight", blank(data, torch.uint8, device)),
                ("weight_scale", blank(blocks, E4M3, device)),
                ("weight_scale_2", blank((experts,), torch.float32, device)),
                ("input_scale", torch.zeros((), dtype=torch.float32, device=device)),
            ):
                self.register_buffer(f"{part}_{name}", value)
        self.register_buffer("w13_bias", None)
        self.register_buffer("w2_bias", None)
        self.register_buffer("expert_map", expert_map, persistent=False)
        self._loaded.add("expert_map")  # no state dict has it

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
        `activation_scale`: decode, of the inputs of the two GEMMs."""
        up_parts, down_parts = [], []
        hidden = width = 0
        for index, expert in enumerate(experts):
            gate, upward, down = (_projection(expert, index, name) for name in names)
            if index == 0:
                width, hidden = gate.out_features, gate.in_features
            for name, linear in zip(names, (gate, upward, down), strict=True):
                rows, columns = (hidden, width) if linear is down else (width, hidden)
                check_weight(f"{name} of expert {index}", linear.weight, rows, columns)
                if linear.bias is not None:
                    raise ValueError(f"{name} has a bias; expected experts without")
            up_parts.append(quantize(torch.cat([gate.weight, upward.weight])))
            down_parts.append(quantize(down.weight))
        if not up_parts:
            raise ValueError("experts is empty; expected at least one module")
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
        """Of a checkpoint by ModelOpt, or by compressed-tensors. `prefixes`: of each expert, up to
        the projection's name, like `model.layers.3.mlp.experts.0.`.

        Where gate and up of an expert have scales of their own, their ratio goes into the block
        scales if it is a power of two, or else into down's scale; with a limit or a beta it cannot,
        and the one with the smaller scale is quantised again, with a warning."""
        tensors = AsModelOpt(tensors)
        in_up = _is_linear_in_up(settings)
        kinds = ("weight", "weight_scale", "weight_scale_2", "input_scale")

        def tensor(prefix: str, name: str, kind: str) -> Tensor | None:
            return tensors.get(f"{prefix}{name}.{kind}")

        def matrix(path: str, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
            for kind in kinds[:3]:
                if f"{path}.{kind}" not in tensors:
                    raise KeyError(f"the checkpoint has no {path}.{kind}")
            refuse_smoothing(tensors, path)
            data, scales, decode = (tensors[f"{path}.{kind}"] for kind in kinds[:3])
            scales = blocks_of_16(data, scales)
            check(f"{path}.weight", data, torch.uint8, rows, columns // 2)
            check(f"{path}.weight_scale", scales, E4M3, rows, columns // BLOCK)
            check_block_scales(f"{path}.weight_scale", scales)
            if decode.numel() != 1:
                raise ValueError(f"{path}.weight_scale_2 is {tuple(decode.shape)}; expected one")
            return data, scales, decode.reshape(1)

        def part(prefix: str, rows: int, columns: int, *given: str) -> tuple[Tensor, ...]:
            matrices = [matrix(prefix + name, rows, columns) for name in given]
            data, scales, decode = (torch.cat(kind) for kind in zip(*matrices, strict=True))
            if len(given) == 1:
                return data, scales, one_scale(decode)
            halves = slice(0, rows), slice(rows, None)
            *parts, ratio = one_decode(prefix + given[0], data, scales, decode, halves, in_up)
            ratios.append(ratio)
            return (*parts[:2], parts[2].to(data.device))

        def input_scale(*given: str) -> Tensor:
            every = [tensor(prefix, name, "input_scale") for prefix in prefixes for name in given]
            return largest([one for one in every if one is not None])

        gate, upward, down = names
        first = tensor(prefixes[0], gate, "weight") if prefixes else None
        if first is None or first.dim() != 2:
            found = "none" if first is None else tuple(first.shape)
            raise KeyError(
                f"of the first of {len(prefixes)} experts {gate}.weight is {found}; expected "
                "[width, hidden / 2], under each of the prefixes"
            )
        width, hidden = first.shape[0], 2 * first.shape[1]
        ratios: list[float] = []
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
        layer._fold(ratios)
        layer._take_biases(tensors, prefixes, names, ratios)
        layer.process_weights_after_loading()
        return layer

    @classmethod
    def from_stacked(cls, tensors: Mapping[str, Tensor | None], **settings: Any) -> NVFP4MoE:
        """Of all experts' tensors under this layer's own names, as inference engines hold them.
        Scales may be one for each expert and projection; if they differ, as in from_checkpoint."""
        given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        weight = given["w13_weight"]
        experts, width2, half = weight.shape
        layer = cls._sized(experts, 2 * half, width2 // 2, **settings)
        ratios: list[float] = []
        for part in ("w13", "w2"):
            for kind in ("weight", "weight_scale"):
                setattr(layer, f"{part}_{kind}", given[f"{part}_{kind}"].detach())
            decode = given[f"{part}_weight_scale_2"].reshape(experts, -1)
            if part == "w13" and decode.shape[1] == 2:
                decode, ratios = layer._one_decode_each(decode)
            else:
                decode = torch.stack([one_scale(each) for each in decode])
            setattr(layer, f"{part}_weight_scale_2", decode.to(weight.device))
            input_scale = largest(given.get(f"{part}_input_scale")).to(weight.device)
            setattr(layer, f"{part}_input_scale", input_scale)
        layer._fold(ratios)
        layer.process_weights_after_loading()
        return layer

    def _one_decode_each(self, decodes: Tensor) -> tuple[Tensor, list[float]]:
        """Gate and up of each expert under one scale."""
        width, linear_in_up = self.width, _is_linear_in_up(vars(self))
        rows = slice(0, width), slice(width, None)
        if self.interleaved:
            rows = slice(0, None, 2), slice(1, None, 2)
        done = [
            one_decode(f"w13 of expert {index}", *parts, rows, linear_in_up)
            for index, parts in enumerate(
                zip(self.w13_weight, self.w13_weight_scale, decodes, strict=True)
            )
        ]
        data, scales, decode, ratios = zip(*done, strict=True)
        self.w13_weight, self.w13_weight_scale = torch.stack(data), torch.stack(scales)
        return torch.stack(decode), list(ratios)

    def _fold(self, ratios: list[float]) -> None:
        """What one_decode left of up's scales, into down's. The values between the GEMMs are
        that much smaller then, or larger."""
        if all(ratio == 1 for ratio in ratios):
            return
        self.w2_weight_scale_2 = self.w2_weight_scale_2 * torch.tensor(
            ratios, device=self.w2_weight_scale_2.device
        )
        self.w2_input_scale = self.w2_input_scale * max(1.0, 1 / min(ratios))

    def _take_biases(
        self,
        tensors: Mapping[str, Tensor],
        prefixes: Sequence[str],
        names: tuple[str, str, str],
        ratios: list[float],
    ) -> None:
        biases = [f"{prefixes[0]}{name}.bias" for name in names]
        if any(name in tensors for name in biases):
            raise ValueError(
                f"the checkpoint has {', '.join(name for name in biases if name in tensors)}; "
                "expected experts without biases, or NVFP4Experts, which may have them"
            )

    @classmethod
    def from_bf16(
        cls,
        gate_up_proj: Tensor,
        down_proj: Tensor,
        *,
        input_scale: float | Tensor | None = None,
        activation_scale: float | Tensor | None = None,
        **settings: Any,
    ) -> NVFP4MoE:
        """Quantises stacked experts, [experts, 2 · width, hidden] and [experts, hidden, width]; the
        scales as in from_linear. On meta they make an empty layer."""
        if (
            gate_up_proj.dim() != 3
            or down_proj.dim() != 3
            or gate_up_proj.shape[1] % 2
            or tuple(down_proj.shape)
            != (gate_up_proj.shape[0], gate_up_proj.shape[2], gate_up_proj.shape[1] // 2)
        ):
            raise ValueError(
                f"gate_up_proj is {tuple(gate_up_proj.shape)} and down_proj "
                f"{tuple(down_proj.shape)}; expected [experts, 2 * width, hidden] and [experts, "
                "hidden, width]"
            )
        experts, hidden, width = down_proj.shape
        for name, weight in (("gate_up_proj", gate_up_proj), ("down_proj", down_proj)):
            check_weight(name, weight, *weight.shape)
        if gate_up_proj.is_meta:
            return cls._sized(experts, hidden, width, **settings)
        layer = cls._from_parts(
            [quantize(weight) for weight in gate_up_proj],
            [quantize(weight) for weight in down_proj],
            hidden,
            width,
            input_scale,
            activation_scale,
            settings,
        )
        layer.bind()
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
            data, scales, decode = (torch.stack(kind) for kind in zip(*parts, strict=True))
            setattr(layer, f"{name}_weight", data)
            setattr(layer, f"{name}_weight_scale", scales)
            setattr(layer, f"{name}_weight_scale_2", decode.view(len(parts), -1)[:, -1].clone())
        device = layer.w13_weight.device
        layer.w13_input_scale = largest(input_scale).to(device)
        layer.w2_input_scale = largest(activation_scale).to(device)
        return layer

    @classmethod
    def _sized(cls, experts: int, hidden_size: int, width: int, **settings: Any) -> NVFP4MoE:
        return cls(experts, hidden_size, width, device="meta", **settings)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NVFP4MoE:
        given = self.expert_map
        super()._apply(fn, recurse)
        if given is not None and not given.is_meta and not self._ready:  # not lost by to_empty
            device = self.w13_weight.device
            self.expert_map = given if device.type == "meta" else given.to(device)
        return self

    def shape(self, data: str) -> tuple[int, int]:
        if data == "w13_weight":
            return 2 * self.width, self.hidden_size
        return self.hidden_size, self.width

    def batch_invariant(self, tokens: int = 16) -> NVFP4MoE:
        """From now on a token's result is the same, bit for bit, in every batch, and no NaN or
        outlier of another token reaches it. Every call of the kernels has `tokens` rows, some of
        which may be padding, which no expert takes: for decode. More tokens are several calls.

        Activations are in bf16 or have a fixed scale, `w13_input_scale`: else it is a ValueError,
        here or when weights are loaded. On a GPU at most 16 tokens for each expert on average
        (tokens · topk / experts) are taken; with more, this was not shown."""
        self._take_groups(tokens)
        return self

    def _require_fixed_scales(self) -> None:
        if not (self.keeps_bf16() or self.w13_input_scale > 0):
            raise ValueError(
                f"batch_invariant: this {type(self).__name__} has no w13_input_scale, so that all "
                "tokens of a call have one scale, by their amax: pass input_scale, the largest "
                'value / 2688, or activations="bf16"'
            )

    def make_runner(self) -> Runner:
        is_fixed = bool(self.w2_input_scale > 0) and not self.keeps_bf16()
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
            activation_global_scale=make_global_scale(self.w2_input_scale) if is_fixed else None,
            dynamic_activations=not (is_fixed or self.keeps_bf16()),
            hidden_global_scale=(
                make_global_scale(self.w13_input_scale) if self.w13_input_scale > 0 else None
            ),
            expert_map=expert_map,
            up_bias=self.w13_bias,
            down_bias=self.w2_bias,
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
        self._check_routing(x, topk_ids)
        if topk_weights.shape != topk_ids.shape:
            raise ValueError(
                f"topk_weights is {tuple(topk_weights.shape)}; expected the shape of topk_ids, "
                f"{tuple(topk_ids.shape)}"
            )
        if topk_weights.is_complex():
            raise ValueError(f"topk_weights is {topk_weights.dtype}; expected real numbers")
        if not x.device == topk_weights.device == topk_ids.device:
            raise ValueError(
                f"x is on {x.device}, topk_weights on {topk_weights.device} and topk_ids on "
                f"{topk_ids.device}; expected one device"
            )
        topk = topk_ids.shape[-1]
        rows = as_rows(x, self.hidden_size)
        if topk_ids.dtype == torch.int64:  # what does not fit must not become an expert's id
            topk_ids = topk_ids.clamp(-1, _LAST_ID).to(torch.int32)
        run = self._run_in_groups if self._group else self._run
        y = run(
            rows,
            topk_weights.reshape(-1, topk).to(torch.float32).contiguous(),
            topk_ids.reshape(-1, topk).contiguous(),
        )
        return like(y, x)

    def _run(self, rows: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Tensor:
        op = torch.ops.nvfp4.moe_gemm.default
        return self.call(op, rows, topk_weights, topk_ids, size=self.hidden_size)

    def _run_in_groups(self, rows: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Tensor:
        tokens, group, topk = rows.shape[0], self._group, topk_ids.shape[1]
        experts = self.experts if self.expert_map is None else len(self.expert_map)
        if rows.is_cuda and group * topk > _FEW_TOKENS * experts:
            raise ValueError(
                f"batch_invariant({group}): {group} tokens with {topk} of {experts} experts each "
                f"are more than {_FEW_TOKENS} for each expert on average; expected at most "
                f"{_FEW_TOKENS * experts // topk} tokens"
            )
        more = group - tokens if tokens <= group else -tokens % group
        rows, topk_weights = (pad(each, (0, 0, 0, more)) for each in (rows, topk_weights))
        topk_ids = pad(topk_ids, (0, 0, 0, more), value=-1)
        if tokens <= group:
            return self._run(rows, topk_weights, topk_ids)[:tokens]
        given = (each.split(group) for each in (rows, topk_weights, topk_ids))
        return torch.cat([self._run(*part) for part in zip(*given, strict=True)])[:tokens]

    def _check_routing(self, x: Tensor, topk_ids: Tensor) -> None:
        if topk_ids.dtype not in _IDS or topk_ids.dim() == 0 or topk_ids.shape[-1] == 0:
            raise ValueError(
                f"topk_ids is {tuple(topk_ids.shape)} {topk_ids.dtype}; expected [..., topk] "
                "int32 or int64"
            )
        leading, tokens = topk_ids.shape[:-1], x.shape[:-1]
        if leading != tokens and leading != (tokens.numel(),):
            raise ValueError(
                f"topk_ids is {tuple(topk_ids.shape)} and x {tuple(x.shape)}; expected the same "
                "leading shape, or [tokens, topk]"
            )

    @torch.no_grad()
    def calibrate(self, x: Tensor, topk_ids: Tensor) -> Tensor:
        """Raises `w2_input_scale` to what holds all that lies between the GEMMs for these tokens,
        and returns it: the layer must have seen tokens of every kind. Like new weights, it ends
        exported programs of this layer."""
        self.require_ready()
        self._check_routing(x, topk_ids)
        rows, topk_ids = as_rows(x, self.hidden_size), topk_ids.reshape(-1, topk_ids.shape[-1])
        if self.expert_map is not None:
            known = (topk_ids >= 0) & (topk_ids < len(self.expert_map))
            there = self.expert_map.to(topk_ids)[topk_ids.clamp(0, len(self.expert_map) - 1).long()]
            topk_ids = torch.where(known, there, -1)
        scales = [self.w2_input_scale]
        for expert in range(self.experts):
            tokens = rows[(topk_ids == expert).any(-1)]
            if len(tokens):
                scales.append(self._activation_scale(tokens, expert))
        scale = largest(scales)
        if not (scale > 0 and scale.isfinite()):
            raise ValueError(
                f"the scale of what lies between the GEMMs is {scale.item()}; it needs tokens "
                "for which that is neither all 0, nor infinite or NaN, of experts of this layer"
            )
        self._buffers["w2_input_scale"] = scale
        self.bind()
        return scale

    def _activation_scale(self, tokens: Tensor, expert: int) -> Tensor:
        """Decode of SwiGLU's results."""
        global_scale = make_global_scale(self.w13_input_scale)
        if not self.w13_input_scale > 0:
            global_scale = torch.ops.nvfp4.amax_gsa(tokens)
        between = torch.ops.nvfp4.gemm(
            *torch.ops.nvfp4.quantize_nvfp4_from_buffer(tokens, global_scale),
            global_scale,
            self.w13_weight[expert],
            self.w13_weight_scale[expert],
            make_global_scale(self.w13_weight_scale_2[expert]),
            None if self.w13_bias is None else self.w13_bias[expert],
        )
        return torch.ops.nvfp4.swiglu_amax_gsa(
            between, self.limit, self.alpha, self.beta, self.interleaved
        )[1]

    def extra_repr(self) -> str:
        return (
            f"experts={self.experts}, hidden_size={self.hidden_size}, width={self.width}, "
            f"{self._shown()}"
        )


class NVFP4SharedExpert(NVFP4MoE):
    """SwiGLU(x · gateᵀ, x · upᵀ) · downᵀ, gate clamped before SiLU: the expert that every token has.
    `from_linear([mlp])`, `from_checkpoint(tensors, ["….shared_experts."])`.
    """

    copied: tuple[str, ...] = ()

    def __init__(self, hidden_size: int, width: int, **settings: Any) -> None:
        if settings.get("expert_map") is not None:
            raise ValueError("expert_map is given; a shared expert is one, for all tokens")
        super().__init__(1, hidden_size, width, max_topk=1, **settings)

    @classmethod
    def _sized(cls, experts: int, hidden_size: int, width: int, **settings: Any) -> NVFP4MoE:
        if experts != 1:
            raise ValueError(f"{experts} experts are given; a shared expert is one")
        return cls(hidden_size, width, device="meta", **settings)

    def calibrate(self, x: Tensor) -> Tensor:
        """As NVFP4MoE's."""
        return super().calibrate(x, torch.zeros(*x.shape[:-1], 1, dtype=torch.int32, device=x.device))

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]  # routing has no part in it
        shape = (*x.shape[:-1], 1)
        weights = torch.ones(shape, dtype=torch.float32, device=x.device)
        ids = torch.zeros(shape, dtype=torch.int32, device=x.device)
        return super().forward(x, weights, ids)
