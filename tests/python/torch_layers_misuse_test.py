# SPDX-License-Identifier: Apache-2.0
"""What could make a layer compute with other weights or scales than it shows: right, or an error."""

import copy
import math
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from cukiln.torch import (
    NVFP4Linear,
    NVFP4MoE,
    NVFP4SharedExpert,
    NVFP4TrainableLinear,
    quantize_,
)
from torch_layers_support import Mlp, bf16_linear, cosine, decode_of
from torch_support import matrix


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)
    torch._dynamo.reset()


# ---- Buffers that are replaced or written


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("out_features", [16, 13])
def test_weights_written_in_place_count(bias, out_features):
    layer = NVFP4Linear.from_linear(bf16_linear(64, out_features, bias))
    x = torch.randn(2, 64)
    if bias:
        before = layer(x)
        layer.bias += 4
        torch.testing.assert_close(layer(x), before + 4, rtol=0.02, atol=0.02)
        layer.bias.zero_()
    layer.weight.zero_()
    assert not layer(x).any()


def replaced(layer, name):
    setattr(layer, name, torch.zeros_like(getattr(layer, name)))


def replaced_data(layer, name):
    getattr(layer, name).data = torch.zeros_like(getattr(layer, name))


def written(layer, name):
    getattr(layer, name).fill_(0.5)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (replaced, "weight"),
        (replaced, "bias"),
        (replaced_data, "weight"),
        (replaced_data, "weight_scale"),
        (replaced_data, "bias"),
        (written, "input_scale"),
        (written, "weight_scale_2"),
    ],
)
def test_what_a_runner_would_not_notice_is_an_error(change, name):
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16, True), input_scale=0.01)
    x = torch.randn(2, 64)
    state, expected = copy.deepcopy(layer.state_dict()), layer(x)
    with pytest.raises(RuntimeError, match="NVFP4Linear was replaced.*load_state_dict"):
        change(layer, name)
        layer(x)
    layer.load_state_dict(state)
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("name", ["w13_weight", "w2_weight_scale", "w2_input_scale"])
def test_the_same_of_experts(name):
    change = replaced_data if name in ("w13_weight", "w2_weight_scale") else written
    for layer in (
        NVFP4SharedExpert.from_linear([Mlp()]),
        NVFP4SharedExpert.from_linear([Mlp()], activation_scale=0.01),
    ):
        change(layer, name)
        with pytest.raises(RuntimeError, match="NVFP4SharedExpert was replaced"):
            layer(torch.randn(2, 64))


def test_a_scale_of_a_layer_made_in_inference_mode_is_no_less_watched():
    with torch.inference_mode():
        layer = NVFP4Linear.from_linear(bf16_linear(64, 32), input_scale=0.01)
        x = torch.randn(3, 64, dtype=torch.bfloat16)
        layer(x)
        layer.weight_scale_2.fill_(0.0)
        with pytest.raises(RuntimeError, match="a scale written"):
            layer(x)


def test_a_frozen_layer_in_a_ddp_model_which_broadcasts_its_buffers(tmp_path):
    frozen = NVFP4Linear.from_linear(bf16_linear(64, 64, True), input_scale=0.01)
    model = nn.Sequential(frozen, bf16_linear(64, 8))
    x = torch.randn(2, 64, dtype=torch.bfloat16)
    expected, version = model(x), frozen.weight_scale_2._version
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1
    )
    try:
        parallel = nn.parallel.DistributedDataParallel(model)
        for _ in range(2):
            y = parallel(x)
            assert torch.equal(y, expected)
            y.sum().backward()
        assert frozen.weight_scale_2._version > version
        frozen.weight_scale_2 *= 2
        with pytest.raises(RuntimeError, match="a scale written"):
            parallel(x)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["w13_weight_scale_2", "w2_weight_scale_2"])
def test_scales_of_experts_that_were_written_count(name):
    layer = NVFP4SharedExpert.from_linear([Mlp()])
    x = torch.randn(2, 64)
    before = layer(x)
    written(layer, name)
    assert not torch.equal(layer(x), before)
    fresh = NVFP4SharedExpert(64, layer.width)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), layer(x))


def test_functional_call_with_other_buffers_is_an_error():
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    x = torch.randn(2, 64)
    expected = layer(x)
    same = dict(layer.named_buffers())
    other = {name: torch.zeros_like(buffer) for name, buffer in same.items()}
    assert torch.equal(torch.func.functional_call(layer, same, x), expected)
    with pytest.raises(RuntimeError, match="a buffer of this NVFP4Linear was replaced"):
        torch.func.functional_call(layer, other, x)
    stacked = {name: torch.stack([buffer, buffer]) for name, buffer in same.items()}
    with pytest.raises(RuntimeError, match="a buffer of this NVFP4Linear was replaced"):
        torch.vmap(lambda buffers: torch.func.functional_call(layer, buffers, x))(stacked)
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_functions_of_its_buffers_are_traced(mode):
    layer, x = NVFP4Linear.from_linear(bf16_linear(64, 16)), torch.randn(2, 64)
    buffers = dict(layer.named_buffers())

    def function(buffers, x):
        return torch.func.functional_call(layer, buffers, x)

    assert torch.equal(make_fx(function, tracing_mode=mode)(buffers, x)(buffers, x), layer(x))


def test_shapes_are_found_without_values():
    from torch._subclasses import FakeTensorMode

    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    assert layer(torch.empty(2, 64, device="meta")).shape == (2, 16)
    x, expected = torch.randn(2, 64), layer(torch.zeros(2, 64))
    with torch.device("meta"):
        layer.half()
    assert torch.equal(layer(torch.zeros_like(x)), expected)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert layer(torch.randn(2, 64)).shape == (2, 16)
        NVFP4Linear(64, 32).half()


def test_part_of_a_state_dict_counts():
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16, True))
    x = torch.randn(2, 64)
    expected = NVFP4Linear.from_checkpoint(
        **{**layer.state_dict(), "input_scale": torch.tensor(0.5), "bias": torch.ones(16)}
    )(x)
    part = {"input_scale": torch.tensor(0.5), "bias": torch.ones(16)}
    layer.load_state_dict(part, strict=False)
    assert torch.equal(layer(x), expected)
    number = layer.runner_id
    layer.load_state_dict({}, strict=False)
    assert layer.runner_id == number


@pytest.mark.parametrize("whole", [False, True])
def test_to_empty_makes_a_layer_empty(whole):
    layers = (
        NVFP4Linear.from_linear(nn.Linear(40, 13), input_scale=0.5),
        NVFP4SharedExpert.from_linear([Mlp()]),
    )
    for layer in layers:
        x = torch.randn(3, 40 if isinstance(layer, NVFP4Linear) else 64)
        state, expected = copy.deepcopy(layer.state_dict()), layer(x)
        (nn.Sequential(layer) if whole else layer).to_empty(device="cpu")
        assert layer.runner_id == -1 and layer.fingerprint == 0
        with pytest.raises(RuntimeError, match="no weights yet"):
            layer(x)
        assert {name: tensor.shape for name, tensor in layer.state_dict().items()} == {
            name: tensor.shape for name, tensor in state.items()
        }
        for name in layer.optional:  # what a checkpoint may lack
            assert not getattr(layer, name).any()
        layer.load_state_dict(state)
        assert torch.equal(layer(x), expected)
    for change in (lambda m: m.to("cpu"), lambda m: m.half(), lambda m: m._apply(torch.clone)):
        assert torch.equal(change(layer)(x), expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [("activations", "bf16"), ("limit", 7.0), ("alpha", 2.0), ("beta", 1.0), ("interleaved", True)],
)
def test_a_setting_that_the_runner_does_not_know_of_is_refused(name, value):
    layers = [
        NVFP4MoE.from_linear([Mlp()], activation_scale=0.01),
        NVFP4SharedExpert.from_linear([Mlp()]),
        NVFP4Linear.from_linear(nn.Linear(64, 16)),
    ]
    for layer in layers if name == "activations" else layers[:2]:
        before = getattr(layer, name)
        with pytest.raises(RuntimeError, match=f"{name} of this NVFP4.* is set to .*runner comp"):
            setattr(layer, name, value)
        assert getattr(layer, name) == before
        setattr(layer, name, before)
        layer.to_empty(device="cpu")
        setattr(layer, name, value)
        assert getattr(layer, name) == value


def test_weights_of_topk_are_real():
    layer = NVFP4MoE.from_linear([Mlp()], activation_scale=0.01)
    ids = torch.zeros(2, 1, dtype=torch.int32)
    with pytest.raises(ValueError, match="topk_weights is torch.complex64; expected real numbers"):
        layer(torch.randn(2, 64), torch.ones(2, 1, dtype=torch.complex64), ids)


# ---- Weights and inputs of other dtypes


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.float8_e4m3fn])
def test_what_is_quantised_already_is_not_quantised_again(dtype):
    linear = nn.Linear(64, 16, bias=False)
    columns = 32 if dtype == torch.uint8 else 64
    linear.weight = nn.Parameter(torch.ones(16, columns).to(dtype), requires_grad=False)
    said = rf"weight is \(16, {columns}\) {dtype}; expected \(16, 64\) bfloat16.*filter"
    for make in (NVFP4Linear.from_linear, NVFP4TrainableLinear.from_linear):
        with pytest.raises(ValueError, match=said):
            make(linear)
    with pytest.raises(ValueError, match=f"0: {said}"):
        quantize_(nn.Sequential(linear))
    expert = Mlp()
    expert.down_proj.weight = nn.Parameter(torch.ones(64, 32).to(dtype), requires_grad=False)
    with pytest.raises(ValueError, match=rf"down_proj of expert 0 is \(64, 32\) {dtype}"):
        NVFP4MoE.from_linear([expert])
    stacked = torch.ones(2, 64, columns).to(dtype), torch.ones(2, columns, 32).to(dtype)
    with pytest.raises(ValueError, match=rf"gate_up_proj is \(2, 64, {columns}\) {dtype}"):
        NVFP4MoE.from_bf16(*stacked)


def test_a_weight_in_a_tensor_of_another_library_is_named():
    from torch.testing._internal.two_tensor import TwoTensor

    linear = nn.Linear(64, 16)
    linear.weight = nn.Parameter(TwoTensor(torch.ones(16, 64), torch.ones(16, 64)))
    with pytest.raises(ValueError, match="float32 in a TwoTensor; .* filter"):
        NVFP4Linear.from_linear(linear)


def test_experts_that_are_none_are_named():
    with pytest.raises(ValueError, match="expert 1, a Linear, is missing; expected an nn.Linea"):
        NVFP4MoE.from_linear([Mlp(), nn.Linear(64, 64)])
    with pytest.raises(ValueError, match="limit of expert 0, a Mlp, is a float; expected an nn"):
        NVFP4MoE.from_linear([Mlp()], names=("limit", "up_proj", "down_proj"))
    with pytest.raises(ValueError, match="experts is empty"):
        NVFP4MoE.from_linear([])
    with pytest.raises(ValueError, match="expert_map is given"):
        NVFP4SharedExpert(64, 32, expert_map=torch.tensor([0]))


def test_a_model_that_casts_to_the_weights_dtype_finds_the_filter_named():
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    x = torch.randn(2, 64)
    with pytest.raises(ValueError, match="torch.uint8;.*casts its input to weight.dtype.*filter"):
        layer(x.to(layer.weight.dtype))  # as T5 does
    with pytest.raises(ValueError) as error:
        layer(x.int())
    assert "filter" not in str(error.value)


@pytest.mark.parametrize("region", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_autocast_makes_the_dtype_that_it_makes_of_a_linear_layers(region, dtype):
    linear, x = nn.Linear(64, 16, dtype=dtype), torch.randn(2, 64, dtype=dtype)
    layers = (
        NVFP4Linear.from_linear(linear),
        NVFP4SharedExpert.from_linear([Mlp()]),
        NVFP4TrainableLinear.from_linear(nn.Linear(64, 32, dtype=dtype)),
    )
    with torch.autocast("cpu", dtype=region):
        expected = linear(x).dtype
        for layer in layers:
            assert layer(x).dtype == expected
        compiled = torch.compile(layers[0], backend="eager", fullgraph=True)
        assert compiled(x).dtype == expected
    assert compiled(x).dtype == layers[0](x).dtype == dtype


# ---- Activations between the products of experts


def routed(experts, x, weights, ids):
    outputs = torch.stack([expert(x).float() for expert in experts])
    chosen = outputs[ids, torch.arange(len(x))[:, None]]
    return (weights[..., None] * chosen).sum(1)


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.01, 1e-4])
def test_small_activations_of_a_shared_expert_are_not_lost(scale):
    mlp = Mlp(256, 256)
    x = torch.randn(16, 256, dtype=torch.bfloat16) * scale
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = NVFP4SharedExpert.from_linear([mlp])
        limited = NVFP4SharedExpert.from_linear([mlp], limit=10.0)
    assert cosine(layer(x), mlp(x)) > 0.96
    assert torch.equal(limited(x), layer(x))
    layer.calibrate(x)
    assert cosine(layer(x), mlp(x)) > 0.96 and layer.w2_input_scale > 0


def test_a_shared_expert_scales_by_the_largest_between_its_products():
    mlp = Mlp(64, 32, limit=2.0)
    x = torch.randn(6, 64, dtype=torch.bfloat16) * 4
    layer = NVFP4SharedExpert.from_linear([mlp], limit=2.0, alpha=1.7, beta=1.0)
    fixed = copy.deepcopy(layer)
    fixed.calibrate(x)
    expected = mlp.emulated(x, fixed.w2_input_scale.item(), 1.7, 1.0)
    assert cosine(layer(x), torch.from_numpy(expected)) > 0.9995


@pytest.mark.parametrize("scale", [0.1, 0.01])
def test_experts_without_a_scale_lose_no_small_activations_and_can_be_calibrated(scale):
    experts = [Mlp(256, 256) for _ in range(3)]
    x = torch.randn(16, 256, dtype=torch.bfloat16) * scale
    weights, ids = torch.rand(16, 2), torch.randint(0, 3, (16, 2))
    expected = routed(experts, x, weights, ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = NVFP4MoE.from_linear(experts)
    assert cosine(layer(x, weights, ids), expected) > 0.96
    found = layer.calibrate(x, ids)
    other = copy.deepcopy(layer)
    for each in (layer, other):
        assert cosine(each(x, weights, ids), expected) > 0.96
    assert layer.calibrate(x[:1], ids[:1]) == found  # it holds what was seen before
    assert layer.calibrate(2 * x, ids) > 1.5 * found


def test_without_a_scale_each_token_of_an_expert_has_its_own():
    layer = NVFP4SharedExpert.from_linear([Mlp(256, 256)], input_scale=8 / 2688)
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    x[1] *= 2.0**-8
    expected = layer(x)
    for row in range(4):
        assert torch.equal(layer(x[row]), expected[row])
    x[0] = math.nan
    assert torch.equal(layer(x)[1:], expected[1:])


def test_calibration_knows_the_map_of_experts_and_what_it_cannot_use():
    experts = [Mlp() for _ in range(2)]
    x = torch.randn(4, 64, dtype=torch.bfloat16)
    plain = NVFP4MoE.from_linear(experts, limit=9.0)
    mapped = NVFP4MoE.from_linear(experts, limit=9.0, expert_map=torch.tensor([-1, 1, 0]))
    ids = torch.tensor([[0, -1], [1, 1], [0, 1], [-1, 7]])
    there = torch.tensor([[2, 0], [1, 1], [2, 1], [0, 7]])
    assert plain.calibrate(x, ids) == mapped.calibrate(x, there)
    fresh = NVFP4MoE.from_linear(experts, limit=9.0)
    with pytest.raises(ValueError, match="tokens for which"):
        fresh.calibrate(x, torch.full((4, 1), 5))
    with pytest.raises(ValueError, match="tokens for which"):
        fresh.calibrate(x * math.nan, ids)
    assert not fresh.w2_input_scale


# ---- Training


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("fused", [False, True])
def test_a_backward_after_the_weight_has_changed_is_an_error_as_a_linear_layers_is(dtype, fused):
    layer = NVFP4TrainableLinear(64, 32, dtype=dtype, fuse_wgrad_accumulation=fused)
    layer.weight.main_grad = torch.zeros(32, 64)
    linear = nn.Linear(64, 32, dtype=torch.bfloat16)
    for each in (linear, layer):
        y = each(matrix(8, 64, 1).requires_grad_())
        with torch.no_grad():
            each.weight.neg_()
        each(matrix(8, 64, 2))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_backward_after_another_parameter_was_quantised_is_an_error():
    layer, other = NVFP4TrainableLinear(64, 32), NVFP4TrainableLinear(64, 32)
    y = layer(matrix(8, 64, 1).requires_grad_())
    assert layer.weight._version == other.weight._version
    layer.weight = other.weight
    layer(matrix(8, 64, 2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_backward_after_the_weight_was_freed_for_another_with_its_address_is_an_error():
    layer = NVFP4TrainableLinear(64, 32)
    values = [matrix(32, 64, seed) for seed in range(9)]
    layer.weight = nn.Parameter(values.pop(), requires_grad=False)  # with a gradient, y kept it
    freed, version = id(layer.weight), layer.weight._version
    y = layer(matrix(8, 64, 1).requires_grad_())
    layer.weight = None
    others = [nn.Parameter(value, requires_grad=False) for value in values]
    layer.weight = next(other for other in others if id(other) == freed)
    assert layer.weight._version == version
    layer(matrix(8, 64, 2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("swap", [False, True])
def test_a_layer_moves_and_is_copied_after_a_forward(swap):
    layer = NVFP4TrainableLinear(64, 32)
    layer(matrix(8, 64, 1).requires_grad_())
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        layer.float()
        layer.load_state_dict(NVFP4TrainableLinear(64, 32).state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        x = matrix(8, 64, 1)
        assert torch.equal(copied(x), layer(x))


def test_a_weight_that_is_quantised_again_unchanged_is_fine():
    layer = NVFP4TrainableLinear(64, 32)
    gradients = []
    for between in (lambda: None, lambda: layer(matrix(8, 64, 2))):
        x = matrix(8, 64, 1).requires_grad_()
        y = layer(x)
        between()
        y.sum().backward()
        gradients.append(x.grad)
    assert torch.equal(gradients[0], gradients[1])
    with torch.no_grad():
        layer.weight.neg_()  # after its backward, as optimizers do
    x = matrix(8, 64, 1).requires_grad_()
    layer(x).sum().backward()
    assert torch.equal(x.grad, -gradients[0])


@pytest.mark.parametrize("fused", [False, True])
def test_a_second_derivative_is_an_error(fused):
    layer = NVFP4TrainableLinear(64, 32, fuse_wgrad_accumulation=fused)
    layer.weight.main_grad = torch.zeros(32, 64)
    x = matrix(8, 64, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x).float().square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.float().sum().backward()


def test_input_scales_measured_by_calibration_are_loaded_not_written():
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    x = torch.randn(2, 64, dtype=torch.bfloat16)
    state = {**layer.state_dict(), "input_scale": torch.tensor(decode_of(8))}
    layer.load_state_dict(state)
    assert torch.equal(layer(x), NVFP4Linear.from_checkpoint(**state)(x))
