# SPDX-License-Identifier: Apache-2.0
"""The layers from checkpoints, and their state as one."""

import numpy as np
import pytest
import torch
from torch import nn

import cukiln.torch as ct
from cukiln.torch import NVFP4Linear, NVFP4MoE, NVFP4SharedExpert
from torch_layers_support import (
    Mlp,
    bf16_linear,
    cosine,
    decode_of,
    emulated_linear,
    modelopt,
    numbers,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)


def test_a_checkpoint_loads_by_every_way():
    tensors, weight = modelopt(torch.randn(24, 96).bfloat16())
    tensors["input_scale"] = torch.tensor(decode_of(7))
    x = torch.randn(4, 96, dtype=torch.bfloat16)
    expected = emulated_linear(x, weight, decode_of(7))

    made = NVFP4Linear.from_checkpoint(**tensors)
    np.testing.assert_allclose(numbers(made(x)), expected, rtol=2**-7, atol=1e-3)

    loaded = NVFP4Linear(96, 24)
    loaded.load_state_dict(tensors)
    assert torch.equal(loaded(x), made(x))

    copied = NVFP4Linear(96, 24)
    for name, tensor in tensors.items():
        getattr(copied, name).copy_(tensor)
    copied.process_weights_after_loading()
    copied.process_weights_after_loading()
    assert torch.equal(copied(x), made(x))

    unaligned = torch.empty(24 * 48 + 1, dtype=torch.uint8)[1:].view(24, 48)  # as in a mapped file
    other = NVFP4Linear.from_checkpoint(**{**tensors, "weight": unaligned.copy_(tensors["weight"])})
    unaligned.zero_()
    assert torch.equal(other(x), made(x))

    engine = nn.Module()  # an inference engine's own layer
    for name, tensor in tensors.items():
        engine.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
    ct.process_weights_after_loading(engine)
    assert torch.equal(engine.nvfp4(x), made(x))
    assert engine.runner_id == engine.nvfp4.runner_id
    assert not list(engine.parameters(recurse=False))


def test_without_an_input_scale_each_input_has_its_own():
    tensors, weight = modelopt(torch.randn(24, 96).bfloat16())
    x = torch.randn(4, 96, dtype=torch.bfloat16)
    layer = NVFP4Linear(96, 24)
    layer.load_state_dict(tensors)
    np.testing.assert_allclose(numbers(layer(x)), emulated_linear(x, weight), rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("features", [(96, 24), (40, 13), (256, 256)])
def test_a_state_dict_has_the_form_of_a_checkpoint(features):
    layer = NVFP4Linear.from_linear(nn.Linear(*features), input_scale=0.01)
    state = layer.state_dict()
    columns, rows = -(-features[0] // 16) * 16, features[1]
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "weight": (rows, columns // 2),
        "weight_scale": (rows, columns // 16),
        "weight_scale_2": (),
        "input_scale": (),
        "bias": (rows,),
    }
    assert state["weight_scale"].dtype == torch.float8_e4m3fn
    x = torch.randn(4, features[0])
    fresh = NVFP4Linear(*features, bias=True)
    fresh.load_state_dict(state)
    over = NVFP4Linear.from_linear(nn.Linear(*features))
    over.load_state_dict(state)
    for other in (fresh, over):
        assert torch.equal(other(x), layer(x))
        assert torch.equal(
            other.state_dict()["weight_scale"].view(torch.uint8),
            state["weight_scale"].view(torch.uint8),
        )


def test_an_incomplete_state_dict_is_refused_and_changes_nothing():
    layer = NVFP4Linear.from_linear(bf16_linear(64, 16))
    x = torch.randn(4, 64, dtype=torch.bfloat16)
    before = layer(x)
    state = layer.state_dict()
    del state["weight_scale"]
    with pytest.raises(RuntimeError, match="weight_scale"):
        layer.load_state_dict(state)
    assert torch.equal(layer(x), before)


def test_experts_load_from_a_checkpoint():
    experts = [Mlp() for _ in range(3)]
    tensors, prefixes = {}, []
    for index, expert in enumerate(experts):
        prefixes.append(f"mlp.experts.{index}.")
        both, _ = modelopt(torch.cat([expert.gate_proj.weight, expert.up_proj.weight]))
        down, _ = modelopt(expert.down_proj.weight)
        for half, name in enumerate(("gate_proj", "up_proj")):
            for kind in ("weight", "weight_scale"):
                tensors[f"{prefixes[-1]}{name}.{kind}"] = both[kind][32 * half :][:32]
            tensors[f"{prefixes[-1]}{name}.weight_scale_2"] = both["weight_scale_2"]
            tensors[f"{prefixes[-1]}{name}.input_scale"] = torch.tensor(decode_of(4 + index))
        for kind, tensor in down.items():
            tensors[f"{prefixes[-1]}down_proj.{kind}"] = tensor
        tensors[f"{prefixes[-1]}down_proj.input_scale"] = torch.tensor(decode_of(2 + index))
    layer = NVFP4MoE.from_checkpoint(tensors, prefixes)
    x = torch.randn(5, 64, dtype=torch.bfloat16)
    weights, ids = torch.rand(5, 2), torch.randint(0, 3, (5, 2))
    same = NVFP4MoE.from_linear(experts, input_scale=decode_of(6), activation_scale=decode_of(4))
    y = layer(x, weights, ids)
    assert cosine(y, same(x, weights, ids)) > 0.9999
    again = NVFP4MoE(3, 64, 32)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x, weights, ids), y)

    engine = nn.Module()  # an inference engine's own layer, with a scale for each projection
    for name, tensor in layer.state_dict().items():
        if name == "w13_weight_scale_2":
            tensor = tensor[:, None].expand(3, 2).clone()
        engine.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
    ct.process_weights_after_loading(engine)
    assert torch.equal(engine.nvfp4(x, weights, ids), y)
    assert engine.runner_id == engine.nvfp4.runner_id
    assert not list(engine.parameters(recurse=False))

    def changed(name, value):
        return NVFP4MoE.from_checkpoint({**tensors, f"{prefixes[1]}{name}": value}, prefixes)

    for name, value in (
        ("up_proj.weight", torch.randn(32, 64)),
        ("up_proj.weight", torch.zeros(16, 32, dtype=torch.uint8)),
        ("up_proj.weight_scale", torch.zeros(32, 4, dtype=torch.uint8)),
        ("down_proj.weight_scale", torch.zeros(64, 4).to(torch.float8_e4m3fn)),
        ("down_proj.weight_scale_2", torch.ones(2)),
    ):
        with pytest.raises(ValueError, match=rf"experts\.1\.{name} is \({value.shape[0]},"):
            changed(name, value)
    with pytest.raises(KeyError, match="of the first of 0 experts"):
        NVFP4MoE.from_checkpoint(tensors, [])

    shared = NVFP4SharedExpert.from_checkpoint(tensors, prefixes[:1])
    assert cosine(shared(x), experts[0](x)) > 0.95
    missing = f"{prefixes[1]}down_proj.weight"
    with pytest.raises(KeyError, match=r"mlp\.experts\.1\.down_proj\.weight"):
        NVFP4MoE.from_checkpoint({k: v for k, v in tensors.items() if k != missing}, prefixes)
    tensors[f"{prefixes[0]}up_proj.weight_scale_2"] = torch.tensor(1.0)
    with pytest.raises(ValueError, match="different weight_scale_2"):
        NVFP4MoE.from_checkpoint(tensors, prefixes)
