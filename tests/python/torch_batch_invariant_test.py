# SPDX-License-Identifier: Apache-2.0
"""A layer whose tokens do not depend on their batch."""

import copy
import io
import math

import pytest
import torch
from torch import nn

from cukiln.torch import NVFP4Linear
from torch_layers_support import bf16_linear, cosine


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
