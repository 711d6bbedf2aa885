#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dequantisation of NVFP4 to bf16, run on the CPU, beside ml_dtypes, which shares nothing with it.

  dequantize_test.py COMPILER…
"""

from __future__ import annotations

import ctypes
import sys
import unittest
from pathlib import Path

from device_library import REPOSITORY, compile_library, ml_dtypes
from device_library import numpy as np
from device_source import translate_files
from host_compiler import scratch_folder

KERNELS = REPOSITORY / "kernels_src" / "nvfp4"
PAIRS = ((0, 4), (2, 6), (1, 5), (3, 7))  # the elements of a word in each result
NAN = 0x7F


def e2m1(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def e4m3(byte: int) -> float:
    return float(np.array([byte], np.uint8).view(ml_dtypes.float8_e4m3fn)[0])


class Dequantize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch_folder()
        folder = Path(cls.folder.name)
        translate_files(KERNELS, ["gemm_sm90_dequantize.cuh"], folder)
        cls.library = compile_library("dequantize.cpp", folder, "dequantize", "-DCUKILN_HOST_ARCH=900")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def values(self, function: str, *arguments: int) -> np.ndarray:
        """Eight numbers in the order of K."""
        pairs = np.zeros(4, np.uint32)
        getattr(self.library, function)(*(ctypes.c_uint32(value) for value in arguments),
                                        ctypes.c_void_p(pairs.ctypes.data))  # fmt: skip
        halves = pairs.view(np.uint16).view(ml_dtypes.bfloat16).astype(np.float64)
        made = np.zeros(8)
        for pair, (low, high) in enumerate(PAIRS):
            made[low], made[high] = halves[2 * pair], halves[2 * pair + 1]
        return made

    def test_every_element_with_every_scale(self):
        for first in range(0, 16, 8):
            codes = np.arange(first, first + 8)
            for turn in range(8):
                turned = np.roll(codes, turn)
                word = sum(int(code) << 4 * i for i, code in enumerate(turned))
                for byte in range(NAN):
                    other = (byte * 37 + 5) % NAN
                    for w in range(4):
                        pair = byte | other << 8 if w < 2 else other | byte << 8
                        made = self.values("run_dequantize", word, pair, w)
                        exact = e2m1(turned) * e4m3(byte) / 128
                        np.testing.assert_array_equal(made, exact)
                        np.testing.assert_array_equal(np.signbit(made), np.signbit(exact))

    def test_every_byte_with_every_scale(self):
        run = self.library.run_byte
        run.restype = ctypes.c_uint32
        for codes in range(256):
            for byte in range(NAN):
                which = (codes + byte) % 2
                scales = byte << 8 * which | NAN << 8 * (1 - which)
                made = np.array([run(codes, scales, which)], np.uint32).view(ml_dtypes.bfloat16).astype(np.float64)
                exact = e2m1(np.array([codes & 15, codes >> 4])) * e4m3(byte) / 128
                np.testing.assert_array_equal(made, exact)
                np.testing.assert_array_equal(np.signbit(made), np.signbit(exact))

    def test_a_nan_scale_makes_every_element_nan(self):
        for word in (0x76543210, 0xFEDCBA98):
            self.assertTrue(np.isnan(self.values("run_dequantize", word, NAN | 0x38 << 8, 0)).all())
            self.assertFalse(np.isnan(self.values("run_dequantize", word, NAN | 0x38 << 8, 2)).any())

    def test_lanes_take_their_blocks_of_the_four(self):
        four = (0x38, 0x41, 0x2A, 0x7E)
        scales = sum(byte << 8 * i for i, byte in enumerate(four))
        for t in range(4):
            for w in range(4):
                made = self.values("run_lane", 0xFEDC3210, scales, t, w)
                byte = four[t % 2 * 2 + w // 2]
                exact = e2m1(np.array([0, 1, 2, 3, 12, 13, 14, 15])) * e4m3(byte) / 128
                np.testing.assert_array_equal(made, exact)

    def test_tokens_are_arranged_as_the_weights_are(self):
        tokens = np.arange(1, 9).astype(ml_dtypes.bfloat16)
        pairs = np.zeros(4, np.uint32)
        self.library.run_arrange(ctypes.c_void_p(tokens.ctypes.data), ctypes.c_void_p(pairs.ctypes.data))
        made = pairs.view(np.uint16).view(ml_dtypes.bfloat16).astype(int).reshape(4, 2)
        np.testing.assert_array_equal(made, np.array(PAIRS) + 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
