# SPDX-License-Identifier: Apache-2.0
"""The quantisers and products on CPU tensors: beside NumPy, and given what they must refuse."""

import math
import resource

import numpy as np
import pytest
import torch

import cukiln.torch as ct
from nvfp4_emulation import Quantized, bf16, compute_global_scale, laid_out, quantize, swiglu
from torch_support import (
    assert_rounded,
    linear_runner,
    matrix,
    moe_runner,
    moe_weights,
    numbers,
    ops,
    sampler_state,
    workspace,
)


def special_matrices(rows=130, columns=80):
    random = np.random.default_rng(7)
    normal = random.standard_normal((rows, columns)).astype(np.float32)
    yield "normal", normal
    yield "heavy tail", random.standard_t(2, (rows, columns)).astype(np.float32)
    bits = (
        random.integers(0, 0x7F80, (rows, columns)) | random.integers(0, 2, (rows, columns)) << 15
    )
    yield "any finite", (bits.astype(np.uint32) << 16).view(np.float32)
    yield "subnormal", ((bits & 0x807F).astype(np.uint32) << 16).view(np.float32)
    yield "zeros", normal * np.float32(0)
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
    block = np.concatenate([ties, -ties, np.array([0, 6], np.float32)])
    yield "ties", np.tile(block, (rows, columns // 16))
    for name, value in (("a NaN", np.nan), ("an infinity", -np.inf), ("an outlier", 1344)):
        special = normal * np.float32(1e-3 if name == "an outlier" else 1)
        special[rows // 2, columns // 2] = value
        yield name, special


@pytest.mark.parametrize(
    ("name", "x"), [pytest.param(*case, id=case[0]) for case in special_matrices()]
)
def test_quantisers_give_the_bytes_of_the_definition(name, x):
    x = bf16(x)
    tensor = torch.from_numpy(x).bfloat16()
    global_scale = ops.amax_gsa(tensor)
    np.testing.assert_array_equal(global_scale.numpy(), compute_global_scale(x))
    expected = laid_out(*quantize(x, global_scale.numpy()))
    quantised = ops.quantize_nvfp4_from_buffer(tensor, global_scale)
    for given, wanted in zip(quantised, expected, strict=True):
        np.testing.assert_array_equal(given.numpy(), wanted)

    encode = np.float32(3.7)
    expected = laid_out(*quantize(x, np.array([encode, np.float32(1) / encode])))
    for given, wanted in zip(ops.quantize_nvfp4(tensor, float(encode)), expected, strict=True):
        np.testing.assert_array_equal(given.numpy(), wanted)


@pytest.mark.parametrize("divisor", [2688.0, 1536.0, 6.0, 1.0])
def test_a_divisor_is_what_the_global_scale_maps_amax_to(divisor):
    x = matrix(130, 96)
    global_scale = ops.amax_gsa(x, divisor)
    np.testing.assert_array_equal(global_scale.numpy(), compute_global_scale(numbers(x), divisor))
    torch.testing.assert_close(x.abs().max().float() * global_scale[0], torch.tensor(divisor))
    y = swiglu(numbers(x[:, :48]), numbers(x[:, 48:]), math.inf, 1.0, 0.0)
    np.testing.assert_array_equal(
        ops.swiglu_amax_gsa(x, math.inf, divisor=divisor).numpy(), compute_global_scale(y, divisor)
    )
    data, scales, own = ops.fused_amax_quantize_nvfp4(x, divisor)
    assert own.equal(global_scale)
    for given, wanted in zip(
        (data, scales), laid_out(*quantize(numbers(x), global_scale.numpy())), strict=True
    ):
        np.testing.assert_array_equal(given.numpy(), wanted)


@pytest.mark.parametrize("shape", [(0, 32), (1, 16), (127, 48), (129, 64), (300, 208)])
def test_quantisers_fill_scales_up_to_whole_atoms(shape):
    x = matrix(*shape)
    global_scale = torch.tensor([100.0, 0.01])
    data, scales = ops.quantize_nvfp4_from_buffer(x, global_scale)
    expected = laid_out(*quantize(numbers(x), global_scale.numpy()))
    np.testing.assert_array_equal(data.numpy(), expected[0])
    np.testing.assert_array_equal(scales.numpy(), expected[1])


def test_a_global_scale_asks_for_no_alignment():
    x = matrix(7, 45)
    for part in (x, x[:, 3:], x[2:, 1:2], x[:1, 5:18]):
        scale = compute_global_scale(numbers(part))
        np.testing.assert_array_equal(ops.amax_gsa(part).numpy(), scale)


@pytest.mark.parametrize("interleaved", [False, True])
def test_gate_and_up_are_found_in_either_layout(interleaved):
    gate, up = matrix(20, 48, 1, 4), matrix(20, 48, 2, 4)
    x = torch.stack([gate, up], -1).flatten(1) if interleaved else torch.cat([gate, up], 1)
    global_scale = torch.tensor([200.0, 1 / 200])
    for given, wanted in zip(
        ops.deinterleave_quantize_from_buffer(x, global_scale, interleaved),
        laid_out(*quantize(np.concatenate([numbers(gate), numbers(up)], 1), global_scale.numpy())),
        strict=True,
    ):
        np.testing.assert_array_equal(given.numpy(), wanted)

    y = swiglu(numbers(gate), numbers(up), 7.0, 1.702, 1.0)
    own = ops.swiglu_amax_gsa(x, 7.0, 1.702, 1.0, interleaved)
    np.testing.assert_array_equal(own.numpy(), compute_global_scale(y))
    for given, wanted in zip(
        ops.swiglu_quantize_from_buffer(x, own, 7.0, 1.702, 1.0, interleaved),
        laid_out(*quantize(y, own.numpy())),
        strict=True,
    ):
        np.testing.assert_array_equal(given.numpy(), wanted)


@pytest.mark.parametrize("tokens", [0, 1, 3, 130])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_gemm_is_the_rounded_product_of_the_quantised(tokens, static, with_bias):
    weight = Quantized(numbers(matrix(40, 96, 1)))
    bias = matrix(1, 40, 2)[0] if with_bias else None
    input_global_scale = torch.tensor([500.0, 1 / 500]) if static else None
    runner = ct.LinearRunner(*weight.tensors(), bias=bias, input_global_scale=input_global_scale)
    x = matrix(tokens, 96, 3)
    y = ops.linear_gemm(x, runner.runner_id, 40)
    quantised = Quantized(numbers(x), input_global_scale.numpy() if static else None)
    expected = quantised.numbers() @ weight.numbers().T
    if with_bias:
        expected += numbers(bias)
    assert y.shape == (tokens, 40)
    assert_rounded(y, expected)


def test_gemm_takes_what_the_quantisers_give():
    a, b = Quantized(numbers(matrix(5, 64, 1))), Quantized(numbers(matrix(24, 64, 2)))
    bias = matrix(1, 24)[0]
    y = ops.gemm(*a.tensors(), *b.tensors(), bias)
    expected = a.numbers() @ b.numbers().T + numbers(bias)
    assert_rounded(y, expected)


@pytest.mark.parametrize("tokens", [0, 1, 20])
@pytest.mark.parametrize("with_bias", [False, True])
def test_w4a16_gemm_does_not_quantise_its_input(tokens, with_bias):
    x, b = matrix(tokens, 96, 3), Quantized(numbers(matrix(24, 96, 2)))
    bias = matrix(1, 24)[0] if with_bias else None
    y = ops.w4a16_gemm(x, *b.tensors(), bias)
    expected = numbers(x).astype(np.float64) @ b.numbers().T
    assert_rounded(y, expected + numbers(bias) if with_bias else expected)
    wide = torch.cat([x, x], 1)
    assert ops.w4a16_gemm(wide[:, 96:], *b.tensors(), bias).equal(y)
    assert ops.w4a16_gemm(x, *b.tensors(), bias, constant_b=True).equal(y)


def test_rows_may_have_gaps():
    wide = matrix(6, 128)
    runner = linear_runner()
    given = ops.linear_gemm(wide[:, 64:], runner.runner_id, 48)
    assert given.equal(ops.linear_gemm(wide[:, 64:].contiguous(), runner.runner_id, 48))


def expected_moe(
    x,
    topk_weights,
    topk_ids,
    up,
    down,
    activation_global_scale,
    interleaved,
    swiglu_of,
    biases=(0, 0),
):
    """`activation_global_scale`: None for W4A16, "dynamic" for one of each row."""
    up_bias, down_bias = (np.broadcast_to(bias, (len(up), *np.shape(bias)[1:])) for bias in biases)
    w4a16 = activation_global_scale is None
    tokens = numbers(x) if w4a16 else Quantized(numbers(x)).numbers()
    width = down[0].codes.shape[1]
    out = np.zeros((len(x), x.shape[1]))
    for token, (ids, weights) in enumerate(
        zip(topk_ids.tolist(), topk_weights.tolist(), strict=True)
    ):
        for expert, weight in zip(ids, weights, strict=True):
            if not 0 <= expert < len(up):
                continue
            h = tokens[token] @ up[expert].numbers().T + up_bias[expert]
            gate, linear = (h[0::2], h[1::2]) if interleaved else (h[:width], h[width:])
            y = swiglu(gate[None], linear[None], *swiglu_of)
            if isinstance(activation_global_scale, str):
                y = Quantized(y).numbers()
            elif not w4a16:
                y = Quantized(y, activation_global_scale).numbers()
            out[token] += weight * (y @ down[expert].numbers().T + down_bias[expert])[0]
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("scale", ["fixed", "dynamic", "w4a16"])
@pytest.mark.parametrize("biased", [(), ("up",), ("down",), ("up", "down")])
def test_moe_gemm_is_the_mixture_of_its_experts(interleaved, scale, biased):
    up, down = moe_weights()
    biases = {
        "up_bias": matrix(3, 64, 11) if "up" in biased else None,
        "down_bias": matrix(3, 64, 12) if "down" in biased else None,
    }
    activation_global_scale = torch.tensor([64.0, 1 / 64]) if scale == "fixed" else None
    runner = moe_runner(
        up,
        down,
        activation_global_scale=activation_global_scale,
        dynamic_activations=scale == "dynamic",
        interleaved=interleaved,
        limit=7.0,
        alpha=1.702,
        beta=1.0,
        **biases,
    )
    x = matrix(9, 64, 5)
    topk_weights = torch.rand(9, 2, generator=torch.Generator().manual_seed(3))
    topk_ids = torch.randint(
        0, 3, (9, 2), generator=torch.Generator().manual_seed(4), dtype=torch.int32
    )
    topk_ids[4] = torch.tensor([-1, 3])  # no expert: zeros
    topk_ids[5, 1] = 1 << 20
    y = ops.moe_gemm(x, topk_weights, topk_ids, runner.runner_id, 64)
    fixed = np.array([64.0, 1 / 64], np.float32)
    global_scale = {"fixed": fixed, "dynamic": "dynamic", "w4a16": None}[scale]
    added = [0 if bias is None else numbers(bias).astype(np.float64) for bias in biases.values()]
    expected = expected_moe(
        x, topk_weights, topk_ids, up, down, global_scale, interleaved, (7.0, 1.702, 1.0), added
    )
    assert not y[4].any()
    # Gate and up are summed in another order than NumPy's: next to a tie, y may round otherwise.
    np.testing.assert_allclose(numbers(y), expected, rtol=2e-2, atol=2e-2 * np.abs(expected).max())
    exact = numbers(y) == bf16(expected.astype(np.float32))
    assert exact.mean() > 0.95


def test_w4a16_keeps_very_small_values_between_the_products():
    up, down = moe_weights()
    x = matrix(3, 64, 5) * 2**-20
    ids, ones = torch.tensor([[0], [1], [2]], dtype=torch.int32), torch.ones(3, 1)
    runner = moe_runner(up, down, activation_global_scale=None)
    given = numbers(ops.moe_gemm(x, ones, ids, runner.runner_id, 64))
    plain = (math.inf, 1.0, 0.0)
    expected = expected_moe(x, ones, ids, up, down, None, False, plain)
    assert 0 < np.abs(expected).max() < 1e-9
    np.testing.assert_allclose(given, expected, rtol=2e-2, atol=2e-2 * np.abs(expected).max())


def test_an_expert_map_names_the_experts_that_are_here():
    up, down = moe_weights()
    x, ones = matrix(3, 64), torch.ones(3, 1)
    everywhere = moe_runner(up, down)
    mapped = moe_runner(up, down, expert_map=torch.tensor([-1, 2, -1, 0], dtype=torch.int32))
    ids = torch.tensor([[1], [3], [0]], dtype=torch.int32)
    there = torch.tensor([[2], [0], [-1]], dtype=torch.int32)
    given = ops.moe_gemm(x, ones, ids, mapped.runner_id, 64)
    assert given.equal(ops.moe_gemm(x, ones, there, everywhere.runner_id, 64))
    assert not given[2].any()


def test_a_nan_makes_its_own_rows_nan():
    x = matrix(4, 64)
    x[2, 5] = math.nan
    static = linear_runner(input_global_scale=torch.tensor([500.0, 1 / 500]))
    y = ops.linear_gemm(x, static.runner_id, 48)
    assert y[2].isnan().all() and not y[[0, 1, 3]].isnan().any()
    assert ops.linear_gemm(x, linear_runner().runner_id, 48).isnan().all()

    weight = matrix(16, 64)
    weight[3, 3] = math.nan
    data, scales = ops.quantize_nvfp4(weight, 500.0)
    runner = ct.LinearRunner(data, scales, torch.tensor([500.0, 1 / 500]))
    y = ops.linear_gemm(matrix(4, 64), runner.runner_id, 16)
    assert y[:, 3].isnan().all() and y.isnan().sum() == 4


# ---- What is refused


X = matrix(4, 64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r, m: ops.linear_gemm(X.float(), r, 48), "x is .* float32.*; expected bfloat16"),
        (lambda r, m: ops.linear_gemm(X[0], r, 48), r"a matrix \[rows, columns\]"),
        (lambda r, m: ops.linear_gemm(matrix(4, 96), r, 48), r"takes \[tokens, 64\]"),
        (lambda r, m: ops.linear_gemm(X, r, 40), "out_features is 40; .* has 48"),
        (lambda r, m: ops.linear_gemm(matrix(64, 64).t(), r, 48), "contiguous"),
        (lambda r, m: ops.linear_gemm(matrix(4, 72)[:, 1:65], r, 48), r"x.clone\(\)"),
        (lambda r, m: ops.amax_gsa(X.half()), "float16"),
        (lambda r, m: ops.amax_gsa(X, 2688.1), "divisor is 2688.1; expected a number from 1 to 26"),
        (lambda r, m: ops.amax_gsa(X, math.nan), "divisor is nan"),
        (lambda r, m: ops.swiglu_amax_gsa(X, 7.0, divisor=0.0), "divisor is 0"),
        (lambda r, m: ops.fused_amax_quantize_nvfp4(X, math.inf), "divisor is inf"),
        (lambda r, m: ops.fused_amax_quantize_nvfp4(matrix(2, 24)), "multiple of 16 columns"),
        (lambda r, m: ops.quantize_nvfp4(matrix(2, 24), 1.0), "multiple of 16 columns"),
        (lambda r, m: ops.quantize_nvfp4(matrix(2, 20), 1.0), "multiple of 16 columns"),
        (lambda r, m: ops.quantize_nvfp4(X, 0.0), "encode_scale is 0"),
        (lambda r, m: ops.quantize_nvfp4(X, math.nan), "encode_scale is nan"),
        (lambda r, m: ops.quantize_nvfp4_from_buffer(X, torch.ones(3)), r"the shape \[2\]"),
        (
            lambda r, m: ops.quantize_nvfp4_from_buffer(X, torch.ones(2).double()),
            r"global_scale is \[2\] float64 on cpu; expected float32",
        ),
        (
            lambda r, m: ops.deinterleave_quantize_from_buffer(matrix(2, 48), torch.ones(2)),
            "expected a multiple of 16 columns",
        ),
        (lambda r, m: ops.swiglu_amax_gsa(X, -1.0), "limit is -1"),
        (
            lambda r, m: ops.moe_gemm(X, torch.rand(4, 2), torch.zeros(4, 2).long(), m, 64),
            "topk_ids is .* int64.*; expected int32",
        ),
        (
            lambda r, m: ops.moe_gemm(X, torch.rand(4, 3), torch.zeros(4, 2).int(), m, 64),
            r"topk_weights is .*; expected the shape \[4, 2\]",
        ),
        (
            lambda r, m: ops.moe_gemm(
                X, torch.rand(4, 2).bfloat16(), torch.zeros(4, 2).int(), m, 64
            ),
            "expected float32",
        ),
        (
            lambda r, m: ops.moe_gemm(X, torch.rand(2, 4).t(), torch.zeros(4, 2).int(), m, 64),
            "not contiguous",
        ),
        (
            lambda r, m: ops.moe_gemm(
                matrix(4, 32), torch.rand(4, 2), torch.zeros(4, 2).int(), m, 64
            ),
            r"expected the shape \[4, 64\]",
        ),
        (
            lambda r, m: ops.moe_gemm(X, torch.rand(4, 2), torch.zeros(4, 2).int(), m, 32),
            "hidden_size is 32; .* has 64",
        ),
        (
            lambda r, m: ops.gemm(
                *Quantized(numbers(X)).tensors(), *Quantized(numbers(matrix(8, 32))).tensors()
            ),
            "same number of columns",
        ),
        (
            lambda r, m: ops.gemm(
                *Quantized(numbers(X)).tensors(), *Quantized(numbers(matrix(9, 64))).tensors()
            ),
            "multiple of 8 rows",
        ),
        (
            lambda r, m: ops.w4a16_gemm(X, *Quantized(numbers(matrix(8, 32))).tensors()),
            "expected twice as many columns",
        ),
        (
            lambda r, m: ops.w4a16_gemm(X, *Quantized(numbers(matrix(9, 64))).tensors()),
            "multiple of 8 rows",
        ),
        (
            lambda r, m: ops.w4a16_gemm(
                matrix(4, 72)[:, 1:65], *Quantized(numbers(matrix(8, 64))).tensors()
            ),
            r"x.clone\(\)",
        ),
        (
            lambda r, m: workspace(torch.zeros(48, 64, dtype=torch.bfloat16)),
            "weight is .*multiples of 32",
        ),
        (
            lambda r, m: ops.linear_fwd(X, matrix(64, 96), *workspace(matrix(64, 96))),
            "same number of columns",
        ),
        (
            lambda r, m: ops.linear_wgrad(
                X, *ops.linear_fwd(matrix(40, 64), matrix(64, 64), *workspace(matrix(64, 64)))[1:]
            ),
            "xt_data is",
        ),
        (lambda r, m: torch.ops.cukiln.sample(X.double(), sampler_state()), "float32, bfloat16"),
        (lambda r, m: torch.ops.cukiln.sample(X, sampler_state()[:2]), r"state is .*\[3\]"),
        (
            lambda r, m: torch.ops.cukiln.sample(X, sampler_state(), torch.ones(3)),
            r"temperature is .*\[4\]",
        ),
        (
            lambda r, m: torch.ops.cukiln.sample(X, sampler_state(), row_seeds=sampler_state()),
            r"row_seeds is .*\[4, 2\]",
        ),
        (lambda r, m: torch.ops.cukiln.top_log_probabilities(X, 33), "count is 33; expected 0 to 32"),
        (lambda r, m: torch.ops.cukiln.top_log_probabilities(X, -1), "count is -1; expected 0 to 32"),
        (
            lambda r, m: torch.ops.cukiln.top_log_probabilities(X[:, :5], 6),
            "count is 6; .*vocabulary of 5",
        ),
        (
            lambda r, m: torch.ops.cukiln.top_log_probabilities(X, 3, tokens=torch.ones(4)),
            "tokens is .*int32",
        ),
    ],
)
def test_a_bad_argument_is_refused_before_anything_runs(call, message):
    linear, moe = linear_runner(), moe_runner(*moe_weights())
    with pytest.raises(RuntimeError, match=message):
        call(linear.runner_id, moe.runner_id)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": torch.zeros(8, 8, dtype=torch.uint8)}, "in_features is 16; .*multiple of 32"),
        ({"data": torch.zeros(4, 32, dtype=torch.uint8)}, "out_features is 4; .*multiple of 8"),
        ({"data": torch.zeros(8, 32)}, "data is .*uint8"),
        ({"data": torch.zeros(8, 64, dtype=torch.uint8)[:, ::2]}, "not contiguous"),
        ({"scales": torch.zeros(8, 4, dtype=torch.uint8)}, r"\(128, 4\)"),
        ({"global_scale": torch.ones(1)}, r"global_scale is \(1,\)"),
        ({"bias": torch.ones(8)}, "bias is .*bfloat16"),
        ({"input_global_scale": torch.ones(2, device="meta")}, "on meta"),
    ],
)
def test_a_runner_refuses_weights_that_do_not_fit(change, message):
    weights = {
        "data": torch.zeros(8, 32, dtype=torch.uint8),
        "scales": torch.zeros(128, 4, dtype=torch.uint8),
        "global_scale": torch.ones(2),
    }
    with pytest.raises(ValueError, match=message):
        ct.LinearRunner(**{**weights, **change})


def test_errors_leave_no_tensor_behind():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        with pytest.raises(IndexError):
            ops.linear_gemm(torch.zeros(64, 1 << 14), 1 << 40, 8)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 200_000  # 800 MB if each were kept
