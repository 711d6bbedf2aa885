# SPDX-License-Identifier: Apache-2.0
"""NVFP4 by NumPy, from its definition: numbers are looked up in the lists of those that exist."""

import numpy as np
import torch

F32 = np.float32
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32)
# Every UE4M3 number but NaN: exponents 1 to 15 with eight mantissas each, and subnormals.
UE4M3 = np.array(
    [
        (m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7)
        for e in range(16)
        for m in range(8)
    ],
    F32,
)[:127]
FLT_MAX = np.finfo(F32).max
SIXTH = F32(1) / F32(6)


def nearest(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Index of the nearest number, of two equally near the even one; the largest from there on."""
    right = np.clip(np.searchsorted(numbers, values), 1, len(numbers) - 1)
    left = right - 1
    to_left = values.astype(np.float64) - numbers[left]
    to_right = numbers[right].astype(np.float64) - values
    take_right = (to_right < to_left) | ((to_right == to_left) & (right % 2 == 0))
    return np.where(take_right, right, left).astype(np.uint8)


def bf16(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(np.ascontiguousarray(values, F32)).bfloat16().float().numpy()


def compute_global_scale(x: np.ndarray, divisor: float = 2688) -> np.ndarray:
    amax = F32(np.nan) if np.isnan(x).any() else np.abs(x).max(initial=0)
    if amax == 0 or np.isinf(amax):
        return np.array([1, 1], F32)
    with np.errstate(over="ignore"):
        encode = np.minimum(F32(divisor) / amax, FLT_MAX)
    return np.array([encode, F32(1) / encode], F32)


def quantize(x: np.ndarray, global_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes [rows, columns] and scale bytes [rows, columns / 16], neither packed nor laid out."""
    rows, columns = x.shape
    encode, decode = global_scale.astype(F32)
    blocks = x.reshape(rows, columns // 16, 16)
    with np.errstate(all="ignore"):
        amax = np.abs(blocks).max(-1, initial=0)
        wanted = amax * (encode * SIXTH)
        scales = np.where(np.isnan(wanted), 0x7F, nearest(np.nan_to_num(wanted), UE4M3))
        scales = scales.astype(np.uint8)
        number = UE4M3[np.minimum(scales, 126)]
        multiplier = np.minimum(F32(1) / (number * decode), FLT_MAX)
        scaled = blocks * multiplier[..., None]
    codes = nearest(np.nan_to_num(np.abs(scaled)), E2M1) | np.where(np.signbit(blocks), 8, 0)
    codes = np.where(((scales == 0) | (scales == 0x7F))[..., None], 0, codes)
    return codes.reshape(rows, columns).astype(np.uint8), scales


def laid_out(codes: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As the ops give them: byte by byte, each scale at its place among zeros."""
    rows, blocks = scales.shape
    groups = -(-blocks // 4)
    out = np.zeros((-(-rows // 128) * 128, groups * 4), np.uint8)
    row, block = np.meshgrid(np.arange(rows), np.arange(blocks), indexing="ij")
    place = (row // 128 * groups + block // 4) * 512
    place += row % 32 * 16 + row // 32 % 4 * 4 + block % 4
    out.reshape(-1)[place] = scales
    return codes[:, 0::2] | codes[:, 1::2] << 4, out


def dequantize(codes: np.ndarray, scales: np.ndarray, decode: float) -> np.ndarray:
    """In double, where it is exact."""
    signs = np.where(codes & 8, -1.0, 1.0)
    number = np.append(UE4M3, np.nan).astype(np.float64)[scales]
    return signs * E2M1[codes & 7] * np.repeat(number, 16, axis=1) * float(decode)


def swiglu(gate: np.ndarray, up: np.ndarray, limit: float, alpha: float, beta: float) -> np.ndarray:
    gate, up = gate.astype(np.float64), up.astype(np.float64)
    g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)
    with np.errstate(over="ignore"):
        return bf16((g / (1 + np.exp(-alpha * g)) * (u + beta)).astype(F32))


class Quantized:
    """A matrix with a global scale of its own, or a given one."""

    def __init__(self, x: np.ndarray, global_scale: np.ndarray | None = None) -> None:
        self.global_scale = compute_global_scale(x) if global_scale is None else global_scale
        self.codes, self.scales = quantize(x, self.global_scale)

    def numbers(self) -> np.ndarray:
        return dequantize(self.codes, self.scales, self.global_scale[1])

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        codes, scales = laid_out(self.codes, self.scales)
        return (
            torch.from_numpy(codes),
            torch.from_numpy(scales),
            torch.from_numpy(self.global_scale),
        )
