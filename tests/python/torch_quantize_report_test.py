# SPDX-License-Identifier: Apache-2.0
"""What quantize_ reports: what it replaced, what it left and why."""

import warnings

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from cukiln.torch import NVFP4Linear, QuantizeReport, quantize_
from torch_layers_support import cosine


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(4, 64, 64))
        self.down_proj = nn.Parameter(torch.randn(4, 64, 32))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(64), nn.Linear(64, 4)
        self.first, self.second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64)
        self.conv = nn.Conv1d(1, 1, 3)
        self.encoder = nn.TransformerEncoderLayer(64, 2, 64)


def test_it_says_what_was_replaced_what_was_left_and_why():
    model = nn.Sequential(nn.Embedding(10, 64), Block())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = quantize_(model, lambda name, _: "router" not in name)
    assert isinstance(report, QuantizeReport)
    assert report.replaced == ("1.first", "1.second")
    assert report.replaced_parameters == 64 * 64 + 64 * 65
    assert report.parameters == parameters
    assert report.left == {
        "0.weight": "in a Embedding",
        "1.router.weight": "by the filter",
        "1.conv.weight": "in a Conv1d",
        "1.encoder.self_attn.in_proj_weight": "in a MultiheadAttention",
        "1.encoder.self_attn.out_proj.weight": "a subclass of nn.Linear",
        "1.encoder.linear1.weight": "its parent computes with the weight itself",
        "1.encoder.linear2.weight": "its parent computes with the weight itself",
    }
    text = str(report)
    share = report.replaced_parameters / parameters
    assert text.startswith(f"2 layers replaced: 8,256 of {parameters:,} parameters ({share:.1%})")
    assert "left, by the filter: 1.router.weight" in text


def test_experts_in_one_parameter_are_warned_of():
    model = nn.Sequential(nn.Linear(64, 64), *(Experts() for _ in range(4)))
    said = r"three dimensions .* 1\.gate_up_proj, 1\.down_proj, .* and 2 more\. NVFP4MoE"
    with pytest.warns(UserWarning, match=said) as caught:
        report = quantize_(model)
    assert caught[0].filename == __file__
    assert set(report.left.values()) == {"experts in one parameter"}
    assert report.replaced == ("0",)


def test_a_model_without_a_layer_to_replace_is_warned_of():
    class Conv1D(nn.Module):  # not that of transformers
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64))

    with pytest.warns(UserWarning, match=r"replaced no layer[^$]*in a Conv1D: 0\.weight"):
        report = quantize_(nn.Sequential(Conv1D()))
    assert report.replaced == () and report.replaced_parameters == 0
    with pytest.warns(UserWarning, match="replaced no layer"):
        quantize_(nn.Sequential(nn.Linear(64, 64)), lambda *_: False)


@pytest.mark.parametrize("size", [(64, 96), (64, 64)])
def test_a_conv1d_of_transformers_is_the_linear_layer_with_its_weight_transposed(size):
    conv = Conv1D(size[1], size[0])
    nn.init.normal_(conv.bias)
    linear = nn.Linear(*size)
    with torch.no_grad():
        linear.weight.copy_(conv.weight.t())
        linear.bias.copy_(conv.bias)
    x = torch.randn(8, size[0])
    exact = conv(x)
    assert torch.allclose(linear(x), exact, atol=1e-5)
    model = nn.Sequential(conv)
    report = quantize_(model)
    assert report.replaced == ("0",) and report.left == {}
    assert report.replaced_parameters == report.parameters == size[0] * size[1] + size[1]
    assert torch.equal(model(x), NVFP4Linear.from_linear(linear)(x))
    assert cosine(model(x), exact) > 0.99
    kept = nn.Sequential(Conv1D(64, 64))
    with pytest.warns(UserWarning, match="replaced no layer"):
        assert quantize_(kept, lambda *_: False).left == {"0.weight": "by the filter"}


def test_a_layer_in_two_places_counts_once():
    model = nn.Sequential(nn.Linear(64, 64, bias=False))
    model.append(model[0])
    report = quantize_(model)
    assert report.replaced == ("0", "1")
    assert report.replaced_parameters == report.parameters == 64 * 64
    assert isinstance(model[0], NVFP4Linear)


def test_hooks_of_a_forward_stay_and_their_handles_remove_them():
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 16))
    seen = []
    handles = [
        model[0].register_forward_pre_hook(lambda _, args: (args[0] * 0,)),
        model[0].register_forward_hook(lambda *_: seen.append("after"), always_call=True),
        model[1].register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(sorted(kwargs)), with_kwargs=True
        ),
    ]
    bias = model[0].bias.detach().bfloat16().float()
    quantize_(model)
    x = torch.randn(3, 64)
    assert torch.equal(model[0](x), bias.expand(3, 32)) and seen == ["after"]
    model(x)
    assert seen == ["after", "after", []]
    for handle in handles:
        handle.remove()
    assert not torch.equal(model[0](x), bias.expand(3, 32))
    model(x)
    assert seen == ["after", "after", []]


def test_a_module_that_computes_something_else_is_left():
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    model[0].forward = lambda x: 2 * x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated, and in models
        torch.nn.utils.weight_norm(model[1])
    torch.nn.utils.spectral_norm(model[2])
    report = quantize_(model)
    assert report.replaced == ("3",)
    computed = "its weight is computed from others"
    assert report.left == {
        "0.weight": "its forward was replaced",
        "1.weight_g": computed,
        "1.weight_v": computed,
        "2.weight_orig": computed,
    }
    assert model(torch.randn(2, 64)).shape == (2, 64)
