# SPDX-License-Identifier: Apache-2.0
"""NVFP4 linear layers of vLLM, for `cukiln.adapters.vllm`.

All memory is parameters of vLLM's layer under its own names, which the op takes as arguments: a
reload that writes them, sleep mode and the weight cache work, graphs of equal layers are equal, and
nothing is kept twice. `weight` stays as it was loaded, but for padding where a shard has no
multiple of 32 columns or of 8 rows; block scales get the kernels' order; `weight_global_scale`
becomes {encode, decode}.

Parts of one matrix, such as q, k and v, may have global scales of their own, of which vLLM takes
one. Results of each part are then multiplied by the ratio of its scale to that one.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from vllm import envs
from vllm.config.kernel import KernelConfig
from vllm.model_executor.kernels.linear import (
    _LINEAR_BACKEND_KERNEL_MAP,
    _POSSIBLE_NVFP4_KERNELS,
    NvFp4LinearKernel,
    NvFp4LinearLayerConfig,
    _get_linear_backend,
    init_nvfp4_linear_kernel,
)
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import (
    CompressedTensorsW4A4Fp4,
)
from vllm.model_executor.layers.quantization.modelopt import ModelOptLinearMethod
from vllm.model_executor.layers.quantization.quark.schemes.quark_nvfp4 import QuarkNVFP4
from vllm.model_executor.utils import replace_parameter
from vllm.platforms import PlatformEnum

from ._layer import as_rows, like
from ._runners import use_loader
from ._vllm import (
    LOG,
    SCALED,
    count_in_compile_keys,
    reason_unsupported,
    require_parameters,
)
from ._weights import K_MULTIPLE, N_MULTIPLE, make_global_scale, pad_data, pad_scales, swizzle, up

BACKEND = "cukiln"  # of --linear-backend
_COLUMN_SCALE = "cukiln_column_scale"


class CukilnNvFp4LinearKernel(NvFp4LinearKernel):
    """x · weightᵀ, activations in bf16."""

    def __init__(self, config: NvFp4LinearLayerConfig) -> None:
        super().__init__(config)
        self.ratios: Tensor | None = None  # of the layer that is being processed
        if torch.cuda.is_available():
            use_loader()

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        reason = reason_unsupported(cls.__name__)
        return reason is None, reason

    @classmethod
    def can_implement(cls, config: NvFp4LinearLayerConfig) -> tuple[bool, str | None]:
        return True, None

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        data, scales = layer.weight.data, layer.weight_scale.data
        size = data.shape[0]
        rows, columns = up(size, N_MULTIPLE), up(2 * data.shape[1], K_MULTIPLE)
        if data.shape != (rows, columns // 2):
            replace_parameter(layer, "weight", pad_data(data, rows, columns))
        replace_parameter(layer, "weight_scale", swizzle(pad_scales(scales, rows, columns)))
        decode = layer.weight_global_scale.data.reshape(())
        replace_parameter(layer, "weight_global_scale", make_global_scale(decode))
        self._take_ratios(layer, size)

    def _take_ratios(self, layer: nn.Module, size: int) -> None:
        ratios, self.ratios = self.ratios, None
        scaled = getattr(layer, "cukiln_scaled", None)  # as it was loaded before, if it was
        if scaled is False and ratios is not None:
            raise ValueError(
                "the parts of a layer that was loaded with one weight_scale_2 have different ones, "
                "and its graphs compute without; expected scales as at the first load: start the "
                "engine with these weights"
            )
        layer.cukiln_scaled = bool(scaled) or ratios is not None
        if layer.cukiln_scaled:
            if ratios is None:
                ratios = torch.ones(size, device=layer.weight.device)
            replace_parameter(layer, _COLUMN_SCALE, ratios)

    def apply_weights(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        weight = layer.weight
        size = getattr(layer, "output_size_per_partition", weight.shape[0])
        columns = getattr(layer, _COLUMN_SCALE, None)
        rows = as_rows(x, x.shape[-1])
        more = 2 * weight.shape[1] - rows.shape[1]
        if more:
            rows = pad(rows, (0, more))
        fused = None
        if (
            columns is None
            and size == weight.shape[0]
            and rows.dtype == getattr(bias, "dtype", None)
        ):
            fused, bias = bias, None
        y = torch.ops.nvfp4.w4a16_gemm.default(
            rows, weight, layer.weight_scale, layer.weight_global_scale, fused, True
        )
        if size != weight.shape[0]:
            y = y[:, :size]
        if columns is not None:
            y = y * columns
        if bias is not None:
            y = y + bias
        return like(y.to(rows.dtype), x)


def _equalise(layer: nn.Module) -> Tensor | None:
    """Makes the parts' global scales the one that vLLM takes, so that it has nothing to warn of.
    Returns, for each row, its own over that one; None if they are equal."""
    for name, encodes in (("weight_scale_2", False), ("weight_global_scale", True)):
        parameter = getattr(layer, name, None)
        if parameter is None or parameter.is_meta or parameter.numel() < 2:
            continue
        scales = parameter.data.float()
        common = scales.max()
        if (scales == common).all():
            return None
        ratios = common / scales if encodes else scales / common
        parameter.data.fill_(common)
        widths = torch.tensor(layer.logical_widths, device=scales.device)
        return ratios.repeat_interleave(widths)
    return None


def _with_ratios(process: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(process)
    def process_weights_after_loading(self: Any, layer: nn.Module) -> None:
        if not isinstance(self.kernel, CukilnNvFp4LinearKernel):
            return process(self, layer)
        is_reload = hasattr(layer, "cukiln_scaled")
        self.kernel.ratios = _equalise(layer)
        process(self, layer)  # which leaves weights of a weight cache as they are
        if not is_reload:
            layer.cukiln_scaled = hasattr(layer, _COLUMN_SCALE)
            SCALED.append(layer.cukiln_scaled)

    return process_weights_after_loading


@functools.wraps(init_nvfp4_linear_kernel)
def _init_nvfp4_linear_kernel(use_a16: bool = False) -> NvFp4LinearKernel:
    if (
        use_a16  # where vLLM does not look at _POSSIBLE_NVFP4_KERNELS
        and not envs.VLLM_BATCH_INVARIANT
        and _get_linear_backend(quantization="nvfp4_w4a16") in ("auto", BACKEND)
        and CukilnNvFp4LinearKernel.is_supported()[0]
    ):
        LOG.info_once("Using %s for NVFP4 GEMM", CukilnNvFp4LinearKernel.__name__)
        return CukilnNvFp4LinearKernel(NvFp4LinearLayerConfig())
    return init_nvfp4_linear_kernel(use_a16)


def _offer_backend() -> None:
    """BACKEND among the choices of --linear-backend, which are those of a field's type."""
    field = next(each for each in dataclasses.fields(KernelConfig) if each.name == "linear_backend")
    choices = get_args(field.type)
    if "auto" not in choices:
        raise TypeError(f"KernelConfig.linear_backend is {field.type}; expected a Literal")
    parser = sys.modules.get("vllm.engine.arg_utils")  # which may have read them
    if parser is not None:
        parser._compute_kwargs.cache_clear()
    field.type = Literal.__getitem__((*choices, BACKEND))


def install() -> None:
    """Puts the kernel first. Nothing is changed where something is not as expected."""
    possible = _POSSIBLE_NVFP4_KERNELS[PlatformEnum.CUDA]
    if CukilnNvFp4LinearKernel in possible:
        return
    methods = (ModelOptLinearMethod, CompressedTensorsW4A4Fp4, QuarkNVFP4)
    require_parameters(init_nvfp4_linear_kernel, "use_a16")
    require_parameters(_get_linear_backend, "quantization")
    require_parameters(NvFp4LinearKernel.apply_weights, "self", "layer", "x", "bias")
    for method in (NvFp4LinearKernel, *methods):
        require_parameters(method.process_weights_after_loading, "self", "layer")
    more = getattr(CukilnNvFp4LinearKernel, "__abstractmethods__", ())
    if more:
        raise TypeError(f"NvFp4LinearKernel has abstract methods more: {', '.join(sorted(more))}")
    count_in_compile_keys()
    _offer_backend()
    for method in methods:
        method.process_weights_after_loading = _with_ratios(method.process_weights_after_loading)
    for name, module in list(sys.modules.items()):  # some have imported it by now
        names = vars(module) if name.startswith("vllm.") else {}
        if names.get("init_nvfp4_linear_kernel") is init_nvfp4_linear_kernel:
            names["init_nvfp4_linear_kernel"] = _init_nvfp4_linear_kernel
    _LINEAR_BACKEND_KERNEL_MAP[BACKEND] = {CukilnNvFp4LinearKernel}
    possible.insert(0, CukilnNvFp4LinearKernel)
