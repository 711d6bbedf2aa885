"""The layers on the CPU: beside emulation and bf16, from checkpoints, moved, copied and saved."""

import copy
import io
import math

import numpy as np
import pytest
import torch
from torch import nn

import cukiln.torch as ct
from cukiln.torch import NVFP4Linear, NVFP4MoE, NVFP4SharedExpert, quantize_
from nvfp4_emulation import Quantized, bf16, swiglu


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)


def numbers(tensor):
    return tensor.detach().float().numpy()


def cosine(given, expected):
    flat = [tensor.double().flatten() for tensor in (given, expected)]
    return torch.cosine_similarity(*flat, dim=0).item()


def bf16_linear(in_features, out_features, bias=False):
    return nn.Linear(in_features, out_features, bias, dtype=torch.bfloat16)


def decode_of(amax):
    return np.float32(amax) / np.float32(2688)


def modelopt(weight):
    """The tensors of a linear layer as ModelOpt exports them: block scales row by row."""
    x = numbers(weight)
    decode = decode_of(np.abs(x).max())
    matrix = Quantized(x, np.array([1 / decode, decode], np.float32))
    scales = torch.from_numpy(matrix.scales).view(torch.float8_e4m3fn)
    codes = torch.from_numpy(matrix.codes[:, 0::2] | matrix.codes[:, 1::2] << 4)
    tensors = {"weight": codes, "weight_scale": scales, "weight_scale_2": torch.tensor(decode)}
    return tensors, matrix.numbers()


def emulated_linear(x, weight, input_scale=None, bias=0.0):
    gsa = None if input_scale is None else np.array([1 / input_scale, input_scale], np.float32)
    return bf16(Quantized(numbers(x), gsa).numbers() @ weight.T + bias)


class Mlp(nn.Module):
    """What a shared expert, or one of many, is in bf16."""

    def __init__(self, hidden=64, width=32, limit=math.inf):
        super().__init__()
        self.gate_proj = bf16_linear(hidden, width)
        self.up_proj = bf16_linear(hidden, width)
        self.down_proj = bf16_linear(width, hidden)
        self.limit = limit

    def forward(self, x):
        gate = self.gate_proj(x).float().clamp(max=self.limit)
        up = self.up_proj(x).float().clamp(-self.limit, self.limit)
        return self.down_proj((nn.functional.silu(gate) * up).to(x.dtype))

    def emulated(self, x, activation_decode, alpha=1.0, beta=0.0):
        """In NVFP4: gate clamped before SiLU, SwiGLU rounded to bf16 once."""
        both = Quantized(numbers(torch.cat([self.gate_proj.weight, self.up_proj.weight])))
        down = Quantized(numbers(self.down_proj.weight))
        gate, up = np.split(Quantized(numbers(x)).numbers() @ both.numbers().T, 2, axis=1)
        y = swiglu(gate, up, self.limit, alpha, beta)
        gsa = np.array([1 / np.float32(activation_decode), activation_decode], np.float32)
        return Quantized(y, gsa).numbers() @ down.numbers().T


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
    layer = NVFP4MoE.from_linear(experts, limit=2.0)
    expected = np.zeros((6, 64))
    decode = decode_of(2.0 * 2.0)
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
        with pytest.raises(ValueError, match=r"topk_ids is .* int32 or int64 is expected"):
            layer(x, weights, given)
    with pytest.raises(ValueError, match="topk_weights on meta"):
        layer(x, weights.to("meta"), ids)
    with pytest.raises(RuntimeError, match=r"topk_weights is \[1, 1\].*\[2, 1\] is expected"):
        layer(x, weights[:1], ids)


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


# ---- Checkpoints


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

    assert quantize_(model, chosen) is model
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
        assert cosine(quantize_(model)(x), expected) > 0.95
    assert isinstance(model[0], NVFP4Linear)


# ---- Errors


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
    with pytest.raises(RuntimeError, match=rf"0\.{name} is {dtype}; torch\.\w+ is expected"):
        model.load_state_dict(
            {f"0.{key}": value for key, value in state.items()}
            | {f"0.{name}": state[name].view(torch.uint8).to(dtype)}
        )
    assert torch.equal(layer(x), before)


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
    with pytest.raises(ValueError, match="expert_map has 0 to 2; -1, for none, to 1 are expected"):
        NVFP4MoE(2, 64, 32, expert_map=torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"expert_map is .*float32"):
        NVFP4MoE(2, 64, 32, expert_map=torch.ones(2))
    with pytest.raises(ValueError, match=r"gate_proj of expert 1 is \(64, 64\); \(32, 64\)"):
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
