# SPDX-License-Identifier: Apache-2.0
"""The layers on the CPU: beside emulation and bf16, moved, copied and saved."""

import copy
import io
import math

import numpy as np
import pytest
import torch
from torch import nn

import cukiln.torch as ct
from cukiln.torch import NVFP4Linear, NVFP4MoE, NVFP4SharedExpert, quantize_
from nvfp4_emulation import Quantized
from torch_layers_support import Mlp, bf16_linear, cosine, decode_of, emulated_linear, numbers


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)


# ---- Linear: numbers


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_is_its_emulation(bias):
    linear = bf16_linear(96, 40, bias)
    x = torch.randn(5, 96, dtype=torch.bfloat16)
    expected = emulated_linear(
        x, Quantized(numbers(linear.weight)).numbers(), bias=numbers(linear.bias) if bias else 0
    )
    given = numbers(NVFP4Linear.from_linear(linear)(x))
    np.testing.assert_allclose(given, expected, rtol=2**-7, atol=1e-3)


def test_a_calibrated_input_scale_is_used_for_every_input():
    linear = bf16_linear(64, 16)
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    weight = Quantized(numbers(linear.weight)).numbers()
    layer = NVFP4Linear.from_linear(linear, input_scale=decode_of(300))
    expected = emulated_linear(x, weight, decode_of(300))
    np.testing.assert_allclose(numbers(layer(x)), expected, rtol=2**-7, atol=1e-3)
    dynamic = numbers(NVFP4Linear.from_linear(linear)(x))
    assert np.abs(dynamic - expected).max() > 1e-2  # or this test sees nothing


@pytest.mark.parametrize("shape", [(40,), (0, 40), (3, 40), (2, 1, 3, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_any_leading_shape_and_dtype_and_sizes_that_need_padding(shape, dtype):
    linear = nn.Linear(40, 13)
    layer = NVFP4Linear.from_linear(linear)
    x = torch.randn(shape)
    y = layer(x.to(dtype))
    assert y.shape == (*shape[:-1], 13) and y.dtype == dtype
    if x.numel():
        assert cosine(y, linear(x)) > 0.96


def test_rows_with_gaps_are_taken():
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    wide = torch.randn(4, 100, dtype=torch.bfloat16)
    assert torch.equal(layer(wide[:, 3:67]), layer(wide[:, 3:67].clone()))


# DeepSeek-V3 and V4: K and N of the projections around attention.
@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [
        ("q_a", 7168, 1536),
        ("q_b", 1536, 24576),
        ("kv", 7168, 576),
        ("o_b", 16384, 7168),
    ],
)
def test_attention_projections_keep_a_cosine_of_0_99(name, columns, rows):
    weight = torch.empty(rows, columns, dtype=torch.bfloat16)
    weight[:512].normal_(std=columns**-0.5)
    for row in range(512, rows, 512):  # drawing all of them would take longer than quantising
        weight[row : row + 512] = weight[:512].roll(row, 1)[: min(512, rows - row)]
    linear = nn.Linear(columns, rows, bias=False, device="meta", dtype=torch.bfloat16)
    linear.weight = nn.Parameter(weight)
    x = torch.randn(2, columns, dtype=torch.bfloat16)
    assert cosine(NVFP4Linear.from_linear(linear)(x), linear(x)) >= 0.99


# ---- Mixtures and shared experts: numbers


@pytest.mark.parametrize(("limit", "alpha", "beta"), [(math.inf, 1, 0), (0.3, 1, 0), (0.3, 1.7, 1)])
def test_a_shared_expert_is_its_emulation_with_the_gate_clamped_before_silu(limit, alpha, beta):
    mlp = Mlp(limit=limit)
    x = torch.randn(6, 64, dtype=torch.bfloat16) * 4
    layer = NVFP4SharedExpert.from_linear(
        [mlp], limit=limit, alpha=alpha, beta=beta, activation_scale=decode_of(8)
    )
    expected = mlp.emulated(x, decode_of(8), alpha, beta)
    assert cosine(layer(x), torch.from_numpy(expected)) > 0.9999
    np.testing.assert_allclose(numbers(layer(x)), expected, rtol=2**-6, atol=0.02)


def test_a_shared_expert_of_a_network_that_learnt_keeps_a_cosine_of_0_99():
    """Noise of independent weights and inputs adds up as their products do, which limits two NVFP4
    products and SwiGLU to 0.97. What was trained has directions in common, where these add up."""
    hidden, width, directions = 2048, 1024, 16
    basis = torch.linalg.qr(torch.randn(hidden, directions)).Q
    middle = torch.linalg.qr(torch.randn(width, directions)).Q
    mlp = Mlp(hidden, width, limit=10.0)
    with torch.no_grad():
        for linear, rows, columns in (
            (mlp.gate_proj, middle, basis),
            (mlp.up_proj, middle, basis),
            (mlp.down_proj, basis, middle),
        ):
            structure = rows @ torch.randn(directions, directions) @ columns.T
            noise = torch.randn_like(structure) * structure.std()
            linear.weight.copy_((structure + 0.5 * noise) * 6)
    x = (torch.randn(8, directions) @ basis.T * 4).bfloat16()
    layer = NVFP4SharedExpert.from_linear([mlp], limit=10.0)
    assert cosine(layer(x), mlp(x)) >= 0.99


def test_a_mixture_is_the_weighted_sum_of_its_experts():
    experts = [Mlp(limit=2.0) for _ in range(4)]
    x = torch.randn(2, 3, 64, dtype=torch.bfloat16) * 3
    ids = torch.randint(0, 4, (2, 3, 2))
    ids[0, 0, 1] = 99  # nobody's
    weights = torch.rand(2, 3, 2)
    decode = decode_of(2.0 * 2.0)
    layer = NVFP4MoE.from_linear(experts, limit=2.0, activation_scale=decode)
    expected = np.zeros((6, 64))
    # One scale holds for all tokens of a call.
    outputs = [expert.emulated(x.view(6, 64), decode) for expert in experts]
    for token, (token_ids, token_weights) in enumerate(
        zip(ids.view(6, 2).tolist(), weights.view(6, 2).tolist(), strict=True)
    ):
        for expert, weight in zip(token_ids, token_weights, strict=True):
            if expert < 4:
                expected[token] += weight * outputs[expert][token]
    y = layer(x, weights, ids)
    assert y.shape == x.shape
    np.testing.assert_allclose(numbers(y).reshape(6, 64), expected, rtol=2**-6, atol=0.02)


@pytest.mark.parametrize("gone", [3, -1, 1 << 31, 1 << 32, -(1 << 32)])
def test_an_id_out_of_range_is_nobodys(gone):
    layer = NVFP4MoE.from_linear([Mlp() for _ in range(3)])
    x = torch.randn(2, 64)
    y = layer(x, torch.ones(2, 1), torch.tensor([[0], [gone]]))
    assert y[0].any() and not y[1].any()


def test_routing_that_does_not_fit_is_refused():
    layer = NVFP4MoE.from_linear([Mlp() for _ in range(3)])
    x, weights, ids = torch.randn(2, 64), torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.int64)
    for given in (ids.float(), ids.bool(), ids[:, :0], torch.tensor(0)):
        with pytest.raises(ValueError, match=r"topk_ids is .*; expected .* int32 or int64"):
            layer(x, weights, given)
    with pytest.raises(ValueError, match="topk_weights on meta"):
        layer(x, weights.to("meta"), ids)
    for given in (weights[:1], weights.T.contiguous(), weights.flatten(), weights.repeat(1, 2)):
        with pytest.raises(ValueError, match=r"topk_weights is \(.*; expected the shape of topk_ids, \(2, 1\)"):
            layer(x, given, ids)
    with pytest.raises(ValueError, match=r"topk_ids is \(1, 2\) and x \(2, 64\)"):
        layer(x, weights.T, ids.T)
    flat = layer(x, weights, ids)
    assert torch.equal(layer(x.view(1, 2, 64), weights, ids), flat.view(1, 2, 64))


def test_an_expert_map_says_where_experts_are():
    experts = [Mlp() for _ in range(2)]
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    ids = torch.tensor([[5], [0], [2]])
    ones = torch.ones(3, 1)
    mapped = NVFP4MoE.from_linear(experts, expert_map=torch.tensor([-1, -1, 0, -1, -1, 1]))(
        x, ones, ids
    )
    plain = NVFP4MoE.from_linear(experts)(x, ones, torch.tensor([[1], [-1], [0]]))
    assert torch.equal(mapped, plain)
    assert not mapped[1].any()


# ---- Copies, moves, replacement


def test_copies_and_pickles_have_runners_of_their_own():
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16, True))
    x = torch.randn(4, 64, dtype=torch.bfloat16)
    expected = layer(x)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    others = [copy.deepcopy(layer), torch.load(file, weights_only=False)]
    assert len({layer.runner_id, *(other.runner_id for other in others)}) == 3
    gone = layer.runner_id
    del layer
    for other in others:
        assert torch.equal(other(x), expected)
    with pytest.raises(IndexError):
        torch.ops.nvfp4.linear_gemm(x, gone, 16)


@pytest.mark.parametrize("change", ["half", "bfloat16", "double", "share_memory"])
def test_dtypes_stay_whatever_a_model_is_turned_into(change):
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16, True), input_scale=0.1)
    x = torch.randn(4, 64, dtype=torch.bfloat16)
    expected, dtypes = layer(x), [buffer.dtype for buffer in layer.buffers()]
    getattr(layer, change)()
    assert [buffer.dtype for buffer in layer.buffers()] == dtypes
    assert torch.equal(layer(x), expected)


def test_a_model_on_meta_is_quantised_empty_and_loaded():
    whole = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 16))
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 16))
    quantize_(whole), quantize_(empty)
    assert all(buffer.is_meta for buffer in empty.buffers())
    with pytest.raises(RuntimeError, match=r"assign=True.*to_empty"):
        empty[0].process_weights_after_loading()
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    file.seek(0)
    empty.load_state_dict(torch.load(file, weights_only=True), assign=True)
    x = torch.randn(3, 64)
    assert torch.equal(empty(x), whole(x))


def test_a_layer_that_goes_to_meta_is_empty_again():
    mlp = Mlp()
    x = torch.randn(3, 64)
    for layer in (
        NVFP4Linear.from_linear(nn.Linear(40, 13)),
        NVFP4SharedExpert.from_linear([mlp]),
    ):
        state = layer.state_dict()
        x = torch.randn(3, 40 if isinstance(layer, NVFP4Linear) else 64)
        expected = layer(x)
        layer.to("meta")
        assert layer.runner_id == -1
        assert {name: tensor.shape for name, tensor in layer.state_dict().items()} == {
            name: tensor.shape for name, tensor in state.items()
        }
        with pytest.raises(RuntimeError, match="no weights yet"):
            layer(x)
        layer.to_empty(device="cpu").load_state_dict(state)
        assert torch.equal(layer(x), expected)


def test_reserved_tokens_stay_reserved(monkeypatch):
    reserved = []
    monkeypatch.setattr(ct.Runner, "reserve", lambda self, tokens: reserved.append(tokens))
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    layer.reserve(8)
    layer.reserve(4)
    copy.deepcopy(layer)
    assert reserved == [8, 8, 8]


def test_quantize_swaps_the_linear_layers_that_are_chosen():
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.ModuleDict({"head": nn.Linear(64, 16), "attention": nn.MultiheadAttention(64, 2)}),
    )
    model.append(model[0])  # one layer in two places
    names = []

    def chosen(name, linear):
        names.append(name)
        return "head" not in name

    report = quantize_(model, chosen)
    assert report.replaced == ("0", "2")
    assert names == ["0", "2", "1.head"]
    assert isinstance(model[0], NVFP4Linear) and model[2] is model[0]
    assert type(model[1]["head"]) is nn.Linear
    assert not isinstance(model[1]["attention"].out_proj, NVFP4Linear)  # used by its weight
    quantize_(model)
    assert isinstance(model[1]["head"], NVFP4Linear)


def test_a_layer_that_computes_with_weights_itself_keeps_them():
    model = nn.Sequential(nn.Linear(64, 64), nn.TransformerEncoderLayer(64, 2, 128)).eval()
    x = torch.randn(2, 5, 64)
    expected = model(x)
    with torch.no_grad():  # the encoder's fast path
        quantize_(model)
        assert cosine(model(x), expected) > 0.95
    assert isinstance(model[0], NVFP4Linear)


# ---- Activations in bf16


def test_activations_in_bf16_are_not_quantised():
    linear = bf16_linear(96, 40, True)
    x = torch.randn(5, 96, dtype=torch.bfloat16)
    layer = NVFP4Linear.from_linear(linear, input_scale=1.0, activations="bf16")
    expected = numbers(x) @ Quantized(numbers(linear.weight)).numbers().T + numbers(linear.bias)
    np.testing.assert_allclose(numbers(layer(x)), expected, rtol=2**-8, atol=1e-4)
    for copied in (copy.deepcopy(layer), NVFP4Linear.from_linear(linear, activations="bf16")):
        assert torch.equal(copied(x), layer(x))
    loaded = NVFP4Linear(96, 40, True, activations="bf16")
    loaded.load_state_dict(layer.state_dict())
    assert torch.equal(loaded(x), layer(x))
    assert not torch.equal(NVFP4Linear.from_linear(linear, activations="nvfp4")(x), layer(x))


@pytest.mark.parametrize("activations", ["nvfp4", "bf16"])
def test_small_values_between_the_products_stay(activations):
    experts = [Mlp(64, 96) for _ in range(4)]
    x = torch.randn(6, 64, dtype=torch.bfloat16) * 1e-2  # between the products below 1e-3
    ids = torch.arange(6, dtype=torch.int32)[:, None] % 4
    weights = torch.ones(6, 1)
    expected = torch.stack([experts[i % 4](x[i]) for i in range(6)])
    close = 0.98 if activations == "bf16" else 0.96
    layer = NVFP4MoE.from_linear(experts, activations=activations)
    assert cosine(layer(x, weights, ids), expected) > close
    shared = NVFP4SharedExpert.from_linear(experts[:1], activations=activations)
    assert cosine(shared(x), experts[0](x)) > close


def test_quantize_passes_activations_on_and_another_name_is_refused():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 32))
    quantize_(model, activations="bf16")
    assert [layer.keeps_bf16() for layer in model] == [True, True]
    with pytest.raises(ValueError, match="activations is 'fp8'; expected 'bf16', 'nvfp4' or None"):
        NVFP4Linear(64, 32, activations="fp8")
