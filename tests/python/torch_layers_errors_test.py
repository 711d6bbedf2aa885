# SPDX-License-Identifier: Apache-2.0
"""What the layers refuse, and what they say of it."""

import math

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import cukiln.torch as ct
from cukiln.torch import (
    NVFP4Linear,
    NVFP4MoE,
    NVFP4SharedExpert,
    NVFP4TrainableLinear,
    quantize_,
)
from torch_layers_support import Mlp, bf16_linear, modelopt


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)


def test_a_layer_without_weights_says_what_to_do():
    with pytest.raises(RuntimeError, match="process_weights_after_loading"):
        NVFP4Linear(64, 16)(torch.randn(1, 64))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused(bad):
    linear = bf16_linear(64, 16)
    with torch.no_grad():
        linear.weight[3, 5] = bad
    with pytest.raises(ValueError, match="NaN or infinities"):
        NVFP4Linear.from_linear(linear)
    with pytest.raises(ValueError, match=r"1\.head: a weight \(16, 64\) has NaN"):
        quantize_(nn.Sequential(nn.Linear(64, 64), nn.ModuleDict({"head": linear})))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.tensor(1.0), r"x is \(\)"),
        (torch.ones(2, 64, dtype=torch.int32), "int32"),
        (torch.ones(2, 64, dtype=torch.complex64), "complex64"),
        (torch.ones(2, 64).to(torch.float8_e4m3fn), "float8_e4m3fn"),
    ],
)
def test_an_input_that_is_no_matrix_of_numbers_is_refused(x, said):
    layers = (
        NVFP4Linear.from_linear(bf16_linear(64, 16)),
        NVFP4SharedExpert.from_linear([Mlp()]),
    )
    for layer in layers:
        with pytest.raises(ValueError, match=said):
            layer(x)


def test_a_backward_is_an_error_and_no_missing_gradient():
    layers = (
        NVFP4Linear.from_linear(bf16_linear(64, 16)),
        NVFP4SharedExpert.from_linear([Mlp()]),
    )
    for layer in layers:
        x = torch.randn(2, 64, requires_grad=True)
        y = layer(x)
        assert torch.equal(y, layer(x.detach()))
        with pytest.raises(RuntimeError, match=f"{type(layer).__name__} has no gradient"):
            y.sum().backward()


@pytest.mark.parametrize(
    "make",
    [
        lambda: NVFP4Linear.from_linear(bf16_linear(64, 64)),
        lambda: NVFP4SharedExpert.from_linear([Mlp()]),
        lambda: NVFP4TrainableLinear(64, 64),
    ],
)
def test_a_derivative_in_forward_mode_is_an_error_and_not_zero(make):
    torch._dynamo.reset()
    layer, x = make(), torch.randn(2, 64, dtype=torch.bfloat16)

    def tangent(f, x):
        return torch.func.jvp(f, (x,), (torch.ones_like(x),))[1]

    said = f"{type(layer).__name__} has no derivative in forward mode"
    with pytest.raises(RuntimeError, match=said):
        tangent(layer, x)
    with pytest.raises(RuntimeError, match=said):
        torch.func.jacfwd(layer)(x)
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match=said):
            layer(forward_ad.make_dual(x, torch.ones_like(x)))
        assert layer(x).shape == (2, 64)  # no tangent of x
    compiled = torch.compile(layer, backend="eager")
    with torch.no_grad():
        assert compiled(x).shape == (2, 64)
    for f in (compiled, torch.compile(lambda x: tangent(layer, x), backend="eager")):
        with pytest.raises(Exception, match=said):
            tangent(f, x) if f is compiled else f(x)


@pytest.mark.parametrize("scale", [math.nan, math.inf, -1.0])
def test_scales_that_cannot_be_are_refused(scale):
    tensors, _ = modelopt(torch.randn(16, 64).bfloat16())
    with pytest.raises(ValueError, match="weight_scale_2 is"):
        NVFP4Linear.from_checkpoint(**{**tensors, "weight_scale_2": torch.tensor(scale)})
    with pytest.raises(ValueError, match="input_scale is"):
        NVFP4Linear.from_checkpoint(**tensors, input_scale=scale)
    with pytest.raises(ValueError, match="w2_input_scale is"):
        NVFP4MoE.from_linear([Mlp()], activation_scale=scale)
    blocks = tensors["weight_scale"].float()
    blocks[3, 1] = scale if scale < 0 else math.nan
    with pytest.raises(ValueError, match="weight_scale has NaN or a negative number"):
        NVFP4Linear.from_checkpoint(**{**tensors, "weight_scale": blocks.to(torch.float8_e4m3fn)})


@pytest.mark.parametrize(
    ("name", "dtype"), [("weight", torch.float32), ("weight_scale", torch.uint8)]
)
def test_a_state_dict_is_not_converted(name, dtype):
    state = NVFP4Linear.from_linear(bf16_linear(64, 16)).state_dict()
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    x = torch.randn(2, 64)
    before = layer(x)
    model = nn.Sequential(layer)
    with pytest.raises(RuntimeError, match=rf"0\.{name} is {dtype}; expected torch\.\w+"):
        model.load_state_dict(
            {f"0.{key}": value for key, value in state.items()}
            | {f"0.{name}": state[name].view(torch.uint8).to(dtype)}
        )
    assert torch.equal(layer(x), before)


def test_the_inverse_of_a_scale_is_refused_for_inputs_too():
    said = "input_scale is 300.0; expected a decode scale, .* its inverse"
    with pytest.raises(ValueError, match=said):
        NVFP4Linear.from_linear(bf16_linear(64, 16), input_scale=300.0)
    with pytest.raises(ValueError, match=f"w13_{said}"):
        NVFP4MoE.from_linear([Mlp()], input_scale=300.0)
    NVFP4Linear.from_linear(bf16_linear(64, 16), input_scale=20.0)


@pytest.mark.parametrize("out_features", [16, 13])
def test_a_result_is_contiguous_and_a_layer_shows_how_it_keeps_activations(out_features):
    for activations, shown in (("bf16", "bf16"), ("nvfp4", "nvfp4"), (None, "nvfp4")):
        layer = NVFP4Linear.from_linear(bf16_linear(64, out_features), activations=activations)
        y = layer(torch.randn(2, 64))
        assert y.is_contiguous() and y.view(-1).shape == (2 * out_features,)
        assert f"activations={shown}, runner_id={layer.runner_id}" in repr(layer)
    assert "activations=bf16" in repr(NVFP4SharedExpert(64, 32, activations="bf16"))


def test_arguments_that_do_not_fit_are_refused():
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    with pytest.raises(ValueError, match=r"\(2, 60\).*64"):
        layer(torch.randn(2, 60))
    tensors, _ = modelopt(torch.randn(16, 64).bfloat16())
    with pytest.raises(ValueError, match="weight_scale is"):
        NVFP4Linear.from_checkpoint(**{**tensors, "weight_scale": tensors["weight_scale"][:8]})
    with pytest.raises(ValueError, match=r"weight is .*float32"):
        NVFP4Linear.from_checkpoint(**{**tensors, "weight": torch.randn(16, 64)})
    stacked = NVFP4MoE.from_linear([Mlp()]).state_dict()
    stacked["w2_weight_scale"] = stacked["w2_weight_scale"].float()
    with pytest.raises(ValueError, match=r"w2_weight_scale is .*float32"):
        NVFP4MoE.from_stacked(stacked)
    with pytest.raises(TypeError, match="a Conv1d is given"):
        NVFP4Linear.from_linear(nn.Conv1d(1, 1, 1))
    with pytest.raises(ValueError, match="out_features 0"):
        NVFP4Linear(64, 0)
    with pytest.raises(ValueError, match="max_tokens is -1"):
        layer.reserve(-1)
    with pytest.raises(ValueError, match="itself is a Linear"):
        quantize_(nn.Linear(64, 16))
    with pytest.raises(ValueError, match="width is 40"):
        NVFP4MoE(2, 64, 40)
    with pytest.raises(ValueError, match="experts is 0"):
        NVFP4MoE(0, 64, 32)
    with pytest.raises(ValueError, match="expert_map has 0 to 2; expected -1, for none, to 1"):
        NVFP4MoE(2, 64, 32, expert_map=torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"expert_map is .*float32"):
        NVFP4MoE(2, 64, 32, expert_map=torch.ones(2))
    said = r"gate_proj of expert 1 is \(64, 64\) .*; expected \(32, 64\)"
    with pytest.raises(ValueError, match=said):
        NVFP4MoE.from_linear([Mlp(), Mlp(64, 64)])
    with pytest.raises(ValueError, match="on meta"):
        NVFP4MoE.from_linear([Mlp().to("meta")])
    with pytest.raises(ValueError, match=r"weight is \(4,\)"):
        NVFP4Linear.from_checkpoint(torch.zeros(4, dtype=torch.uint8), torch.ones(1), torch.ones(1))
    engine = nn.Module()
    engine.weight = nn.Parameter(torch.zeros(4, 32, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(ValueError, match="Module has no weight_scale, weight_scale_2;"):
        ct.process_weights_after_loading(engine)
    with pytest.raises(ValueError, match="2 experts"):
        NVFP4SharedExpert.from_linear([Mlp(), Mlp()])
    biased = Mlp()
    biased.down_proj = bf16_linear(32, 64, bias=True)
    with pytest.raises(ValueError, match="down_proj has a bias"):
        NVFP4MoE.from_linear([biased])
