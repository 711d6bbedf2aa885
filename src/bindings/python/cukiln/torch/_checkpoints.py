# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other tools in the words of ModelOpt's, which are those of this package.

| tool | weights | scales |
|---|---|---|
| ModelOpt | `weight`, `weight_scale` | `weight_scale_2`, `input_scale`: decode |
| compressed-tensors, llm-compressor: nvfp4-pack-quantized | `weight_packed`, `weight_scale` | \
`weight_global_scale`, `input_global_scale`: encode, their inverse |
| gpt-oss: MXFP4 | `…_blocks` [..., rows, blocks of 32, 16 bytes] | `…_scales`: exponents + 127 |

All keep the even element of a byte in its low half.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, MutableMapping

import torch
from torch import Tensor

from ._weights import E4M3, K_MULTIPLE, ready, unswizzle, up

_COMPRESSED = {
    "weight": "weight_packed",
    "weight_scale_2": "weight_global_scale",
    "input_scale": "input_global_scale",
}
# Of E4M3's powers of two: 2^-9, its smallest number, to 2^8.
_MIN_EXPONENT, _MAX_EXPONENT = -9, 8
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Ratios of two scales of one matrix. Up to the first, what lies between the GEMMs of experts
# with it and without is far from the ends of E4M3's range under one scale; up to the second, so
# are block scales that are made smaller.
_FOLDED, _REQUANTIZED = 16.0, 64.0


class AsModelOpt(Mapping[str, Tensor]):
    """Tensors under ModelOpt's names, whichever tool wrote them, each read when it is asked for."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def _compressed(self, name: str) -> str | None:
        head, dot, kind = name.rpartition(".")
        given = f"{head}{dot}{_COMPRESSED.get(kind)}"
        return given if kind in _COMPRESSED and given in self._tensors else None

    def __getitem__(self, name: str) -> Tensor:
        given = self._compressed(name)
        if given is None:
            return self._tensors[name]
        tensor = self._tensors[given]
        return tensor if given.endswith("weight_packed") else decode_of(given, tensor)

    def __iter__(self) -> Iterator[str]:
        kinds = {given: kind for kind, given in _COMPRESSED.items()}
        for name in self._tensors:
            head, dot, kind = name.rpartition(".")
            yield f"{head}{dot}{kinds.get(kind, kind)}"

    def __len__(self) -> int:
        return len(self._tensors)


def decode_of(name: str, encode: Tensor) -> Tensor:
    """The decode scale of compressed-tensors' global scale."""
    encode = encode.detach().float()
    if not ((encode > 0) & encode.isfinite()).all():
        raise ValueError(f"{name} is {encode.tolist()}; expected a positive, finite number")
    return 1 / encode


def rename(state: MutableMapping[str, Tensor], prefix: str) -> None:
    """One layer's tensors in a state dict, in place: compressed-tensors' become ModelOpt's."""
    if f"{prefix}weight_packed" not in state:
        return
    view = AsModelOpt(state)
    found = {name: view[f"{prefix}{name}"] for name in _COMPRESSED if f"{prefix}{name}" in view}
    for name, given in _COMPRESSED.items():
        state.pop(f"{prefix}{given}", None)
        if name in found:
            tensor = found[name]
            state[f"{prefix}{name}"] = tensor if name == "weight" else tensor.reshape(())


def blocks_of_16(data: Tensor, scales: Tensor) -> Tensor:
    """Block scales of 16 columns each, of ones that may be of 32, as some of ModelOpt's recipes for
    weights alone have them."""
    if scales.dim() and 16 * scales.shape[-1] == data.shape[-1]:
        return scales.view(torch.uint8).repeat_interleave(2, -1).view(scales.dtype)
    return scales


def refuse_smoothing(tensors: Mapping[str, Tensor], path: str) -> None:
    if f"{path}.pre_quant_scale" in tensors:
        raise ValueError(
            f"{path}.pre_quant_scale scales the input of this layer (AWQ, SmoothQuant); expected "
            "layers without one: fold it into the layer before, or calibrate with plain NVFP4"
        )


# ---- Parts of one matrix that were calibrated by themselves


def one_decode(
    label: str,
    data: Tensor,
    scales: Tensor,
    decodes: Tensor,
    parts: tuple[slice, slice],
    linear_in_up: bool,
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Gate and up, two sets of rows of one matrix, under one decode scale; and by what the results
    of the GEMM with down are then too small.

    Exact if the scales are equal; if their ratio is a power of two that the block scales can take;
    and if what follows is silu(gate) · up (`linear_in_up`), since up's ratio can then go to down. If
    not, the part with the smaller scale is quantised again, with a warning.
    """
    decodes = decodes.detach().double().reshape(-1).cpu()
    if not ((decodes >= 0) & decodes.isfinite()).all():
        raise ValueError(
            f"{label}.weight_scale_2 is {decodes.tolist()}; expected 0 or more, and finite"
        )
    if (decodes == decodes[0]).all():
        return data, scales, decodes[0].float(), 1.0
    if (decodes == 0).any():  # that part is zeros
        bytes_ = scales.clone().view(torch.uint8)
        bytes_[parts[int(decodes.argmin())]] = 0
        return data, bytes_.view(E4M3), decodes.max().float(), 1.0
    exact = _by_powers_of_two(scales, decodes, parts)
    if exact is not None:
        return data, *exact, 1.0
    ratio = (decodes[1] / decodes[0]).item()
    if linear_in_up and 1 / _FOLDED <= ratio <= _FOLDED:
        return data, scales, decodes[0].float(), ratio
    if not 1 / _REQUANTIZED <= ratio <= _REQUANTIZED:
        raise ValueError(
            f"{label}: gate and up have different weight_scale_2, {decodes.tolist()}; expected one "
            f"for both, or two of a ratio of {_REQUANTIZED:g} at most: calibrate them together"
        )
    warnings.warn(
        f"{label}: gate and up have different weight_scale_2, {decodes.tolist()}, and the weights "
        "of the smaller were quantised again with the larger: expect a small loss; calibrate both "
        "together to have none",
        stacklevel=3,
    )
    return *_requantized(data, scales, decodes, parts), decodes.max().float(), 1.0


def _by_powers_of_two(
    scales: Tensor, decodes: Tensor, parts: tuple[slice, slice]
) -> tuple[Tensor, Tensor] | None:
    mantissas, exponents = torch.frexp(decodes)
    if (mantissas != mantissas[0]).any():
        return None
    low, high = int(exponents.min()), int(exponents.max())
    candidates = range(low - _MAX_EXPONENT, high + _MAX_EXPONENT + 1)
    for common in sorted(candidates, key=lambda e: abs(high - e)):
        shifted = scales.clone()
        for part, exponent in zip(parts, exponents.tolist(), strict=True):
            wanted = scales[part].float() * 2.0 ** (exponent - common)
            shifted.view(torch.uint8)[part] = wanted.to(E4M3).view(torch.uint8)
            if not torch.equal(shifted[part].float(), wanted):
                break
        else:
            return shifted, (mantissas[0] * 2.0**common).float()
    return None


def _requantized(
    data: Tensor, scales: Tensor, decodes: Tensor, parts: tuple[slice, slice]
) -> tuple[Tensor, Tensor]:
    small = parts[int(decodes.argmin())]
    # In units of its own scale these numbers are exact in bfloat16.
    x = dequantize(data[small], scales[small]).to(torch.bfloat16)
    rows, columns = x.shape
    x = torch.nn.functional.pad(x, (0, up(columns, K_MULTIPLE) - columns))
    ratio = (decodes.max() / decodes.min()).float()
    global_scale = torch.stack([1 / ratio, ratio]).to(data.device)
    ready(data)
    new_data, new_scales = torch.ops.nvfp4.quantize_nvfp4_from_buffer(x.contiguous(), global_scale)
    data, scales = data.clone(), scales.clone()
    data[small] = new_data[:, : data.shape[1]]
    fitting = unswizzle(new_scales, rows, scales.shape[1])
    scales.view(torch.uint8)[small] = fitting.view(torch.uint8)
    return data, scales


def dequantize(data: Tensor, scales: Tensor) -> Tensor:
    """Codes times block scales in float32, where that is exact; without the decode scale."""
    table = torch.tensor([*_E2M1, *(-x for x in _E2M1)], device=data.device)
    halves = torch.stack([data & 15, data >> 4], -1).flatten(-2).long()
    return table[halves] * scales.float().repeat_interleave(16, -1)[..., : halves.shape[-1]]


# ---- MXFP4


def from_mxfp4(label: str, blocks: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, block scales and decode scale of one matrix, the same numbers as blocks uint8
    [rows, columns / 32, 16] with exponents uint8 [rows, columns / 32].

    A block's power of two becomes those of two E4M3 scales and one decode scale. Blocks that are
    more than 17 binades below the largest are rounded, with a warning.
    """
    if (
        blocks.dtype != torch.uint8
        or scales.dtype != torch.uint8
        or blocks.dim() != 3
        or blocks.shape[-1] != 16
        or scales.shape != blocks.shape[:-1]
    ):
        raise ValueError(
            f"{label}_blocks is {tuple(blocks.shape)} {blocks.dtype} and {label}_scales "
            f"{tuple(scales.shape)} {scales.dtype}; expected [rows, blocks, 16] and [rows, "
            "blocks] uint8"
        )
    zero = ((blocks & 0x77) == 0).all(-1)
    if (scales == 255).any():
        raise ValueError(f"{label}_scales has NaN (255); expected none")
    exponents = (scales.int() - 127).masked_fill(zero, -128)
    common = max(int(exponents.max()) - _MAX_EXPONENT, -118) if not zero.all() else 0
    places = (exponents - common).masked_fill(zero, _MIN_EXPONENT)
    data = blocks.flatten(1)
    below = places < _MIN_EXPONENT
    if below.any():
        blocks = blocks.clone()
        table = _halved().to(blocks.device)
        steps = (_MIN_EXPONENT - places[below]).clamp(max=len(table) - 1).long()[:, None]
        low, high = (blocks[below] & 15).long(), (blocks[below] >> 4).long()
        blocks[below] = table[steps, low] | table[steps, high] << 4
        data = blocks.flatten(1)
        warnings.warn(
            f"{label}: {int(below.sum())} of {below.numel()} blocks are more than 17 binades below "
            "the largest, which NVFP4 cannot hold: they were rounded, by at most "
            f"{2.0 ** (_MIN_EXPONENT + common - 2):.1e} where the largest scale is "
            f"{2.0 ** (_MAX_EXPONENT + common):.1e}",
            stacklevel=3,
        )
    places = places.clamp(min=_MIN_EXPONENT)
    bytes_ = torch.where(places >= -6, places + 7 << 3, 1 << (places - _MIN_EXPONENT).clamp(max=3))
    bytes_ = bytes_.masked_fill(zero, 0).to(torch.uint8)
    decode = torch.tensor(2.0**common, device=blocks.device)
    return data, bytes_.repeat_interleave(2, -1).view(E4M3), decode


def _halved() -> Tensor:
    """Codes of the 16 codes' numbers halved 0, 1, …, 5 times, to nearest, ties to even."""
    rows = []
    for times in range(6):
        numbers = [number * 2**times for number in _E2M1]
        nearest = [
            min((abs(number - x), code % 2, code) for code, number in enumerate(numbers))[2]
            for x in _E2M1
        ]
        rows.append([*nearest, *(8 | code for code in nearest)])
    return torch.tensor(rows, dtype=torch.uint8)
