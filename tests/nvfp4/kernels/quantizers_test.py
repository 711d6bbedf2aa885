#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The quantisers' device code, run on the CPU, beside NumPy and ml_dtypes, which share nothing with it.

  quantizers_test.py COMPILER…
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import unittest
from pathlib import Path

from device_library import REPOSITORY, compile_library, ml_dtypes
from device_library import numpy as np
from device_source import translate_files
from host_compiler import scratch_folder

KERNELS = REPOSITORY / "kernels_src" / "nvfp4"
SOURCES = ["amax_gsa.cu", "fused_amax_quantize.cu", "quantize_nvfp4.cu", "swiglu_amax_gsa.cu", "swiglu_quantize.cu"]
F32 = np.float32
E4M3 = ml_dtypes.float8_e4m3fn
E2M1 = ml_dtypes.float4_e2m1fn
BF16 = ml_dtypes.bfloat16
FLT_MAX = np.finfo(F32).max
SIXTH = F32(1) / F32(6)


class Device:
    """The kernels as g++ compiles them. Arrays are passed by address, numbers by their NumPy type."""

    def __init__(self, folder: Path, name: str, *flags: str):
        self.library = compile_library("quantizers.cpp", folder, name, *flags)

    def __call__(self, name: str, *arguments) -> None:
        kinds = {"f": ctypes.c_float, "u": ctypes.c_uint32, "i": ctypes.c_int64}
        given = [
            ctypes.c_void_p(None if a is None else a.ctypes.data)
            if a is None or a.ndim
            else (ctypes.c_uint64 if a.dtype == np.uint64 else kinds[a.dtype.kind])(a.item())
            for a in arguments
        ]
        getattr(self.library, f"run_{name}")(*given)


def u32(value: int) -> np.uint32:
    return np.uint32(value)


# ---- The formats and formulas, by NumPy and ml_dtypes.


def e4m3_bytes(values: np.ndarray) -> np.ndarray:
    """Of values that are not negative; beyond the largest number it stays the largest."""
    return np.minimum(values, F32(448)).astype(E4M3).view(np.uint8)


def e2m1_bits(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -6, 6).astype(E2M1).view(np.uint8) & 15


def global_scale(x: np.ndarray, divisor: F32 = F32(2688)) -> tuple[F32, F32]:
    amax = np.abs(x).max(initial=0) if not np.isnan(x).any() else F32("nan")
    if amax == 0 or np.isinf(amax):
        return F32(1), F32(1)
    encode = F32(np.minimum(divisor / amax, FLT_MAX))
    return encode, F32(1) / encode


def quantize(x: np.ndarray, encode: F32, decode: F32, fast: bool = False):
    """Packed data, and scale bytes in the swizzled layout that the GEMM reads."""
    rows, columns = x.shape
    blocks = x.reshape(rows, columns // 16, 16)
    amax = np.abs(blocks).max(-1)
    if fast:
        scales = e4m3_bytes(encode * (amax * SIXTH))
        decode = F32(1) / encode
        decode = F32(0) if decode < np.finfo(F32).tiny else decode  # approximate ones flush
    else:
        scales = e4m3_bytes(amax * (encode * SIXTH))
    multiplier = np.minimum(F32(1) / (scales.view(E4M3).astype(F32) * decode), FLT_MAX)
    elements = e2m1_bits(np.nan_to_num(blocks * multiplier[..., None], nan=0, posinf=6, neginf=-6))
    elements = np.where(((scales == 0) | (scales == 0x7F))[..., None], 0, elements).reshape(rows, columns)
    packed = (elements[:, 0::2] | elements[:, 1::2] << 4).astype(np.uint8)
    # Rows filled up to 128 and blocks to 4; an atom has 32 rows by 4 groups of rows by 4 blocks.
    padded = np.zeros((-(-rows // 128) * 128, -(-columns // 64) * 4), np.uint8)
    padded[:rows, : columns // 16] = scales
    atoms = padded.reshape(-1, 4, 32, padded.shape[1] // 4, 4).transpose(0, 3, 2, 1, 4)
    return packed, np.ascontiguousarray(atoms).reshape(-1)


def swiglu(gate: np.ndarray, up: np.ndarray, limit: float, alpha: float, beta: float) -> np.ndarray:
    gate, up = gate.astype(np.float64), up.astype(np.float64)
    g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return (g / (1 + np.exp(-alpha * g)) * (u + beta)).astype(F32).astype(BF16).astype(F32)


# ---- Inputs.


def matrices(rows: int, columns: int, random: np.random.Generator):
    """Named bf16 matrices, as float, that find different faults."""
    normal = random.standard_normal((rows, columns)).astype(F32)
    yield "normal", normal
    yield "heavy tail", random.standard_t(2, (rows, columns)).astype(F32)
    bits = random.integers(0, 0x7F80, (rows, columns)) | random.integers(0, 2, (rows, columns)) << 15
    yield "any finite", (bits.astype(np.uint32) << 16).view(F32)
    yield "subnormal", ((bits & 0x807F).astype(np.uint32) << 16).view(F32)
    yield "zeros", normal * F32(0)
    # Blocks whose largest element is 6 and whose others are the ties of E2M1.
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], F32)
    block = np.concatenate([ties, -ties, np.array([0, 6], F32)])
    yield "ties", np.tile(block, (rows, columns // 16))
    for name, value in (("one NaN", np.nan), ("one infinity", -np.inf), ("an outlier", 1344)):
        special = normal * F32(1e-3 if name == "an outlier" else 1)
        special[rows // 2, columns // 2] = value
        yield name, special


def spread(x: np.ndarray, stride: int) -> np.ndarray:
    """The bf16 bits of rows `stride` elements apart, NaN between them, on 16 bytes."""
    rows, columns = x.shape
    size = rows * stride
    raw = np.empty(size + 8, np.uint16)
    start = -raw.ctypes.data // 2 % 8
    out = raw[start : start + size].reshape(rows, stride)
    out[:] = 0x7FC0
    out[:, :columns] = x.astype(BF16).view(np.uint16)
    return out


def lay(gate: np.ndarray, up: np.ndarray, layout: int) -> np.ndarray:
    """Side by side, or one of each in turn."""
    joined = (gate, up) if layout == 0 else (np.stack([gate, up], -1).reshape(len(gate), -1),)
    return np.concatenate(joined, 1)


def exact(x: np.ndarray) -> np.ndarray:
    return x.astype(BF16).astype(F32)


SHAPES = list(itertools.product((1, 3, 127, 128, 129, 300), (16, 32, 48, 64, 80, 208)))


class Quantizers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch_folder()
        path = Path(cls.folder.name)
        translate_files(KERNELS, SOURCES, path)
        cls.sm_90 = Device(path, "sm_90", "-DCUKILN_HOST_ARCH=900")
        cls.fast = Device(path, "fast", "-DCUKILN_HOST_ARCH=900", "-DCUKILN_NVFP4_FAST")
        cls.sm_100 = Device(path, "sm_100", "-DCUKILN_HOST_ARCH=1000", "-D__CUDA_ARCH_FEAT_SM100_ALL")
        cls.random = np.random.default_rng(20250605)
        np.seterr(all="ignore")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def assert_equal(self, given: np.ndarray, expected: np.ndarray, *what):
        wrong = np.flatnonzero(given.reshape(-1) != expected.reshape(-1))
        self.assertEqual(wrong.size, 0, f"{what}: the first of {wrong.size} at {wrong[:1]}")

    def test_ue4m3_encodes_every_float_like_ml_dtypes(self):
        # Every float of 16 mantissa bits that is not negative, and its neighbours: all ties are there.
        for low in (0, 1, 0x7F):
            bits = (np.arange(0, 0x7F800000 >> 7, dtype=np.uint32) << 7) + np.uint32(low)
            values = bits.view(F32)
            given = np.empty(values.size, np.uint8)
            self.sm_90("encode_ue4m3", values, np.uint64(values.size), given)
            self.assert_equal(given, e4m3_bytes(values), low)
        values = np.array([np.inf, np.nan], F32)
        given = np.empty(2, np.uint8)
        self.sm_90("encode_ue4m3", values, np.uint64(2), given)
        self.assertEqual(list(given), [0x7E, 0x7F])

    def test_ue4m3_decodes_every_byte_like_ml_dtypes(self):
        numbers = np.arange(0x7F, dtype=np.uint8)
        given = np.empty(numbers.size, F32)
        self.sm_90("decode_ue4m3", numbers, np.uint64(numbers.size), given)
        self.assert_equal(given, numbers.view(E4M3).astype(F32))

    def test_e2m1_encodes_every_float_like_ml_dtypes(self):
        for low in (0, 1, 0x7F):
            bits = (np.arange(0, (0x7F800000 >> 7) + 1, dtype=np.uint32) << 7) + np.uint32(low)
            values = bits.view(F32)
            values = values[~np.isnan(values)]
            given = np.empty(values.size, np.uint8)
            self.sm_90("e2m1_magnitude", values, np.uint64(values.size), given)
            self.assert_equal(given, e2m1_bits(values), low)

    def test_e2m1_of_every_bf16_with_its_sign_and_place(self):
        bits = np.arange(1 << 16, dtype=np.uint16)
        values = bits.view(BF16).astype(F32)
        number = ~np.isnan(values)
        for device, multiplier in itertools.product((self.sm_90, self.sm_100), (1, 1 / 3, 2.7e-5, 1e30)):
            data = np.empty(bits.size // 8, np.uint32)
            device("e2m1", bits, np.uint64(bits.size), F32(multiplier), data)
            given = (data[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).reshape(-1)
            expected = e2m1_bits(values * F32(multiplier))
            self.assert_equal(given[number], expected[number], multiplier)

    def check_quantize(self, device: Device, rows: int, columns: int, fast: bool = False):
        for name, x in matrices(rows, columns, self.random):
            x = exact(x)
            stride = columns + 8 * int(self.random.integers(0, 3))
            scale = np.array(global_scale(x), F32)
            packed, scales = quantize(x, *scale, fast)
            data = np.full(packed.size + 16, 0xA5, np.uint8)
            given = np.full(scales.size + 16, 0xA5, np.uint8)
            grid = int(self.random.integers(1, scales.size // 512 + 3))
            device("quantize", u32(grid), data, given, spread(x, stride), scale, u32(rows), u32(columns),
                   np.int64(stride))  # fmt: skip
            what = (rows, columns, name)
            self.assert_equal(data[:-16], packed, "data", *what)
            self.assert_equal(given[:-16], scales, "scales", *what)
            self.assertTrue((data[-16:] == 0xA5).all() and (given[-16:] == 0xA5).all(), what)

    def test_quantize_nvfp4_from_buffer_equals_the_reference(self):
        for rows, columns in SHAPES:
            self.check_quantize(self.sm_90, rows, columns)

    def test_the_hardware_s_e2m1_gives_the_same(self):
        for rows, columns in ((1, 16), (129, 80)):
            self.check_quantize(self.sm_100, rows, columns)

    def test_the_fast_formula_equals_its_reference(self):
        for rows, columns in ((3, 48), (129, 80)):
            self.check_quantize(self.fast, rows, columns, fast=True)

    def test_quantize_nvfp4_takes_the_scale_from_the_host(self):
        x = exact(self.random.standard_normal((130, 96)).astype(F32))
        encode = global_scale(x)[0]
        packed, scales = quantize(x, encode, F32(1) / encode)
        data, given = np.zeros_like(packed), np.zeros_like(scales)
        self.sm_90("quantize_static", u32(3), data, given, spread(x, 96), encode, u32(130), u32(96),
                   np.int64(96))  # fmt: skip
        self.assert_equal(data, packed)
        self.assert_equal(given, scales)

    def test_amax_gsa_and_its_rows(self):
        shapes = ((1, 16, 16, 1), (7, 48, 48, 3), (5, 1040, 1048, 2), (40, 2064, 2064, 4))
        divisors = itertools.cycle((F32(2688), F32(1536), F32(448), F32(1)))
        for (rows, columns, stride, grid), by_row in itertools.product(shapes, (False, True)):
            for (name, x), divisor in zip(matrices(rows, columns, self.random), divisors, strict=False):
                x = exact(x)
                scale, workspace = np.zeros(2, F32), np.zeros(grid, np.uint32)
                row_amax = np.full(rows, -1, F32)
                self.sm_90("amax", u32(grid), scale, row_amax if by_row else None, spread(x, stride),
                           u32(rows), u32(columns), np.int64(stride), workspace, divisor)  # fmt: skip
                what = (rows, columns, name, by_row, divisor)
                np.testing.assert_array_equal(scale, np.array(global_scale(x, divisor), F32), str(what))
                self.assertFalse(workspace.any(), what)
                if by_row:
                    np.testing.assert_array_equal(row_amax, np.abs(x).max(-1), str(what))

    def test_decode_is_finite_for_every_divisor(self):
        for amax, divisor in itertools.product((0x7F7F, 0x0001), (F32(1), F32(2688))):
            scale = np.zeros(2, F32)
            self.sm_90("amax", u32(1), scale, None, np.array([amax], np.uint16), u32(1), u32(1), np.int64(1),
                       np.zeros(1, np.uint32), divisor)  # fmt: skip
            self.assertTrue((np.isfinite(scale) & (scale > 0)).all(), (amax, divisor, scale))

    def test_an_amax_that_never_comes_is_a_trap_and_no_hang(self):
        without_others = self.sm_90.library.run_amax_without_others
        without_others.restype = ctypes.c_bool
        scale, x, workspace = np.zeros(2, F32), np.ones(64, np.uint16), np.zeros(2, np.uint32)
        arguments = [ctypes.c_void_p(scale.ctypes.data), ctypes.c_void_p(x.ctypes.data), ctypes.c_uint32(64),
                     ctypes.c_void_p(workspace.ctypes.data)]  # fmt: skip
        self.assertTrue(without_others(2, *arguments))
        self.assertEqual(list(scale), [0, 0])
        self.assertFalse(without_others(1, *arguments))
        workspace[0] = 0x40000001  # what another thread block writes for an amax of 2
        self.assertFalse(without_others(2, *arguments))
        self.assertEqual((scale[0], workspace[0]), (1344, 0))

    def test_deinterleave_quantises_gate_and_up_side_by_side(self):
        for rows, columns in ((1, 16), (129, 48), (5, 208), (130, 32), (64, 64)):
            for name, x in matrices(rows, 2 * columns, self.random):
                x = exact(x)
                scale = np.array(global_scale(x), F32)
                packed, scales = quantize(x, *scale)
                laid = lay(x[:, :columns], x[:, columns:], 1)
                for grid in (1, 2, 5):
                    data, given = np.full_like(packed, 0xA5), np.full_like(scales, 0xA5)
                    self.sm_90("deinterleave", u32(grid), data, given, spread(laid, 2 * columns + 8), scale,
                               u32(rows), u32(columns), np.int64(2 * columns + 8))  # fmt: skip
                    self.assert_equal(data, packed, rows, columns, name, grid)
                    self.assert_equal(given, scales, rows, columns, name, grid)

    def test_swiglu_is_quantised_with_a_scale_of_its_own(self):
        for (rows, columns), activation, layout in itertools.product(
            ((1, 16), (130, 272)), ((np.inf, 1, 0), (7, 1.702, 1), (0.5, 1, 0)), (0, 1)
        ):
            gate, up = (exact(5 * self.random.standard_normal((rows, columns)).astype(F32)) for _ in range(2))
            y = swiglu(gate, up, *activation)
            stride = np.int64(2 * columns + 8)
            laid = spread(lay(gate, up, layout), stride)
            clamped = [F32(value) for value in activation]
            divisor = F32(2688 if layout == 0 else 1536)
            scale, workspace = np.zeros(2, F32), np.zeros(2, np.uint32)
            self.sm_90("swiglu_amax", u32(2), scale, laid, u32(rows), u32(columns), stride, u32(layout),
                       *clamped, workspace, divisor)  # fmt: skip
            # float against double: now and then another bf16, never more.
            np.testing.assert_allclose(scale[0], global_scale(y, divisor)[0], rtol=0.004)
            packed, scales = quantize(y, *scale)
            data, given = np.full_like(packed, 0xA5), np.full_like(scales, 0xA5)
            self.sm_90("swiglu_quantize", u32(3), data, given, laid, scale, u32(rows), u32(columns), stride,
                       u32(layout), *clamped)  # fmt: skip
            self.assertLess(np.mean(data != packed), 0.01, (rows, columns, activation, layout))
            self.assertLess(np.mean(given != scales), 0.004, (rows, columns, activation, layout))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
