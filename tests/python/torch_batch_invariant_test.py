# SPDX-License-Identifier: Apache-2.0
"""A layer whose tokens do not depend on their batch."""

import copy
import io
import math

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from cukiln.torch import NVFP4Experts, NVFP4Linear, NVFP4MoE, NVFP4SharedExpert
from torch_layers_support import Mlp, bf16_linear, cosine


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)
    torch._dynamo.reset()


def neighbours(x):
    """Batches of other sizes, with outliers, in which the rows of x are."""
    other = torch.randn(40, x.shape[-1], dtype=x.dtype)
    other[::3] *= 1e4
    other[1::3] *= 1e-6
    for before, after in ((0, 0), (0, 1), (3, 2), (13, 0), (16, 16), (7, 33)):
        yield before, torch.cat([other[:before], x, other[:after]])


@pytest.mark.parametrize("features", [(64, 16), (40, 13)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_token_has_the_same_bits_in_every_batch(features, bias):
    linear = bf16_linear(*features, bias)
    plain, layer = NVFP4Linear.from_linear(linear), NVFP4Linear.from_linear(linear)
    assert layer.batch_invariant(16) is layer
    x = torch.randn(3, features[0], dtype=torch.bfloat16)
    expected, differs = layer(x), False
    for row in range(3):
        assert torch.equal(layer(x[row]), expected[row])
    for before, batch in neighbours(x):
        assert torch.equal(layer(batch)[before : before + 3], expected)
        differs |= not torch.equal(plain(batch)[before : before + 3], plain(x))
    assert differs  # or this test sees nothing


def test_a_tokens_result_is_as_near_as_with_a_scale_for_the_whole():
    linear = bf16_linear(512, 256, True)
    plain, layer = NVFP4Linear.from_linear(linear), NVFP4Linear.from_linear(linear)
    layer.batch_invariant()
    x = torch.randn(33, 512, dtype=torch.bfloat16)
    assert cosine(layer(x), linear(x)) > cosine(plain(x), linear(x)) - 1e-3
    linear.bias.data.zero_()
    layer = NVFP4Linear.from_linear(linear).batch_invariant()
    sizes = (2.0 ** torch.linspace(-120, 100, 33)).bfloat16()[:, None]
    y = layer(x * sizes)
    for row, size in enumerate(sizes):
        assert cosine(y[row].double() / size.double(), linear(x[row])) > 0.98
    assert not layer(torch.zeros(2, 512)).any()
    assert layer(torch.zeros(0, 512)).shape == (0, 256)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_stays_in_its_row(bad):
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16)).batch_invariant()
    x = torch.randn(4, 64)
    expected = layer(x)
    x[2, 5] = bad
    y = layer(x)
    assert not y[2].isfinite().any()
    assert torch.equal(y[[0, 1, 3]], expected[[0, 1, 3]])


def test_copies_and_loaded_layers_keep_it():
    layer = NVFP4Linear(64, 16).batch_invariant(8)
    layer.load_state_dict(NVFP4Linear.from_linear(bf16_linear(64, 16)).state_dict())
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    x = torch.randn(20, 64)
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert torch.equal(other(x)[3:4], layer(x[3:4]))
    with pytest.raises(ValueError, match="max_tokens is 0"):
        layer.batch_invariant(0)


def test_it_is_compiled_for_any_number_of_tokens():
    layer = NVFP4Linear.from_linear(nn.Linear(64, 32)).batch_invariant(16)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (3, 9, 16, 40):
        x = torch.randn(tokens, 64)
        assert torch.equal(compiled(x), layer(x))


# ---- Mixtures of experts. That kernels add up in an order of shapes alone is kernels.moe's to test.

EXPERTS, TOPK = 4, 2
FIXED = {"input_scale": 8 / 2688, "activation_scale": 8 / 2688}
OF_ROWS = {"input_scale": 8 / 2688}  # what lies between the GEMMs has a scale of each row


def mixture(kind=NVFP4MoE, **settings):
    if kind is NVFP4SharedExpert:
        return kind.from_linear([Mlp()], **settings)
    if kind is NVFP4Experts:
        torch.manual_seed(1)
        weights = torch.randn(EXPERTS, 64, 64), torch.randn(EXPERTS, 64, 32)
        biases = dict(zip(("w13_bias", "w2_bias"), torch.randn(2, EXPERTS, 64), strict=True))
        state = kind.from_bf16(*weights, limit=7.0, **settings).state_dict() | biases
        layer = kind(EXPERTS, 64, 32, bias=True, limit=7.0, activations=settings.get("activations"))
        layer.load_state_dict(state)
        return layer
    return kind.from_linear([Mlp() for _ in range(EXPERTS)], limit=7.0, **settings)


def call(layer, x):
    """Routed by the token itself."""
    if isinstance(layer, NVFP4SharedExpert):
        return layer(x)
    weights, ids = x[..., :EXPERTS].nan_to_num().float().softmax(-1).topk(TOPK)
    return layer(x, *((ids, weights) if isinstance(layer, NVFP4Experts) else (weights, ids)))


@pytest.mark.parametrize("kind", [NVFP4MoE, NVFP4Experts, NVFP4SharedExpert])
@pytest.mark.parametrize("settings", [FIXED, OF_ROWS, {"activations": "bf16"}])
def test_a_token_of_experts_has_the_same_bits_in_every_batch(kind, settings, monkeypatch):
    layer = mixture(kind, **settings)
    assert layer.batch_invariant(16) is layer
    rows = []
    run = layer._run
    monkeypatch.setattr(layer, "_run", lambda x, *rest: (rows.append(len(x)), run(x, *rest))[1])
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    expected = call(layer, x)
    assert expected.count_nonzero() > 0.9 * expected.numel()
    for row in range(3):
        assert torch.equal(call(layer, x[row]), expected[row])
    for before, batch in neighbours(x):
        batch[:before:2, 5] = math.nan
        assert torch.equal(call(layer, batch)[before : before + 3], expected)
    assert call(layer, x[:0]).shape == (0, 64)
    assert set(rows) == {16} and len(rows) > 10


def test_experts_whose_scale_is_that_of_a_batch_are_refused():
    for kind, settings, missing in (
        (NVFP4MoE, {"activations": "nvfp4"}, "NVFP4MoE has no w13_input_scale.* pass input_scale"),
        (NVFP4Experts, {"activation_scale": 1.0}, "NVFP4Experts has no w13_input_scale"),
        (NVFP4SharedExpert, {"activation_scale": 0.01}, "no w13_input_scale.* pass input_scale"),
    ):
        layer = mixture(kind, **settings)
        x = torch.randn(3, 64)
        expected = call(layer, x)
        with pytest.raises(ValueError, match=missing):
            layer.batch_invariant()
        assert torch.equal(call(layer, x), expected)  # as before
        fixed = mixture(kind, **FIXED, activations="nvfp4").batch_invariant()
        with pytest.raises(ValueError, match=missing.split(".")[0]):
            fixed.load_state_dict(layer.state_dict())
        fixed.load_state_dict(mixture(kind, **FIXED).state_dict())
        assert call(fixed, x).shape == (3, 64)


def test_a_gpu_takes_few_tokens_for_each_expert():
    layer = mixture(**FIXED).batch_invariant(33)
    mapped = NVFP4MoE(
        EXPERTS, 64, 32, limit=7.0, expert_map=torch.arange(8) % 4 - 1, activations="bf16"
    )
    mapped.load_state_dict(layer.state_dict())
    mapped.batch_invariant(65)
    said = r"batch_invariant\({}\): {} tokens with 2 of {} experts each .* at most {}"
    with FakeTensorMode():
        x, weights = (torch.empty(3, size, device="cuda") for size in (64, TOPK))
        ids = torch.empty(3, TOPK, dtype=torch.int32, device="cuda")
        with pytest.raises(ValueError, match=said.format(33, 33, 4, 32)):
            layer._run_in_groups(x, weights, ids)
        with pytest.raises(ValueError, match=said.format(65, 65, 8, 64)):
            mapped._run_in_groups(x, weights, ids)


def test_experts_are_compiled_for_any_number_of_tokens():
    layer = mixture(**FIXED).batch_invariant(16)
    compiled = torch.compile(
        lambda x: call(layer, x), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for tokens in (3, 9, 16, 40):
        x = torch.randn(tokens, 64)
        assert torch.equal(compiled(x), call(layer, x))
