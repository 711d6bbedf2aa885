# SPDX-License-Identifier: Apache-2.0
"""NVFP4 weights between the form of checkpoints and that of the kernels.

A checkpoint keeps block scales row by row, and the decode scale of the whole: what ModelOpt writes.
The kernels read block scales in atoms of 128 rows by 4 blocks of 16 columns (<cukiln/nvfp4/nvfp4.hpp>).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ._runners import use_loader

E4M3 = torch.float8_e4m3fn
BLOCK = 16  # columns that share a scale
K_MULTIPLE = 32  # columns of a GEMM's operands
N_MULTIPLE = 8  # columns of its result


def up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def ready(tensor: Tensor) -> None:
    """The kernels, where a tensor is on a GPU."""
    if tensor.is_cuda:
        use_loader()


def blank(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str | None
) -> Tensor:
    """What a tensor of weights is until something is loaded: 0 for packed data; NaN, which no scale
    and no bias is; and -2, which no map of experts has."""
    if dtype == torch.uint8:
        return torch.zeros(shape, dtype=dtype, device=device)
    if dtype == E4M3:
        return torch.full(shape, 0x7F, dtype=torch.uint8, device=device).view(dtype)
    value = math.nan if dtype.is_floating_point else -2
    return torch.full(shape, value, dtype=dtype, device=device)


def is_blank(tensor: Tensor) -> bool:
    """Whether it is as `blank` made it. Codes that are 0 may have been written: PyTorch counts."""
    if tensor.is_meta:
        return True
    if tensor.dtype == torch.uint8:
        return not (tensor.is_inference() or tensor._version or tensor.any())
    if tensor.dtype == E4M3:
        return bool((tensor.view(torch.uint8) == 0x7F).all())
    return bool((tensor.isnan() if tensor.is_floating_point() else tensor == -2).all())


def swizzle(scales: Tensor) -> Tensor:
    """[…, rows, blocks] → […, rows up to 128, blocks up to 4] in the kernels' order, padding 0."""
    *lead, rows, blocks = scales.shape
    bytes_ = scales.view(torch.uint8)
    bytes_ = pad(bytes_, (0, up(blocks, 4) - blocks, 0, up(rows, 128) - rows))
    atoms = bytes_.view(*lead, up(rows, 128) // 128, 4, 32, up(blocks, 4) // 4, 4)
    # Row groups, 4 of 32 rows, 32 rows, atoms, 4 blocks → row groups, atoms, 32 rows, 4 of 32, 4.
    return atoms.movedim(-2, -4).transpose(-2, -3).contiguous().view(bytes_.shape)


def unswizzle(scales: Tensor, rows: int, blocks: int) -> Tensor:
    """What `swizzle` was given, as E4M3."""
    *lead, rows_up, blocks_up = scales.shape
    atoms = scales.reshape(*lead, rows_up // 128, blocks_up // 4, 32, 4, 4)
    bytes_ = atoms.transpose(-2, -3).movedim(-4, -2).reshape(scales.shape)
    return bytes_[..., :rows, :blocks].contiguous().view(E4M3)


def pad_data(data: Tensor, rows: int, columns: int) -> Tensor:
    """Packed data of a matrix that is `rows` by `columns` with zeros at its end.

    Always memory of its own, on 16 bytes: a checkpoint's tensor may be a view of a mapped file.
    """
    more = (0, columns // 2 - data.shape[-1], 0, rows - data.shape[-2])
    return pad(data.view(torch.uint8), more)  # copies, also where there is nothing to add


def pad_scales(scales: Tensor, rows: int, columns: int) -> Tensor:
    more = (0, columns // BLOCK - scales.shape[-1], 0, rows - scales.shape[-2])
    return pad(scales.view(torch.uint8), more)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, swizzled scales and {encode, decode} of a matrix, with a scale of its own."""
    if weight.is_meta:
        raise ValueError(f"a weight {tuple(weight.shape)} is on meta; there is nothing to quantise")
    weight = weight.detach().to(torch.bfloat16).contiguous()
    if not weight.isfinite().all():
        raise ValueError(f"a weight {tuple(weight.shape)} has NaN or infinities; expected none")
    rows, columns = weight.shape
    weight = pad(weight, (0, up(columns, K_MULTIPLE) - columns, 0, up(rows, N_MULTIPLE) - rows))
    ready(weight)
    global_scale = torch.ops.nvfp4.amax_gsa(weight)
    data, scales = torch.ops.nvfp4.quantize_nvfp4_from_buffer(weight, global_scale)
    return data, scales, global_scale


def make_global_scale(decode: Tensor) -> Tensor:
    """{encode, decode} from decode scales [...]."""
    decode = decode.detach().float()
    return torch.stack([1 / decode, decode], -1).contiguous()


def blank_quantized(
    rows: int, columns: int, device: torch.device | str | None
) -> tuple[Tensor, Tensor]:
    """Room for the data and swizzled scales of a matrix, with nothing in it."""
    data = blank((rows, columns // 2), torch.uint8, device)
    scales = blank((up(rows, 128), up(columns // BLOCK, 4)), E4M3, device)
    return data, scales.view(torch.uint8)


def apply_keeping_dtypes(
    module: nn.Module, apply: Callable[..., Any], fn: Callable[[Tensor], Tensor], recurse: bool
) -> Any:
    """nn.Module._apply, whose `.half()` and the like must not round a module's own buffers: scales
    are no weights."""
    before = dict(module._buffers)
    result = apply(fn, recurse)
    for name, was in before.items():
        now = module._buffers[name]
        if was is not None and now.dtype != was.dtype:
            module._buffers[name] = was.to(now.device)
    return result
