# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts with NVFP4 weights in vLLM, for `cukiln.adapters.vllm`.

A method of vLLM's, which creates the parameters and loads them, is subclassed under its own name,
by which vLLM's loaders know it. The runner shares the layer's parameters: `w13_weight` and
`w2_weight` stay as they were loaded, block scales get the kernels' order, and gate and up of an
expert one global scale. A reload writes into them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from vllm import envs
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w4a4_nvfp4 as compressed_tensors,
)
from vllm.model_executor.layers.quantization.modelopt import (
    ModelOptNvFp4Config,
    ModelOptNvFp4FusedMoE,
)
from vllm.model_executor.utils import replace_parameter

from ._checkpoints import one_decode
from ._layer import as_rows, like
from ._runners import MoeRunner
from ._vllm import LOG, count_in_compile_keys, reason_unsupported, require_parameters
from ._weights import K_MULTIPLE, swizzle

_RUNNER = "cukiln_runner"
_LAYER = ("apply_router_weight_on_input", "expert_map", "swiglu_limit")


def _reason(moe: Any) -> str | None:
    """Why vLLM's own kernels compute this layer; None if cukiln's do."""
    parallel, sizes = moe.moe_parallel_config, (moe.hidden_dim, moe.intermediate_size_per_partition)
    refused = {
        f"--moe-backend is {moe.moe_backend}": moe.moe_backend != "auto",
        "VLLM_BATCH_INVARIANT is set": envs.VLLM_BATCH_INVARIANT,
        f"the activation is {moe.activation}": moe.activation is not MoEActivation.SILU,
        "the experts have biases": moe.has_bias,
        "LoRA is enabled": moe.is_lora_enabled,
        "EPLB moves experts": parallel.enable_eplb,
        "ranks exchange tokens": parallel.dp_size > 1
        or parallel.use_all2all_kernels
        or parallel.use_passthrough_all2all,
        f"the sizes are {sizes}, and not multiples of {K_MULTIPLE}": any(
            size % K_MULTIPLE for size in sizes
        ),
    }
    reasons = [reason for reason, holds in refused.items() if holds]
    return reason_unsupported("CukilnExperts") or next(iter(reasons), None)


class CukilnExperts(FusedMoEMethodBase):
    """In front of one of vLLM's methods."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        try:
            self._decline(_reason(self.moe))
        except AttributeError as error:  # another vLLM
            self._decline(str(error))

    def _decline(self, reason: str | None) -> None:
        self.cukiln_reason = reason
        if reason is not None:
            LOG.warning_once("cukiln: vLLM's own kernels compute NVFP4 experts: %s", reason)

    @property
    def is_monolithic(self) -> bool:
        return self.cukiln_reason is not None and super().is_monolithic

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        lacking = [name for name in _LAYER if not hasattr(layer, name)]
        if self.cukiln_reason is None and lacking:
            self._decline(f"their layer has no {', '.join(lacking)}")
        elif self.cukiln_reason is None and layer.apply_router_weight_on_input:
            self._decline("the router's weights scale their inputs")
        if self.cukiln_reason is not None:
            return super().process_weights_after_loading(layer)
        if layer.w13_weight_scale.dtype != torch.uint8:  # a weight cache has the kernels' order
            _process(layer)
        if not hasattr(layer, _RUNNER):  # a reload is copied into what the first load left
            setattr(layer, _RUNNER, _runner(layer, self.moe))

    def get_fused_moe_quant_config(self, layer: nn.Module) -> Any:
        """vLLM asks before each call, and its own answer is of its own kernels' layout."""
        return None if self.cukiln_reason is None else super().get_fused_moe_quant_config(layer)

    def apply(
        self,
        layer: nn.Module,
        x: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        shared_experts: Any,
        shared_experts_input: Tensor | None,
    ) -> Any:
        if self.cukiln_reason is not None:
            return super().apply(
                layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input
            )
        runner = getattr(layer, _RUNNER)
        bound = torch.compiler.is_compiling() or (
            layer.w13_weight.data_ptr() == runner._tensors[0].data_ptr()
        )
        if not bound:
            raise RuntimeError(
                "w13_weight of these experts was replaced, and their runner has what was there "
                "before; expected a reload that writes into it, as vLLM's reload_weights does"
            )
        y = torch.ops.nvfp4.moe_gemm.default(
            as_rows(x, runner.hidden_size),
            topk_weights.to(torch.float32).contiguous(),
            topk_ids.to(torch.int32).contiguous(),
            runner.runner_id,
            runner.hidden_size,
        )
        return like(y, x)


def _process(layer: nn.Module) -> None:
    decodes = {}
    for part in ("w13", "w2"):
        packed = getattr(layer, f"{part}_weight_packed", None)
        if packed is not None:  # compressed-tensors', whose scales are the inverse
            setattr(layer, f"{part}_weight", nn.Parameter(packed.data, requires_grad=False))
            delattr(layer, f"{part}_weight_packed")
            decodes[part] = 1 / getattr(layer, f"{part}_weight_global_scale").data
        else:
            decodes[part] = getattr(layer, f"{part}_weight_scale_2").data
    data, scales = layer.w13_weight.data, layer.w13_weight_scale.data
    both, down = decodes["w13"], decodes["w2"].clone()
    gate = both[:, 0].clone()
    rows = slice(0, data.shape[1] // 2), slice(data.shape[1] // 2, None)
    linear_in_up = layer.swiglu_limit is None
    for expert in (both[:, 0] != both[:, 1]).nonzero().flatten().tolist():
        parts = data[expert], scales[expert], both[expert]
        *one, ratio = one_decode(f"w13 of expert {expert}", *parts, rows, linear_in_up)
        data[expert], scales[expert], gate[expert] = one
        down[expert] *= ratio
    for part, decode in (("w13", gate), ("w2", down)):
        blocks = getattr(layer, f"{part}_weight_scale").data
        replace_parameter(layer, f"{part}_weight_scale", swizzle(blocks))
        replace_parameter(layer, f"{part}_weight_scale_2", decode)


def _runner(layer: nn.Module, moe: Any) -> MoeRunner:
    weights = [
        getattr(layer, f"{part}_weight{kind}").data
        for part in ("w13", "w2")
        for kind in ("", "_scale", "_scale_2")
    ]
    expert_map = layer.expert_map
    if expert_map is not None:
        expert_map = expert_map.to(torch.int32).contiguous()
    return MoeRunner(
        *weights,
        expert_map=expert_map,
        limit=math.inf if layer.swiglu_limit is None else layer.swiglu_limit,
        max_topk=moe.experts_per_token,
    )


def _subclass(method: type) -> type:
    return type(method.__name__, (CukilnExperts, method), {"__module__": __name__})


def install() -> None:
    """Puts the subclasses where vLLM finds its methods."""
    if issubclass(ModelOptNvFp4Config.FusedMoEMethodCls, CukilnExperts):
        return
    compressed = compressed_tensors.CompressedTensorsW4A4Nvfp4MoEMethod
    if ModelOptNvFp4Config.FusedMoEMethodCls is not ModelOptNvFp4FusedMoE:
        given = ModelOptNvFp4Config.FusedMoEMethodCls.__name__
        raise TypeError(
            f"ModelOptNvFp4Config has {given}; expected {ModelOptNvFp4FusedMoE.__name__}"
        )
    for method in (ModelOptNvFp4FusedMoE, compressed):
        require_parameters(method.process_weights_after_loading, "self", "layer")
        require_parameters(method.get_fused_moe_quant_config, "self", "layer")
        tensors = ("x", "topk_weights", "topk_ids", "shared_experts", "shared_experts_input")
        require_parameters(method.apply, "self", "layer", *tensors)
    count_in_compile_keys()
    ModelOptNvFp4Config.FusedMoEMethodCls = _subclass(ModelOptNvFp4FusedMoE)
    compressed_tensors.CompressedTensorsW4A4Nvfp4MoEMethod = _subclass(compressed)
