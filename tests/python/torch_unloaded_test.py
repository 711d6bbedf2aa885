# SPDX-License-Identifier: Apache-2.0
"""Weights that were never loaded, or in part: an error that names them, never random numbers.

fault 330
"""

import copy
import io

import pytest
import torch
from safetensors.torch import load_model, save_file
from torch import nn

import cukiln.torch as ct
from cukiln.torch import (
    NVFP4Experts,
    NVFP4Linear,
    NVFP4MoE,
    NVFP4SharedExpert,
    NVFP4TrainableLinear,
)
from torch_layers_support import Mlp, bf16_linear, modelopt


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)
    torch._dynamo.reset()


def linear(device=None):
    return NVFP4Linear(64, 16, True, device, activations="bf16")


def moe(device=None):
    experts = torch.tensor([0, -1, 1])
    return NVFP4MoE(2, 64, 32, activations="bf16", expert_map=experts, device=device)


def shared(device=None):
    return NVFP4SharedExpert(64, 32, activations="bf16", device=device)


def stacked(device=None):
    return NVFP4Experts(2, 64, 32, bias=True, activations="bf16", device=device)


EMPTY = [linear, moe, shared, stacked]


def full(make):
    """A state dict for what `make` makes."""
    if make is linear:
        return NVFP4Linear.from_linear(bf16_linear(64, 16, True), activations="bf16").state_dict()
    count = 1 if make is shared else 2
    state = NVFP4MoE.from_linear([Mlp() for _ in range(count)], activations="bf16").state_dict()
    if make is stacked:
        state["w13_bias"] = torch.randn(2, 64).bfloat16()
        state["w2_bias"] = torch.randn(2, 64).bfloat16()
    return state


def call(layer):
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    if isinstance(layer, NVFP4Linear | NVFP4SharedExpert):
        return layer(x)
    ids, weights = torch.tensor([[0], [1], [0]]), torch.ones(3, 1)
    return layer(x, ids, weights) if isinstance(layer, NVFP4Experts) else layer(x, weights, ids)


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def parts(make):
    return sorted(full(make))


@pytest.mark.parametrize("make", EMPTY)
def test_what_is_empty_has_no_random_numbers(make):
    junk = [torch.full((size,), 0.02) for size in (1, 2, 64, 256, 2048) for _ in range(8)]
    del junk
    layer = make()
    for name, buffer in layer.named_buffers():
        if name == "expert_map":
            continue
        if buffer.dtype == torch.uint8 or name in layer.optional:
            assert not buffer.any()
        else:
            assert buffer.float().isnan().all()
    layer.to_empty(device="cpu")
    for name, buffer in layer.named_buffers():
        if buffer.dtype == torch.uint8 or name in layer.optional:
            assert not buffer.any()
        elif name == "expert_map":
            assert buffer.tolist() == [0, -1, 1]  # no state dict has it
        else:
            assert buffer.float().isnan().all()


CASES = [(make, name) for make in EMPTY for name in parts(make)]


@pytest.mark.parametrize("device", [None, "meta", "emptied"])
@pytest.mark.parametrize(("make", "name"), CASES)
def test_the_first_call_names_what_a_state_dict_lacked(make, name, device):
    model = nn.ModuleDict({"inner": make("meta" if device else None)})
    if device == "emptied":
        model.to_empty(device="cpu")
    state = {f"inner.{key}": tensor for key, tensor in full(make).items()}
    lacking = {key: tensor for key, tensor in state.items() if key != f"inner.{name}"}
    assign = device == "meta"
    found = model.load_state_dict(lacking, strict=False, assign=assign)
    assert f"inner.{name}" in found.missing_keys
    for copied in (model, copy.deepcopy(model), saved(model)):
        with pytest.raises(
            RuntimeError, match=rf"no weights yet, nothing was loaded into inner\.{name}:"
        ):
            call(copied["inner"])
    with pytest.raises(RuntimeError, match=f"{name}:|is on meta"):
        model["inner"].process_weights_after_loading()
    rest = {f"inner.{name}": state[f"inner.{name}"]}  # as from the next file of a checkpoint
    model.load_state_dict(rest, strict=False, assign=assign)
    whole = nn.ModuleDict({"inner": make()})
    whole.load_state_dict(state)
    assert torch.equal(call(model["inner"]), call(whole["inner"]))


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("make", EMPTY)
def test_a_compiled_call_names_it_too(make, fullgraph):
    name = parts(make)[-1]
    layer = make()
    state = full(make)
    layer.load_state_dict({k: t for k, t in state.items() if k != name}, strict=False)
    compiled = torch.compile(layer, backend="eager", fullgraph=fullgraph)
    assert isinstance(layer.compile_unsupported_reason(), str)
    with pytest.raises(Exception, match=f"nothing was loaded into {name}:"):
        if make in (moe, stacked):
            x, ids, weights = (
                torch.randn(3, 64),
                torch.zeros(3, 1, dtype=torch.int32),
                torch.ones(3, 1),
            )
            compiled(x, *((ids, weights) if make is stacked else (weights, ids)))
        else:
            compiled(torch.randn(3, 64))
    layer.load_state_dict(state)
    assert layer.compile_unsupported_reason() is None


def test_a_file_that_lacks_a_tensor_is_no_model(tmp_path):
    model = nn.Sequential(linear())
    state = {f"0.{name}": tensor for name, tensor in full(linear).items()}
    del state["0.weight_scale"]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"0\.weight_scale"):
        load_model(model, tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"nothing was loaded into 0\.weight_scale:"):
        call(model[0])


def test_a_state_dict_of_another_model_names_every_tensor():
    model = nn.Sequential(linear())
    model.load_state_dict({"other.weight": torch.ones(1)}, strict=False)
    said = r"into 0\.weight, 0\.weight_scale, 0\.weight_scale_2, 0\.bias:"
    with pytest.raises(RuntimeError, match=said):
        call(model[0])


@pytest.mark.parametrize("name", parts(linear))
def test_a_loader_that_writes_in_place_and_leaves_one_out(name):
    layer, state = linear(), full(linear)
    for key, tensor in state.items():
        if key != name:
            getattr(layer, key).copy_(tensor)
    with pytest.raises(RuntimeError, match=f"nothing was loaded into {name}:"):
        layer.process_weights_after_loading()
    getattr(layer, name).copy_(state[name])
    with pytest.raises(RuntimeError, match="no weights yet.*process_weights_after_loading"):
        call(layer)
    layer.process_weights_after_loading()
    whole = linear()
    whole.load_state_dict(state)
    assert torch.equal(call(layer), call(whole))


def test_data_of_zeros_that_were_written_are_weights():
    state = full(linear)
    state["weight"].zero_()
    copied = linear()
    for key, tensor in state.items():
        getattr(copied, key).copy_(tensor)
    copied.process_weights_after_loading()
    loaded = linear()
    loaded.load_state_dict(state)
    made = NVFP4Linear.from_checkpoint(**state, activations="bf16")
    for layer in (copied, loaded, made):
        assert torch.equal(call(layer), state["bias"].expand(3, 16))


def test_a_load_that_failed_leaves_no_mixture():
    layer, other = linear(), full(linear)
    layer.load_state_dict(full(linear))
    other["weight_scale"] = other["weight_scale"][:8]
    with pytest.raises(RuntimeError, match="size mismatch for weight_scale"):
        layer.load_state_dict(other)
    with pytest.raises(RuntimeError, match="no weights yet"):
        call(layer)
    other["bias"], state = torch.zeros(3), full(linear)
    layer.load_state_dict(state)
    before = call(layer)
    with pytest.raises(RuntimeError, match="size mismatch for bias"):
        layer.load_state_dict({"bias": torch.zeros(3)}, strict=False)
    assert torch.equal(call(layer), before)


def test_block_scales_alone_are_in_the_form_of_a_checkpoint():
    layers = [NVFP4Linear.from_linear(bf16_linear(64, 128), activations="bf16") for _ in range(2)]
    states = [layer.state_dict() for layer in layers]  # 128 rows of 4 blocks, as the kernels have
    mixed = {**states[0], "weight_scale": states[1]["weight_scale"]}
    layers[0].load_state_dict({"weight_scale": states[1]["weight_scale"]}, strict=False)
    assert torch.equal(
        call(layers[0]), call(NVFP4Linear.from_checkpoint(**mixed, activations="bf16"))
    )


def test_a_workspace_is_empty_until_a_weight_is_quantised():
    layer = NVFP4TrainableLinear(64, 32)
    x = torch.randn(4, 64).bfloat16()
    assert (
        not layer._w_data.any() and not layer._wt_data.any() and layer._w_global_scale.isnan().all()
    )
    assert (layer._w_scales == 0x7F).all() and (layer._wt_scales == 0x7F).all()
    layer(x)
    layer.to(torch.float32)
    layer(x, is_first_microbatch=False)
    layer.to_empty(device="cpu")
    with pytest.raises(RuntimeError, match="no weight was quantised yet"):
        layer(x, is_first_microbatch=False)


def test_nan_in_the_scales_of_one_expert_names_it():
    tensors, state = {}, full(moe)
    for expert in range(2):
        for name, shape in (
            ("gate_proj", (32, 64)),
            ("up_proj", (32, 64)),
            ("down_proj", (64, 32)),
        ):
            one, _ = modelopt(torch.randn(*shape).bfloat16())
            tensors |= {f"e.{expert}.{name}.{kind}": tensor for kind, tensor in one.items()}
    bad = tensors["e.1.down_proj.weight_scale"]
    bad.view(torch.uint8)[7, 1] = 0x7F
    said = r"e\.1\.down_proj\.weight_scale has NaN or a negative number, in row 7 and block 1"
    with pytest.raises(ValueError, match=said):
        NVFP4MoE.from_checkpoint(tensors, ["e.0.", "e.1."])
    state["w2_weight_scale"].view(torch.uint8)[1, 7, 1] = 0x7F
    for load in (NVFP4MoE(2, 64, 32).load_state_dict, NVFP4MoE.from_stacked):
        with pytest.raises(ValueError, match="w2_weight_scale of expert 1 has NaN"):
            load(state)
    state = full(moe)
    state["w13_weight_scale_2"][1] = torch.nan
    with pytest.raises(ValueError, match="w13_weight_scale_2 of expert 1 is nan; expected 0 or"):
        NVFP4MoE(2, 64, 32).load_state_dict(state)
    engine = nn.Module()
    for name, tensor in full(moe).items():
        engine.register_buffer(name, None if name == "w2_weight_scale_2" else tensor)
    with pytest.raises(ValueError, match="has no w2_weight_scale_2"):
        ct.process_weights_after_loading(engine)
