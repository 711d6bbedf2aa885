#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sampling kernels' device code, run on the CPU, beside NumPy's float64, which shares nothing with it.

  sampling_test.py COMPILER…

The log-probability of a drawn token tells the weight of all kept ones, so one draw shows whether a row's
thresholds are exact.
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

KERNELS = REPOSITORY / "kernels_src" / "sampling"
F32 = np.float32
TYPES = {np.dtype(F32): "f32", np.dtype(ml_dtypes.bfloat16): "bf16"}
FLAGS = {"f32": (), "bf16": ("-DCUKILN_LOGITS_BF16",)}
VOCABULARY = 70003  # three batches of some threads, and a row whose length is no multiple of four
ERROR = 1e-5
ROWS = 1  # each takes half a second


def setUpModule() -> None:
    global libraries
    folder = Path(unittest.enterModuleContext(scratch_folder()))
    translate_files(KERNELS, ["sampler.cu", "top_log_probabilities.cu"], folder)
    libraries = {name: compile_library("sampling.cpp", folder, name, "-DCUKILN_HOST_ARCH=900", *flags)
                 for name, flags in FLAGS.items()}  # fmt: skip


def address(array: np.ndarray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def u32(value: int) -> ctypes.c_uint32:
    return ctypes.c_uint32(value)


def top(logits: np.ndarray, count: int, temperature=None, tokens=None) -> tuple[np.ndarray, ...]:
    rows, vocabulary = logits.shape
    found = np.full((rows, count), -1, np.int32), np.full((rows, count), 9, F32)
    of_tokens = None if tokens is None else np.full(rows, 9, F32)
    libraries[TYPES[logits.dtype]].run_top_log_probabilities(
        u32(rows), address(found[0]), address(found[1]), address(of_tokens), address(logits), u32(vocabulary),
        ctypes.c_int64(logits.strides[0] // logits.itemsize), u32(count), address(temperature), address(tokens))  # fmt: skip
    return (*found, of_tokens)


def sample(logits: np.ndarray, temperature=None, top_k=None, top_p=None, min_p=None, joint=False, state=None,
           row_seeds=None, with_logarithms=True) -> tuple[np.ndarray, np.ndarray | None]:  # fmt: skip
    rows, vocabulary = logits.shape
    tokens, log_probabilities = np.full(rows, -1, np.int32), np.full(rows, 9, F32) if with_logarithms else None
    state = np.array([11, 0, 0], np.uint64) if state is None else state
    values = [None if value is None else np.full(rows, value, kind) for value, kind in
              ((temperature, F32), (top_k, np.int32), (top_p, F32), (min_p, F32))]  # fmt: skip
    libraries[TYPES[logits.dtype]].run_sampler(
        u32(rows), address(tokens), address(log_probabilities), address(logits), u32(vocabulary),
        ctypes.c_int64(logits.strides[0] // logits.itemsize), *map(address, values), u32(joint), address(state),
        address(row_seeds))  # fmt: skip
    return tokens, log_probabilities


def log_softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    scaled = np.nan_to_num(logits.astype(np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf) / temperature
    largest = scaled.max(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.where(scaled == largest, 0, scaled - largest)
        return gap - np.log(np.exp(gap).sum(1, keepdims=True))


def kept_log_probabilities(logits: np.ndarray, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, joint=False) -> np.ndarray:
    """Of each token; -inf of those that the filters drop."""
    plain = log_softmax(logits, temperature)
    result = np.full_like(plain, -np.inf)
    for row, values in enumerate(plain):
        descending = np.sort(values)[::-1]
        weights = np.exp(descending)
        keep = np.ones(len(values), bool)
        base = weights.sum()
        if 0 < top_k < len(values):
            keep &= values >= descending[top_k - 1]
            base = base if joint else weights[descending >= descending[top_k - 1]].sum()
        if top_p < 1:
            above = np.concatenate([[0], np.cumsum(weights)])[np.searchsorted(-descending, -values)]
            keep &= (above == 0) | (above < float(F32(top_p)) * base)
        if min_p > 0:
            keep &= values - descending[0] >= np.log(float(F32(min_p)))
        result[row, keep] = values[keep] - np.log(np.exp(values[keep]).sum())
    return result


def philox(seed: int, offset: int, row: int, number: int) -> int:
    """64 random bits of Philox4x32-10."""
    word = 0xFFFFFFFF
    counter, key = [offset & word, offset >> 32, row, number], [seed & word, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second & word, first >> 32 ^ counter[3] ^ key[1], first & word]
        key = [(key[0] + 0x9E3779B9) & word, (key[1] + 0xBB67AE85) & word]
    return counter[1] << 32 | counter[0]


def proposed_token(logits: np.ndarray, top_p: float, seed: int, row: int) -> int:
    """The first token in the nucleus of those that the row's random bits draw, four at a time, from the whole row,
    and then from what is more likely than all that were refused; tokens lie in the order of the threads that read them."""
    weights = np.exp(logits.astype(np.float64) - logits.max())
    index = np.arange(len(logits))
    group = index // 4
    order = np.lexsort((index, group // 256 % 8 * 32 + group % 32, group // 32 % 8))
    allowed = np.ones(len(logits), bool)
    number = 0
    while True:
        sums = np.cumsum(np.where(allowed, weights, 0)[order])
        tokens = [order[np.searchsorted(sums, philox(seed, 0, row, number + i) / 2**64 * sums[-1], "right")] for i in range(4)]
        for token in tokens:
            if weights[logits > logits[token]].sum() < top_p * weights.sum():
                return int(token)
        allowed = logits > logits[tokens].max()
        number += 4


def rows_of(kind: str, random: np.random.Generator) -> np.ndarray:
    if kind == "normal":
        return (random.standard_normal((ROWS, VOCABULARY)) * 3).astype(F32)
    if kind == "equals":  # at every threshold
        return (random.standard_normal((ROWS, VOCABULARY)).round(1)).astype(F32)
    if kind == "zipf":
        return np.stack([random.permutation(-np.log(np.arange(1, VOCABULARY + 1))) for _ in range(ROWS)]).astype(F32)
    if kind == "sorted":
        return np.tile(-1e-3 * np.arange(VOCABULARY), (ROWS, 1)).astype(F32)
    if kind == "one reader":  # the best tokens are all read by one thread
        logits = random.standard_normal((ROWS, VOCABULARY)).astype(F32)
        logits[:, [4 * 2048 * group + i for group in range(2) for i in range(4)]] += 20
        return logits
    if kind == "masked":  # all but three tokens
        logits = np.full((ROWS, VOCABULARY), -np.inf, F32)
        logits[:, [7, 8, 15000]] = [1, 3, 2]
        return logits
    return {"constant": np.zeros, "short": lambda *_: random.standard_normal((ROWS, 37))}[kind]((ROWS, VOCABULARY)).astype(F32)


KINDS = ("normal", "equals", "zipf", "sorted", "one reader", "masked", "constant", "short")


class TopLogProbabilities(unittest.TestCase):
    def check(self, logits: np.ndarray, count: int, temperature: float | None = None) -> None:
        random = np.random.default_rng(3)
        tokens = random.integers(0, logits.shape[1], len(logits), dtype=np.int32)
        exact = log_softmax(logits, temperature or 1.0)
        with np.errstate(invalid="ignore"):
            order = np.argsort(-log_softmax(logits), axis=1, kind="stable")[:, :count]
        found, values, of_tokens = top(
            logits, count, None if temperature is None else np.full(len(logits), temperature, F32), tokens)  # fmt: skip
        np.testing.assert_array_equal(found, order)
        np.testing.assert_allclose(values, np.take_along_axis(exact, order, 1), rtol=1e-6, atol=ERROR)
        np.testing.assert_allclose(of_tokens, exact[range(len(exact)), tokens], rtol=1e-6, atol=ERROR)

    def test_the_largest_come_first_and_among_equals_the_lowest_index(self):
        random = np.random.default_rng(1)
        for kind in KINDS:
            for count in (5, 32) if kind == "normal" else (20,):
                with self.subTest(kind=kind, count=count):
                    self.check(rows_of(kind, random), count)

    def test_temperature_scales_and_greedy_counts_as_1(self):
        logits = rows_of("normal", np.random.default_rng(1))
        self.check(logits, 4, 0.5)
        plain = top(logits, 4)
        for temperature in (0.0, np.nan):
            given = top(logits, 4, np.full(ROWS, temperature, F32))
            np.testing.assert_array_equal(given[1], plain[1])

    def test_bf16_logits_and_unaligned_rows(self):
        logits = rows_of("normal", np.random.default_rng(1))
        self.check(logits.astype(ml_dtypes.bfloat16), 20)
        apart = np.zeros((ROWS, VOCABULARY + 2), F32)
        apart[:, 1:-1] = logits
        aligned, unaligned = top(logits, 20), top(apart[:, 1:-1], 20)
        np.testing.assert_array_equal(unaligned[0], aligned[0])
        np.testing.assert_array_equal(unaligned[1], aligned[1])

    def test_nan_infinities_and_tokens_outside(self):
        inf, nan = np.inf, np.nan
        rows = [[nan, 0, -inf, 0.5, nan], [1, inf, 3, inf, nan], [-inf, nan, -inf, -inf, -inf]]
        found, values, of_tokens = top(np.array(rows, F32), 3, tokens=np.array([2, 5, -1], np.int32))
        self.assertEqual(found.tolist(), [[3, 1, 0], [1, 3, 2], [0, 1, 2]])
        half = float(np.log(0.5))
        expected = [[-0.4740769, -0.9740769, -inf], [half, half, -inf], [float(np.log(0.2))] * 3]
        np.testing.assert_allclose(values, np.array(expected), rtol=0, atol=ERROR)
        self.assertEqual(of_tokens[0], -inf)
        self.assertTrue(np.isnan(of_tokens[1:]).all())

    def test_no_count_gives_the_token_alone(self):
        logits = rows_of("normal", np.random.default_rng(1))
        of_tokens = top(logits, 0, tokens=np.array([5], np.int32))[2]
        np.testing.assert_allclose(of_tokens, log_softmax(logits)[0, 5], rtol=0, atol=ERROR)


class Sampler(unittest.TestCase):
    FILTERS = ({"temperature": 0.7}, {"top_p": 0.5}, {"top_p": 0.9}, {"top_k": 50, "top_p": 0.9}, {"top_k": 5000, "top_p": 0.9})
    MORE_FILTERS = ({}, {"top_k": 50}, {"top_p": 0.999}, {"min_p": 0.05}, {"top_k": 50, "top_p": 0.9, "joint": True},
                    {"top_p": 0.9, "min_p": 0.001}, {"top_p": 0.02},
                    {"top_p": 0.9, "min_p": 0.5})  # fmt: skip

    def test_thresholds_are_exact(self):
        random = np.random.default_rng(2)
        for kind in KINDS:
            logits = rows_of(kind, random)
            for filters in self.FILTERS + (self.MORE_FILTERS if kind == "normal" else ()):
                with self.subTest(kind=kind, filters=filters):
                    exact = kept_log_probabilities(logits, **filters)
                    tokens, log_probabilities = sample(logits, **filters)
                    drawn = exact[range(len(exact)), tokens]
                    self.assertTrue(np.isfinite(drawn).all(), "a token outside the kept ones")
                    np.testing.assert_allclose(log_probabilities, drawn, rtol=0, atol=ERROR)

    def test_top_p_draws_the_first_proposal_in_the_nucleus(self):
        random = np.random.default_rng(8)
        zipf = random.permutation(-np.log(np.arange(1, 7004)))
        normal = random.standard_normal(7003) * 2
        for name, values, top_p in (("normal", normal, 0.6), ("equals", normal.round(), 0.3), ("zipf", zipf, 0.9)):
            values = values.astype(F32)
            tokens, _ = sample(np.broadcast_to(values, (24, len(values))), top_p=top_p, with_logarithms=False)
            self.assertEqual(tokens.tolist(), [proposed_token(values, top_p, 11, row) for row in range(24)], name)

    def test_greedy_takes_the_lowest_index_among_equals(self):
        logits = rows_of("equals", np.random.default_rng(4))
        for filters in ({"temperature": 0}, {"top_k": 1}, {"top_k": 1, "temperature": 2, "top_p": 0.5}):
            tokens, log_probabilities = sample(logits, **filters)
            np.testing.assert_array_equal(tokens, logits.argmax(1))
            np.testing.assert_allclose(log_probabilities, log_softmax(logits).max(1), rtol=0, atol=ERROR)

    def test_a_state_moves_on_and_a_row_with_a_seed_draws_the_same_anywhere(self):
        logits = np.broadcast_to(rows_of("normal", np.random.default_rng(6))[:1, :999], (6, 999))
        state = np.array([3, 5, 0], np.uint64)
        sample(logits, state=state)
        self.assertEqual(state.tolist(), [3, 6, 0])
        seeds = np.stack([np.arange(6), np.full(6, 7)], 1).astype(np.uint64)
        reversed_seeds = np.ascontiguousarray(seeds[::-1])
        first = sample(logits, state=state, row_seeds=seeds)[0]
        self.assertGreater(len(set(first.tolist())), 3)
        self.assertEqual(seeds[:, 1].tolist(), [8] * 6)
        self.assertEqual(state.tolist(), [3, 6, 0])
        elsewhere = sample(logits, state=state, row_seeds=reversed_seeds)[0]
        np.testing.assert_array_equal(elsewhere[::-1], first)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
