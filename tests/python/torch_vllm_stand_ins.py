# SPDX-License-Identifier: Apache-2.0
"""What cukiln's plugin takes from vLLM, in vLLM's names and signatures: `modules()` makes it anew.

Layers are created and their scales reduced as in vLLM; kernels compute nothing.
"""

import importlib.util
import logging
import sys
import types
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import torch
from torch import nn

LAYERS = "vllm.model_executor.layers"
QUANTIZATION = f"{LAYERS}.quantization"
KERNELS = "vllm.model_executor.kernels.linear"
MODELOPT = f"{QUANTIZATION}.modelopt"
COMPRESSED = f"{QUANTIZATION}.compressed_tensors"
EXPERTS = f"{COMPRESSED}.compressed_tensors_moe"
QUARK = f"{QUANTIZATION}.quark.schemes.quark_nvfp4"
INIT = "init_nvfp4_linear_kernel"


class PlatformEnum(Enum):
    CUDA = 1


class MoEActivation(Enum):
    SILU = "silu"
    GELU = "gelu"


envs = types.SimpleNamespace(
    VLLM_BATCH_INVARIANT=False, VLLM_DISABLED_KERNELS=[], environment_variables={}
)
current_platform = types.SimpleNamespace(
    capability=namedtuple("DeviceCapability", "major minor")(9, 0),
    is_cuda=lambda: True,
    get_device_capability=lambda: current_platform.capability,
)


class _Logger(logging.Logger):
    info_once, warning_once = logging.Logger.info, logging.Logger.warning


def init_logger(name):
    logging.getLogger(name).__class__ = _Logger
    return logging.getLogger(name)


@dataclass
class KernelConfig:
    linear_backend: Literal["auto", "marlin"] = "auto"


def replace_parameter(layer, param_name, new_tensor):
    old = getattr(layer, param_name, None)
    if old is None:
        setattr(layer, param_name, nn.Parameter(new_tensor, requires_grad=False))
    elif old.shape == new_tensor.shape and old.dtype == new_tensor.dtype:
        old.data.copy_(new_tensor)
    else:
        old.data = new_tensor


# ---- Linear layers


class NvFp4LinearLayerConfig:
    pass


class NvFp4LinearKernel:
    def __init__(self, config):
        assert self.is_supported()[0] and self.can_implement(config)[0]

    def process_weights_after_loading(self, layer):
        pass

    def apply_weights(self, layer, x, bias=None):
        return "vLLM's"


class MarlinNvFp4LinearKernel(NvFp4LinearKernel):
    @classmethod
    def is_supported(cls, compute_capability=None):
        return True, None

    can_implement = is_supported


_POSSIBLE_NVFP4_KERNELS = {PlatformEnum.CUDA: [MarlinNvFp4LinearKernel]}
_LINEAR_BACKEND_KERNEL_MAP = {"marlin": {MarlinNvFp4LinearKernel}}
linear_backend = ["auto"]


def _get_linear_backend(*, quantization):
    return linear_backend[0]


def init_nvfp4_linear_kernel(use_a16=False):
    if use_a16 or envs.VLLM_BATCH_INVARIANT:
        return MarlinNvFp4LinearKernel(None)
    possible = _POSSIBLE_NVFP4_KERNELS[PlatformEnum.CUDA]
    named = _LINEAR_BACKEND_KERNEL_MAP.get(linear_backend[0], set())
    possible = [kernel for kernel in possible if kernel in named] or possible
    return next(kernel for kernel in possible if kernel.is_supported()[0])(None)


def _register(layer, **shapes):
    for name, (dtype, *shape) in shapes.items():
        tensor = torch.empty(shape, dtype=dtype)
        layer.register_parameter(name, nn.Parameter(tensor, requires_grad=False))


class ModelOptLinearMethod:
    module, weight, scale = MODELOPT, "weight", "weight_scale_2"

    def __init__(self, use_a16=False):
        self.kernel = getattr(sys.modules[self.module], INIT)(use_a16)

    def create_weights(self, layer, output_partition_sizes, input_size_per_partition, **_):
        rows, columns = sum(output_partition_sizes), input_size_per_partition
        layer.logical_widths = output_partition_sizes
        layer.input_size_per_partition, layer.output_size_per_partition = columns, rows
        shapes = {
            self.weight: (torch.uint8, rows, columns // 2),
            "weight_scale": (torch.float8_e4m3fn, rows, columns // 16),
            self.scale: (torch.float32, len(output_partition_sizes)),
        }
        _register(layer, **shapes)

    def process_weights_after_loading(self, layer):
        replace_parameter(layer, "weight_global_scale", layer.weight_scale_2.max())
        del layer.weight_scale_2
        self.kernel.process_weights_after_loading(layer)


class QuarkNVFP4(ModelOptLinearMethod):
    module = QUARK

    def process_weights_after_loading(self, layer):
        replace_parameter(layer, "weight_global_scale", layer.weight_scale_2.max())
        del layer.weight_scale_2
        self.kernel.process_weights_after_loading(layer)


class CompressedTensorsW4A4Fp4(ModelOptLinearMethod):
    module, weight, scale = f"{COMPRESSED}.schemes", "weight_packed", "weight_global_scale"

    def process_weights_after_loading(self, layer):
        layer.weight = layer.weight_packed
        del layer.weight_packed
        replace_parameter(layer, self.scale, 1 / layer.weight_global_scale.max())
        self.kernel.process_weights_after_loading(layer)


# ---- Experts


class FusedMoEMethodBase:
    packed, scale = "", "weight_scale_2"

    def __init__(self, moe):
        self.moe, self.moe_kernel = moe, None

    @property
    def is_monolithic(self):
        return True

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, **_):
        width = intermediate_size_per_partition
        for part, rows, columns in (("w13", 2 * width, hidden_size), ("w2", hidden_size, width)):
            shapes = {
                f"{part}_weight{self.packed}": (torch.uint8, num_experts, rows, columns // 2),
                f"{part}_weight_scale": (torch.float8_e4m3fn, num_experts, rows, columns // 16),
                f"{part}_{self.scale}": (
                    torch.float32,
                    num_experts,
                    *([2] if part == "w13" else []),
                ),
            }
            _register(layer, **shapes)

    def process_weights_after_loading(self, layer):
        layer.built_in = True

    def get_fused_moe_quant_config(self, layer):
        return "vLLM's"

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
        return "vLLM's"


class ModelOptNvFp4FusedMoE(FusedMoEMethodBase):
    def __init__(self, quant_config, moe_config):
        super().__init__(moe_config)


class CompressedTensorsW4A4Nvfp4MoEMethod(FusedMoEMethodBase):
    packed, scale = "_packed", "weight_global_scale"

    def __init__(self, moe, layer_name=None, use_a16=False):
        super().__init__(moe)


class ModelOptNvFp4Config:
    FusedMoEMethodCls = ModelOptNvFp4FusedMoE


# ---- Where vLLM has them

WHERE = {
    "vllm": ("envs",),
    "vllm.logger": ("init_logger",),
    "vllm.platforms": ("current_platform", "PlatformEnum"),
    "vllm.config.kernel": ("KernelConfig",),
    "vllm.model_executor.utils": ("replace_parameter",),
    KERNELS: (
        "_LINEAR_BACKEND_KERNEL_MAP",
        "_POSSIBLE_NVFP4_KERNELS",
        "NvFp4LinearKernel",
        "NvFp4LinearLayerConfig",
        "_get_linear_backend",
        INIT,
    ),
    MODELOPT: (INIT, "ModelOptLinearMethod", "ModelOptNvFp4Config", "ModelOptNvFp4FusedMoE"),
    f"{COMPRESSED}.schemes": (INIT, "CompressedTensorsW4A4Fp4"),
    QUARK: (INIT, "QuarkNVFP4"),
    f"{LAYERS}.fused_moe.activation": ("MoEActivation",),
    f"{LAYERS}.fused_moe.fused_moe_method_base": ("FusedMoEMethodBase",),
    f"{EXPERTS}.compressed_tensors_moe_w4a4_nvfp4": ("CompressedTensorsW4A4Nvfp4MoEMethod",),
}


def modules():
    """A copy of this module, and vLLM's modules by name, with its objects."""
    spec = importlib.util.spec_from_file_location("vllm.stand_ins", __file__)
    own = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = own  # dataclasses look there
    spec.loader.exec_module(own)
    made = {}
    for path, names in WHERE.items():
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name not in made:
                made[name] = types.ModuleType(name)
                made[name].__path__ = []
                if end > 1:
                    setattr(made[".".join(parts[: end - 1])], parts[end - 1], made[name])
        for name in names:
            setattr(made[path], name, getattr(own, name))
    return own, made
