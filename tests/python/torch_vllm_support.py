# SPDX-License-Identifier: Apache-2.0
"""Layers of vLLM's methods, or of the stand-ins, with weights as checkpoints have them."""

import importlib
import sys
import types

import torch
from torch import nn

import torch_vllm_stand_ins as stand_ins
from torch_layers_support import modelopt

LINEAR = ("ModelOptLinearMethod", "CompressedTensorsW4A4Fp4", "QuarkNVFP4")
EXPERTS = ("ModelOptNvFp4FusedMoE", "CompressedTensorsW4A4Nvfp4MoEMethod")
PLUGIN = ("cukiln.torch._vllm", "cukiln.torch.vllm_linear", "cukiln.torch.vllm_experts")


class Engine:
    """vLLM, or what stands in for it, with the plugin."""

    def __init__(self):
        for name in PLUGIN:
            sys.modules.pop(name, None)

    def __getitem__(self, name):
        return importlib.import_module(name)

    @property
    def possible(self):
        kernels = self[stand_ins.KERNELS]
        return kernels._POSSIBLE_NVFP4_KERNELS[self["vllm.platforms"].PlatformEnum.CUDA]

    def linear(self, kind, use_a16=True):
        where = {
            LINEAR[0]: stand_ins.MODELOPT,
            LINEAR[1]: f"{stand_ins.COMPRESSED}.schemes",
            LINEAR[2]: stand_ins.QUARK,
        }
        return getattr(self[where[kind]], kind)(use_a16)

    def experts(self, kind, moe):
        if kind == EXPERTS[0]:
            method = self[stand_ins.MODELOPT].ModelOptNvFp4Config.FusedMoEMethodCls
            return method(quant_config=None, moe_config=moe)
        module = self[f"{stand_ins.EXPERTS}.compressed_tensors_moe_w4a4_nvfp4"]
        return getattr(module, kind)(moe)

    def moe(self, experts=3, hidden=64, width=32, topk=2, **settings):
        parallel = {
            "enable_eplb": False,
            "dp_size": 1,
            "use_all2all_kernels": False,
            "use_passthrough_all2all": False,
        }
        for name in parallel.keys() & settings.keys():
            parallel[name] = settings.pop(name)
        given = {
            "num_experts": experts,
            "experts_per_token": topk,
            "hidden_dim": hidden,
            "intermediate_size_per_partition": width,
            "activation": self[f"{stand_ins.LAYERS}.fused_moe.activation"].MoEActivation.SILU,
            "is_act_and_mul": True,
            "moe_backend": "auto",
            "has_bias": False,
            "is_lora_enabled": False,
            "moe_parallel_config": types.SimpleNamespace(**parallel),
        }
        return types.SimpleNamespace(**{**given, **settings})


def fill(layer, prefix, index, tensors):
    """One matrix of a checkpoint, as a loader of vLLM writes it: rows `index` of a linear layer, or
    an expert's; its global scale under whichever name there is."""
    named = dict(layer.named_parameters())
    data = named.get(f"{prefix}weight_packed", named.get(f"{prefix}weight"))
    rows, part = index
    data.data[rows] = tensors["weight"]
    named[f"{prefix}weight_scale"].data[rows] = tensors["weight_scale"]
    if f"{prefix}weight_global_scale" in named:
        named[f"{prefix}weight_global_scale"].data[part] = 1 / tensors["weight_scale_2"]
    else:
        named[f"{prefix}weight_scale_2"].data[part] = tensors["weight_scale_2"]
    for name, parameter in named.items():
        if "input" in name:
            parameter.data.fill_(1 / 64)


def load_linear(method, layer, parts):
    """Makes the parameters of a layer, and loads them. Returns its weight, dequantised."""
    sizes, columns = [len(part) for part in parts], parts[0].shape[1]
    method.create_weights(
        layer,
        output_partition_sizes=sizes,
        input_size_per_partition=columns,
        input_size=columns,
        output_size=sum(sizes),
        params_dtype=torch.bfloat16,
        weight_loader=None,
    )
    row, expected = 0, []
    for index, part in enumerate(parts):
        tensors, weight = modelopt(part)
        fill(layer, "", (slice(row, row + len(part)), index), tensors)
        row += len(part)
        expected.append(torch.from_numpy(weight))
    return torch.cat(expected)


def load_experts(method, layer, experts):
    """As load_linear, of (gate, up, down) of each. Returns the dequantised ones."""
    width, hidden = experts[0][0].shape
    method.create_weights(
        layer,
        num_experts=len(experts),
        hidden_size=hidden,
        intermediate_size_per_partition=width,
        params_dtype=torch.bfloat16,
        global_num_experts=len(experts),
        weight_loader=None,
    )
    layer.__dict__.setdefault("expert_map", None)
    layer.__dict__.setdefault("swiglu_limit", None)
    layer.__dict__.setdefault("apply_router_weight_on_input", False)
    dequantised = []
    for expert, matrices in enumerate(experts):
        tensors, weights = zip(*(modelopt(matrix) for matrix in matrices), strict=True)
        fill(layer, "w13_", ((expert, slice(0, width)), (expert, 0)), tensors[0])
        fill(layer, "w13_", ((expert, slice(width, None)), (expert, 1)), tensors[1])
        fill(layer, "w2_", (expert, expert), tensors[2])
        dequantised.append([torch.from_numpy(weight) for weight in weights])
    return dequantised


def emulated_experts(x, weights, ids, experts, limit=None):
    """In float64, the values between the GEMMs rounded to bf16 once."""
    y = torch.zeros(x.shape, dtype=torch.float64)
    for token, row in enumerate(x.double().cpu()):
        for weight, expert in zip(weights[token].tolist(), ids[token].tolist(), strict=True):
            gate, up, down = experts[expert]
            gate, up = gate @ row, up @ row
            if limit is not None:
                gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            y[token] += weight * (down @ (nn.functional.silu(gate) * up).bfloat16().double())
    return y


def reload(layer, load, process):
    """As vLLM's reload_weights: new tensors are made, loaded and processed, then copied into those
    that the layer has."""
    kept = dict(layer.named_parameters())
    for name in kept:
        delattr(layer, name)
    expected = load()
    process(layer)
    for name, parameter in kept.items():
        parameter.data.copy_(getattr(layer, name))
    for name in dict(layer.named_parameters()):
        delattr(layer, name)
    for name, parameter in kept.items():
        layer.register_parameter(name, parameter)
    return expected
