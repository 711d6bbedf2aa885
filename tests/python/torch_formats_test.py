# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of compressed-tensors and gpt-oss, gates and ups of different scales, and stacked
experts with biases."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import cukiln.torch as ct
from cukiln.torch import NVFP4Experts, NVFP4Linear, NVFP4MoE, _checkpoints
from nvfp4_emulation import E2M1, Quantized, dequantize, swiglu
from torch_layers_support import bf16_linear, cosine, decode_of, emulated_linear, modelopt, numbers

KINDS = ("weight", "weight_scale", "weight_scale_2")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)


def compressed(tensors):
    """ModelOpt's tensors as compressed-tensors has them."""
    names = {"weight_scale_2": "weight_global_scale", "input_scale": "input_global_scale"}
    return {
        names.get(name, "weight_packed" if name == "weight" else name): (
            1 / tensor.reshape(1) if name in names else tensor
        )
        for name, tensor in tensors.items()
    }


def matrix(rows, columns):
    """Tensors of a quantised matrix, and its numbers."""
    return modelopt(torch.randn(rows, columns).div(8).bfloat16())


def experts_of(count=3, hidden=64, width=32, activation_amax=4.0):
    """Tensors of experts, and for each the numbers of gate, up and down."""
    tensors, every = {}, []
    for index in range(count):
        every.append([])
        for name, shape in zip(
            ("gate_proj", "up_proj", "down_proj"),
            [(width, hidden)] * 2 + [(hidden, width)],
            strict=True,
        ):
            made, values = matrix(*shape)
            every[-1].append(values)
            for kind, tensor in made.items():
                tensors[f"{index}.{name}.{kind}"] = tensor
        tensors[f"{index}.down_proj.input_scale"] = torch.tensor(decode_of(activation_amax))
    return tensors, every


def routed(count=3, tokens=5, topk=2):
    x = torch.randn(tokens, 64, dtype=torch.bfloat16)
    ids = torch.stack([torch.randperm(count)[:topk] for _ in range(tokens)])
    return x, torch.rand(tokens, topk), ids


def emulated(
    x, weights, ids, experts, *, biases=None, global_scale=None, ratio=1.0, pairs=False, act=None
):
    """What the experts give, with numbers between the products that are 1 / ratio as large."""
    x, y = Quantized(numbers(x)).numbers(), np.zeros((len(x), x.shape[1]))
    limit, alpha, beta = act or (math.inf, 1.0, 0.0)
    for token, (shares, chosen) in enumerate(zip(weights.numpy(), ids.numpy(), strict=True)):
        for weight, expert in zip(shares, chosen, strict=True):
            gate, up, down = experts[expert]
            one = x[token : token + 1]
            gate, up = one @ gate.T, one @ up.T / ratio
            if biases is not None:
                both, last = (bias[expert].double().numpy() for bias in biases)
                own = (both[0::2], both[1::2]) if pairs else np.split(both, 2)
                gate, up = gate + own[0], up + own[1] / ratio
            between = (
                Quantized(swiglu(gate, up, limit, alpha, beta), global_scale).numbers() * ratio
            )
            part = between @ down.T
            y[token] += weight * (part if biases is None else part + last)[0]
    return torch.from_numpy(y)


def make_global_scale(amax):
    decode = decode_of(amax)
    return np.array([1 / decode, decode], np.float32)


def near(given, expected):
    return (given.double() - expected).abs().max() <= 2**-7 * expected.abs().max()


# ---- compressed-tensors


@pytest.mark.parametrize("activations", [True, False], ids=["nvfp4", "nvfp4a16"])
def test_a_layer_of_compressed_tensors_loads_by_every_way(activations):
    tensors, weight = matrix(24, 96)
    if activations:
        tensors["input_scale"] = torch.tensor(decode_of(7))
    x = torch.randn(4, 96, dtype=torch.bfloat16)
    expected = emulated_linear(x, weight, decode_of(7) if activations else None)
    theirs = compressed(tensors)
    loaded = NVFP4Linear(96, 24)
    loaded.load_state_dict(theirs)
    np.testing.assert_allclose(numbers(loaded(x)), expected, rtol=2**-7, atol=2e-3)
    assert set(theirs) >= {"weight_packed", "weight_global_scale"}  # the caller's, untouched
    assert set(loaded.state_dict()) == {*KINDS, "input_scale"}

    model = nn.Sequential(nn.Linear(96, 24, bias=False, device="meta"))
    ct.quantize_(model)
    model.load_state_dict({f"0.{name}": tensor for name, tensor in theirs.items()}, assign=True)
    assert torch.equal(model(x), loaded(x))

    ours = _checkpoints.AsModelOpt({f"a.{name}": tensor for name, tensor in theirs.items()})
    kinds = KINDS + (("input_scale",) if activations else ())
    assert sorted(ours) == sorted(f"a.{kind}" for kind in kinds)
    made = NVFP4Linear.from_checkpoint(*(ours.get(f"a.{kind}") for kind in kinds))
    assert torch.equal(made(x), loaded(x))

    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(
            ValueError, match=r"weight_global_scale is .* a positive, finite number"
        ):
            NVFP4Linear(96, 24).load_state_dict(
                {**theirs, "weight_global_scale": torch.tensor([wrong])}
            )


def test_block_scales_of_32_columns_count_twice():
    tensors, _ = matrix(24, 96)
    wide = tensors["weight_scale"].view(torch.uint8)[:, ::2].contiguous().view(torch.float8_e4m3fn)
    twice = wide.view(torch.uint8).repeat_interleave(2, 1).view(torch.float8_e4m3fn)
    x = torch.randn(4, 96, dtype=torch.bfloat16)
    expected = NVFP4Linear.from_checkpoint(**{**tensors, "weight_scale": twice})(x)
    given = {**tensors, "weight_scale": wide}
    assert torch.equal(NVFP4Linear.from_checkpoint(**given)(x), expected)
    for theirs in (given, compressed(given)):
        loaded = NVFP4Linear(96, 24)
        loaded.load_state_dict(theirs)
        assert torch.equal(loaded(x), expected)
    assert given["weight_scale"] is wide and wide.shape == (24, 3)

    tensors, _ = experts_of()
    expected, x = None, routed()
    for columns in (slice(None, None, 2), slice(None)):
        given = dict(tensors)
        for name in [name for name in tensors if name.endswith("weight_scale")]:
            wide = tensors[name].view(torch.uint8)[:, ::2]
            scales = wide if columns.step else wide.repeat_interleave(2, 1)
            given[name] = scales.contiguous().view(torch.float8_e4m3fn)
        y = NVFP4MoE.from_checkpoint(given, ["0.", "1.", "2."])(*x)
        assert expected is None or torch.equal(y, expected)
        expected = y


def test_a_layer_that_keeps_bf16_has_no_scale_of_inputs_in_its_state():
    tensors, _ = matrix(24, 96)
    layer = NVFP4Linear.from_checkpoint(**tensors, activations="bf16")
    state = layer.state_dict()
    assert set(state) == set(KINDS)
    x = torch.randn(4, 96, dtype=torch.bfloat16)
    again = NVFP4Linear(96, 24, activations="bf16")
    again.load_state_dict(state)
    assert torch.equal(again(x), layer(x))
    scaled = NVFP4Linear.from_checkpoint(**tensors, input_scale=0.5, activations="bf16")
    assert scaled.state_dict()["input_scale"] == 0.5


def test_an_inverse_scale_is_refused():
    tensors, _ = matrix(24, 96)
    wrong = 1 / tensors["weight_scale_2"]
    with pytest.raises(ValueError, match="looks like its inverse"):
        NVFP4Linear.from_checkpoint(tensors["weight"], tensors["weight_scale"], wrong)


def test_experts_of_compressed_tensors():
    tensors, _ = experts_of()
    theirs = {}
    for index in range(3):
        for name in ("gate_proj", "up_proj", "down_proj"):
            head = f"{index}.{name}."
            one = {k[len(head) :]: t for k, t in tensors.items() if k.startswith(head)}
            theirs |= {head + kind: tensor for kind, tensor in compressed(one).items()}
    x, weights, ids = routed()
    prefixes = ["0.", "1.", "2."]
    ours = NVFP4MoE.from_checkpoint(tensors, prefixes)(x, weights, ids)
    assert near(NVFP4MoE.from_checkpoint(theirs, prefixes)(x, weights, ids), ours.double())

    theirs["1.up_proj.pre_quant_scale"] = torch.ones(64)
    with pytest.raises(ValueError, match=r"1\.up_proj\.pre_quant_scale"):
        NVFP4MoE.from_checkpoint(theirs, prefixes)


# ---- Gate and up of different scales


def test_a_ratio_that_is_a_power_of_two_goes_into_block_scales():
    tensors, experts = experts_of()
    for index in range(3):
        common = tensors[f"{index}.gate_proj.weight_scale_2"]
        up, _ = modelopt(torch.from_numpy(experts[index][1]).float().bfloat16())
        # The same codes and block scales, under a fourth of gate's scale.
        tensors |= {f"{index}.up_proj.{kind}": up[kind] for kind in KINDS[:2]}
        tensors[f"{index}.up_proj.weight_scale_2"] = common / 4
        experts[index][1] = _checkpoints.dequantize(
            up["weight"], up["weight_scale"]
        ).double().numpy() * float(common / 4)
    x, weights, ids = routed()
    layer = NVFP4MoE.from_checkpoint(tensors, ["0.", "1.", "2."])
    expected = emulated(x, weights, ids, experts, global_scale=make_global_scale(4.0))
    assert near(layer(x, weights, ids), expected)


def test_another_ratio_goes_to_down():
    tensors, experts = experts_of(count=1)
    gate, up = (tensors[f"0.{name}.weight_scale_2"] for name in ("gate_proj", "up_proj"))
    tensors["0.up_proj.weight_scale_2"] = gate * 3
    experts[0][1] *= float(gate * 3 / up)
    x, weights, ids = routed(1, topk=1)
    layer = NVFP4MoE.from_checkpoint(tensors, ["0."])
    assert near(
        layer(x, weights, ids),
        emulated(x, weights, ids, experts, global_scale=make_global_scale(4.0), ratio=3.0),
    )
    # Less than gate's: what lies between is larger, and so is its scale.
    tensors["0.up_proj.weight_scale_2"] = gate / 3
    experts[0][1] /= 9
    layer = NVFP4MoE.from_checkpoint(tensors, ["0."])
    assert near(
        layer(x, weights, ids),
        emulated(
            x,
            weights,
            ids,
            experts,
            global_scale=make_global_scale(12.0),
            ratio=float(np.float32(1) / 3),
        ),
    )
    state = layer.state_dict()
    again = NVFP4MoE(1, 64, 32)
    again.load_state_dict(state)
    assert torch.equal(again(x, weights, ids), layer(x, weights, ids))

    engine = nn.Module()  # an inference engine's own layer, with a scale for each projection
    for part, names in (("w13", ("gate_proj", "up_proj")), ("w2", ("down_proj",))):
        for kind in KINDS:
            each = [tensors[f"0.{name}.{kind}"] for name in names]
            joined = torch.stack(each) if kind == "weight_scale_2" else torch.cat(each)
            setattr(engine, f"{part}_{kind}", joined[None])
    engine.w2_input_scale = tensors["0.down_proj.input_scale"]
    ct.process_weights_after_loading(engine)
    assert torch.equal(engine.nvfp4(x, weights, ids), layer(x, weights, ids))


@pytest.mark.parametrize("larger", ["gate_proj", "up_proj"])
def test_with_a_limit_one_is_quantised_again_with_a_warning(larger):
    tensors, experts = experts_of(count=1)
    act = (10.0, 1.0, 0.0)
    at = ["gate_proj", "up_proj"].index(larger)
    smaller = tensors[f"0.{['up_proj', 'gate_proj'][at]}.weight_scale_2"]
    given = tensors[f"0.{larger}.weight_scale_2"].clone()
    tensors[f"0.{larger}.weight_scale_2"] = smaller * 3
    experts[0][at] *= float(smaller * 3 / given)
    x, weights, ids = routed(1, topk=1)
    with pytest.warns(UserWarning, match=r"0\.gate_proj: gate and up have different .* calibrate"):
        layer = NVFP4MoE.from_checkpoint(tensors, ["0."], limit=10.0)
    expected = emulated(x, weights, ids, experts, global_scale=make_global_scale(4.0), act=act)
    assert cosine(layer(x, weights, ids), expected) > 0.99

    tensors[f"0.{larger}.weight_scale_2"] = smaller * 100
    with pytest.raises(ValueError, match="of a ratio of 64 at most"):
        NVFP4MoE.from_checkpoint(tensors, ["0."], limit=10.0)


# ---- gpt-oss


def mxfp4(rows, columns, low=110, high=124):
    """Blocks and exponents at random, and their numbers."""
    blocks = torch.randint(0, 256, (rows, columns // 32, 16), dtype=torch.uint8)
    scales = torch.randint(low, high, (rows, columns // 32), dtype=torch.uint8)
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(1).numpy()
    powers = np.repeat(2.0 ** (scales.numpy().astype(np.float64) - 127), 32, axis=1)
    return blocks, scales, np.where(codes & 8, -1, 1) * E2M1[codes & 7] * powers


def in_nvfp4(codes, scales, decode):
    unpacked = np.stack([codes.numpy() & 15, codes.numpy() >> 4], -1).reshape(len(codes), -1)
    return dequantize(unpacked, scales.view(torch.uint8).numpy(), float(decode))


def test_mxfp4_is_the_same_numbers_in_nvfp4(recwarn):
    for low, high in ((110, 124), (0, 18), (237, 255), (107, 125)):  # of 18 binades, the most
        blocks, scales, expected = mxfp4(40, 96, low, high)
        scales[0, 0], scales[1, 0] = low, high - 1
        blocks[2, 1], scales[2, 1] = 0x80, 254  # zeros may have any exponent
        expected = mxfp4_numbers(blocks, scales)
        assert np.array_equal(in_nvfp4(*_checkpoints.from_mxfp4("w", blocks, scales)), expected)
    zeros = torch.zeros(8, 2, 16, dtype=torch.uint8)
    made = _checkpoints.from_mxfp4("w", zeros, torch.full((8, 2), 254, dtype=torch.uint8))
    assert not in_nvfp4(*made).any()
    assert not recwarn.list

    with pytest.raises(ValueError, match=r"w_scales has NaN \(255\)"):
        _checkpoints.from_mxfp4("w", zeros, torch.full((8, 2), 255, dtype=torch.uint8))
    for wrong in (zeros[..., :8], zeros.int(), zeros[0]):
        with pytest.raises(ValueError, match=r"w_blocks is \("):
            _checkpoints.from_mxfp4("w", wrong, zeros[..., 0])


def mxfp4_numbers(blocks, scales):
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(1).numpy()
    powers = np.repeat(2.0 ** (scales.numpy().astype(np.float64) - 127), 32, axis=1)
    return np.where(codes & 8, -1, 1) * E2M1[codes & 7] * powers


def test_blocks_out_of_range_are_rounded_with_a_warning():
    blocks, scales, _ = mxfp4(16, 64, 120, 124)
    scales[0, 0], scales[3] = 123, torch.tensor([105, 98], dtype=torch.uint8)
    blocks[0, 0] = blocks[3] = torch.arange(16, dtype=torch.uint8) * 17
    with pytest.warns(UserWarning, match=r"w: 2 of 32 blocks are more than 17 binades below"):
        made = _checkpoints.from_mxfp4("w", blocks, scales)
    expected, given = mxfp4_numbers(blocks, scales), in_nvfp4(*made)
    step = 2.0 ** (123 - 127 - 17)  # the smallest scale
    assert np.array_equal(given[[0, 1, 2, *range(4, 16)]], expected[[0, 1, 2, *range(4, 16)]])
    assert np.abs(given[3] - expected[3]).max() == step / 4
    assert np.abs(given[3, :32]).max() == 3 * step and not given[3, 32:].any()


ACT = (7.0, 1.702, 1.0)


def gpt_oss(experts=3, hidden=64, width=32):
    tensors, values = {}, [[] for _ in range(experts)]
    for name, shape in (("gate_up_proj", (2 * width, hidden)), ("down_proj", (hidden, width))):
        blocks, scales, every = zip(*(mxfp4(*shape, 119, 124) for _ in range(experts)), strict=True)
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = (
            torch.stack(blocks),
            torch.stack(scales),
        )
        tensors[f"{name}_bias"] = torch.randn(experts, shape[0]).bfloat16()
        for own, matrix_ in zip(values, every, strict=True):
            own += [matrix_[0::2], matrix_[1::2]] if name == "gate_up_proj" else [matrix_]
    return tensors, values


def test_experts_of_gpt_oss():
    tensors, experts = gpt_oss()
    x, weights, ids = routed()
    layer = NVFP4Experts.from_mxfp4({f"e.{name}": t for name, t in tensors.items()}, "e.")
    biases = tensors["gate_up_proj_bias"], tensors["down_proj_bias"]
    assert isinstance(layer._runner, ct.MoeRunner)
    y = layer(x, ids, weights)
    exact = emulated(x, weights, ids, experts, biases=biases, pairs=True, act=ACT)
    assert cosine(y, exact) > 0.99  # each has an amax of its own between the products

    fixed = NVFP4Experts(3, 64, 32, bias=True, limit=7.0, alpha=1.702, beta=1.0, interleaved=True)
    state = layer.state_dict()
    state["w2_input_scale"] = torch.tensor(decode_of(50.0))
    fixed.load_state_dict(state)
    expected = emulated(
        x,
        weights,
        ids,
        experts,
        biases=biases,
        global_scale=make_global_scale(50.0),
        pairs=True,
        act=ACT,
    )
    assert near(fixed(x, ids, weights), expected)
    for other in (copy.deepcopy(fixed), torch.compile(fixed, backend="aot_eager", fullgraph=True)):
        assert torch.equal(other(x, ids, weights), fixed(x, ids, weights))
    outside = torch.where(ids == ids[0, 0], 3, ids)  # skipped
    kept = torch.where(ids == ids[0, 0], 0.0, weights)
    assert torch.equal(fixed(x, outside, weights), fixed(x, ids, kept))
    assert fixed(x[:0], ids[:0], weights[:0]).shape == (0, 64)

    number = fixed.runner_id
    del fixed, other
    torch._dynamo.reset()
    with pytest.raises(LookupError):
        ct.get_runner(number)

    with pytest.raises(KeyError, match=r"has no e\.gate_up_proj_blocks"):
        NVFP4Experts.from_mxfp4(tensors, "e.")
    with pytest.raises(ValueError, match=r"w2_bias is \(3, 8\); expected \(3, 64\)"):
        NVFP4Experts.from_mxfp4({**tensors, "down_proj_bias": torch.zeros(3, 8)})


def test_without_biases_gpt_oss_is_one_kernel_s_work():
    tensors, experts = gpt_oss()
    x, weights, ids = routed()
    bare = {name: tensor for name, tensor in tensors.items() if not name.endswith("bias")}
    layer = NVFP4Experts.from_mxfp4(bare)
    assert isinstance(layer._runner, ct.MoeRunner)
    assert cosine(layer(x, ids, weights), emulated(x, weights, ids, experts, act=ACT)) > 0.98


def test_experts_by_name_may_have_biases():
    tensors, experts = experts_of()
    biases = torch.randn(3, 64).bfloat16(), torch.randn(3, 64).bfloat16()
    for index in range(3):
        tensors[f"{index}.gate_proj.bias"] = biases[0][index, :32]
        tensors[f"{index}.up_proj.bias"] = biases[0][index, 32:]
        tensors[f"{index}.down_proj.bias"] = biases[1][index]
    prefixes = ["0.", "1.", "2."]
    with pytest.raises(ValueError, match=r"has 0\.gate_proj\.bias.*NVFP4Experts"):
        NVFP4MoE.from_checkpoint(tensors, prefixes)
    layer = NVFP4Experts.from_checkpoint(tensors, prefixes)
    x, weights, ids = routed()
    before = layer(x, ids, weights)
    assert cosine(before, emulated(x, weights, ids, experts, biases=biases)) > 0.98
    layer.interleave()
    assert torch.equal(layer(x, ids, weights), before)

    gate, up = (tensors[f"0.{name}.weight_scale_2"].clone() for name in ("gate_proj", "up_proj"))
    tensors["0.up_proj.weight_scale_2"] = gate * 3  # which goes to down, and to up's bias
    experts[0][1] *= float(gate * 3 / up)
    alone = NVFP4Experts.from_checkpoint(tensors, ["0."])
    zeros = torch.zeros(5, 1, dtype=torch.int64)
    expected = emulated(
        x,
        weights[:, :1],
        zeros,
        experts,
        biases=biases,
        global_scale=make_global_scale(4.0),
        ratio=3.0,
    )
    assert near(alone(x, zeros, weights[:, :1]), expected)
    del tensors["2.up_proj.bias"]
    with pytest.raises(ValueError, match="8 of 9 biases"):
        NVFP4Experts.from_checkpoint(tensors, prefixes)


def test_calibration_sees_biases():
    made = NVFP4Experts.from_bf16(torch.randn(3, 64, 64) / 64, torch.randn(3, 64, 32), limit=50.0)
    gate, up = torch.full((3, 32), 20.0), torch.full((3, 32), 30.0)
    layer = NVFP4Experts(3, 64, 32, bias=True, limit=50.0)
    biases = {"w13_bias": torch.cat([gate, up], 1), "w2_bias": torch.zeros(3, 64)}
    layer.load_state_dict(made.state_dict() | biases)
    x, _, ids = routed()
    without, scale = made.calibrate(x, ids), layer.calibrate(x, ids)
    assert without < decode_of(10) and decode_of(550) < scale < decode_of(650)


# ---- Stacked experts


class Stacked(nn.Module):
    """Experts as transformers 5 keeps them."""

    has_gate, has_post_expert_norm, _is_expert_parallel = True, False, False
    is_concatenated, is_transposed, has_bias = True, False, False

    def __init__(self, experts=3, hidden=64, width=32):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * width, hidden) / 8)
        self.down_proj = nn.Parameter(torch.randn(experts, hidden, width) / 8)

    def _apply_gate(self, gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        return nn.functional.silu(gate) * up

    def expert(self, x, index):
        return self._apply_gate(x @ self.gate_up_proj[index].T) @ self.down_proj[index].T

    def forward(self, x, ids, weights):
        y = torch.stack([self.expert(x, index) for index in range(len(self.down_proj))], 1)
        chosen = y.gather(1, ids[..., None].expand(-1, -1, y.shape[-1]))
        return (chosen * weights[..., None]).sum(1)


class GptOss(Stacked):
    is_concatenated, is_transposed, has_bias = False, True, True
    limit, alpha = 7.0, 1.702

    def __init__(self):
        super().__init__()
        for name in ("gate_up_proj", "down_proj"):
            weight = getattr(self, name)
            setattr(self, f"{name}_bias", nn.Parameter(torch.randn(weight.shape[:2])))
            setattr(self, name, nn.Parameter(weight.transpose(1, 2).contiguous()))

    def _apply_gate(self, gate_up):
        gate, up = gate_up[..., ::2].clamp(max=7), gate_up[..., 1::2].clamp(-7, 7)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)

    def expert(self, x, index):
        both = x @ self.gate_up_proj[index] + self.gate_up_proj_bias[index]
        return self._apply_gate(both) @ self.down_proj[index] + self.down_proj_bias[index]


class Model(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.first, self.experts = nn.Linear(64, 64), experts

    def forward(self, x, ids, weights):
        return self.experts(self.first(x), ids, weights)


@pytest.mark.parametrize("kind", [Stacked, GptOss])
def test_quantize_replaces_stacked_experts(kind):
    model = Model(kind()).requires_grad_(False)
    x, weights, ids = routed()
    x, expected = x.float(), model(x.float(), ids, weights)
    empty = copy.deepcopy(model).to("meta")
    ct.quantize_(empty)
    ct.quantize_(model)
    assert type(model.first) is NVFP4Linear and type(model.experts) is NVFP4Experts
    assert not list(model.parameters())
    y = model(x, ids, weights)
    assert cosine(y, expected) > 0.94
    empty.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(empty(x, ids, weights), y)

    kept = Model(kind())
    ct.quantize_(kept, lambda name, _: name != "experts")
    assert type(kept.experts) is kind


def test_experts_that_no_kernel_computes_are_left():
    model = Model(Stacked())
    model.experts._apply_gate = lambda both: nn.functional.gelu(both[:, ::2]) * both[:, 1::2]
    ct.quantize_(model)
    assert type(model.experts) is Stacked and type(model.first) is NVFP4Linear
    with pytest.raises(ValueError, match="Stacked is given, whose activation is no SwiGLU"):
        NVFP4Experts.from_module(model.experts)
    for name, value in (("has_gate", False), ("has_post_expert_norm", True)):
        other = Stacked()
        setattr(other, name, value)
        with pytest.raises(ValueError, match="a Stacked is given, whose experts"):
            NVFP4Experts.from_module(other)
    with pytest.raises(ValueError, match="a Linear is given, which has no stacked"):
        NVFP4Experts.from_module(bf16_linear(64, 32))


def test_moe_from_stacked_bf16():
    experts = Stacked()
    x, weights, ids = routed()
    layer = NVFP4MoE.from_bf16(
        experts.gate_up_proj, experts.down_proj, activation_scale=decode_of(4.0)
    )
    values = [
        [
            *np.split(Quantized(numbers(up.bfloat16())).numbers(), 2),
            Quantized(numbers(down.bfloat16())).numbers(),
        ]
        for up, down in zip(experts.gate_up_proj, experts.down_proj, strict=True)
    ]
    expected = emulated(x, weights, ids, values, global_scale=make_global_scale(4.0))
    assert near(layer(x, weights, ids), expected)
    with pytest.raises(
        ValueError, match=r"gate_up_proj is \(3, 64, 64\) and down_proj \(3, 32, 64\)"
    ):
        NVFP4MoE.from_bf16(experts.gate_up_proj, experts.down_proj.transpose(1, 2))
