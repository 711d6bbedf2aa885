# SPDX-License-Identifier: Apache-2.0
"""Models of transformers: quantised on load, saved, loaded again, and loaded from checkpoints of
other tools; each a small model made here."""

import json
import math
import warnings
from pathlib import Path

import pytest
import torch
import transformers  # which scripts/bootstrap --all-tests fetches
from safetensors.torch import load_file, save_file

import cukiln.torch as ct
from cukiln.torch import NVFP4Experts, NVFP4Linear
from cukiln.torch.transformers import CukilnConfig, CukilnQuantizer, checkpoint_config
from torch_formats_test import compressed, mxfp4
from torch_layers_support import cosine, modelopt

SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
# All experts of a token: what is rounded moves none to another.
EXPERTS = {"num_experts_per_tok": 4}
MODELS = {
    "llama": ("Llama", {}),
    "mixtral": ("Mixtral", {**EXPERTS, "num_local_experts": 4}),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 64}),
    "deepseek_v3": (
        "DeepseekV3",
        {
            **EXPERTS,
            "n_routed_experts": 4,
            "moe_intermediate_size": 64,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
            "num_key_value_heads": 4,
            "q_lora_rank": 32,
            "kv_lora_rank": 32,
            "qk_rope_head_dim": 16,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
        },
    ),
    "gpt_oss": ("GptOss", {**EXPERTS, "num_local_experts": 4, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0}}),
}  # fmt: skip
MIXTURES = [name for name in MODELS if name != "llama"]
SHARED = {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)


def made(name):
    """A small model in bf16 with random weights."""
    kind, more = {**MODELS, "qwen2_moe": ("Qwen2Moe", {**EXPERTS, **SHARED, "num_experts": 4})}[
        name
    ]
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **more})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16).eval()
    for key, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            torch.nn.init.normal_(parameter, std=0.12)
        elif key.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.5)
    return model.requires_grad_(False)


def tokens():
    return torch.randint(2, 128, (2, 10))


def generated(model, ids, count=5):
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False
    )


def load(path, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(path, **options)


def kinds(model):
    return {type(m).__name__ for m in model.modules() if isinstance(m, ct._layer.Layer)}


def assert_close(model, expected, least):
    """Of logits along what the other model generates."""
    ids = generated(expected, tokens())
    assert cosine(model(ids).logits, expected(ids).logits) > least


@pytest.mark.parametrize("name", MODELS)
def test_quantised_on_load_saved_and_loaded_again(name, tmp_path):
    model = made(name)
    model.save_pretrained(tmp_path / "bf16")
    quantised = load(tmp_path / "bf16", quantization_config=CukilnConfig())
    assert kinds(quantised) == {"NVFP4Linear"} | ({"NVFP4Experts"} if name in MIXTURES else set())
    assert isinstance(quantised.lm_head, torch.nn.Linear)
    assert_close(quantised, model, 0.87)
    quantised.save_pretrained(tmp_path / "nvfp4")
    files = [sum(f.stat().st_size for f in (tmp_path / kind).glob("*.safetensors"))
             for kind in ("bf16", "nvfp4")]  # fmt: skip
    assert files[1] < 0.6 * files[0]
    ids = tokens()
    again = load(tmp_path / "nvfp4")
    assert kinds(again) == kinds(quantised)
    assert torch.equal(again(ids).logits, quantised(ids).logits)
    assert torch.equal(generated(again, ids), generated(quantised, ids))
    base = transformers.AutoModel.from_pretrained(tmp_path / "nvfp4")
    hidden = quantised.base_model(ids).last_hidden_state
    assert torch.equal(base(ids).last_hidden_state, hidden)
    again.save_pretrained(tmp_path / "twice")
    assert torch.equal(load(tmp_path / "twice")(ids).logits, again(ids).logits)


def test_gpt2s_conv1d_is_quantised_in_a_model_and_left_on_load(tmp_path):
    config = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=4, n_positions=64, vocab_size=128)
    model = transformers.GPT2LMHeadModel(config).to(torch.bfloat16).eval()
    model.save_pretrained(tmp_path)
    ids = tokens()
    with pytest.warns(UserWarning, match="replaced no layer"):
        loaded = load(tmp_path, quantization_config=CukilnConfig())
    assert kinds(loaded) == set()
    report = ct.quantize_(model, lambda name, _: name != "lm_head")
    assert report.replaced == tuple(
        f"transformer.h.0.{name}"
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    )
    assert cosine(model(ids).logits, loaded(ids).logits) > 0.99


def test_routers_stay_as_they_are(tmp_path):
    made("qwen2_moe").save_pretrained(tmp_path)
    model = load(tmp_path, quantization_config=CukilnConfig())
    assert type(model.model.layers[0].mlp.shared_expert_gate) is torch.nn.Linear
    assert type(model.model.layers[0].mlp.shared_expert.up_proj) is NVFP4Linear


def test_activations_are_kept_as_the_configuration_says(tmp_path):
    made("mixtral").save_pretrained(tmp_path / "bf16")
    ids = tokens()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no scale lacks: none is used
        config = CukilnConfig(activations="bf16")
        model = load(tmp_path / "bf16", quantization_config=config)
        model.save_pretrained(tmp_path / "nvfp4")
        again = load(tmp_path / "nvfp4")
    layers = [m for m in again.modules() if isinstance(m, ct._layer.Layer)]
    assert {layer.activations for layer in layers} == {"bf16"}
    assert torch.equal(again(ids).logits, model(ids).logits)
    other = load(tmp_path / "bf16", quantization_config=CukilnConfig())
    assert not torch.equal(other(ids).logits, model(ids).logits)
    with pytest.raises(ValueError, match="activations is 'fp8'; expected 'bf16', 'nvfp4' or None"):
        CukilnConfig(activations="fp8")


@pytest.mark.parametrize("word", ["activation", "module_to_not_convert", "ignore"])
def test_a_word_that_the_configuration_does_not_know_is_an_error(word, tmp_path):
    said = f"CukilnConfig has no {word}; expected modules_to_not_convert, for what others call"
    with pytest.raises(TypeError, match=said):
        CukilnConfig(**{word: "bf16"})
    made("llama").save_pretrained(tmp_path)
    with pytest.raises(TypeError, match=said):
        load(tmp_path, quantization_config={"quant_method": "cukiln", word: "bf16"})


def group(bits):
    both = {"input_activations": bits and {"num_bits": bits}, "weights": {"num_bits": 4}}
    return {"config_groups": {"group_0": both}}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        (group(4), None),
        (group(None), None),
        (group(8), "bf16"),
        ({"quant_algo": "W4A8_NVFP4_FP8"}, "bf16"),
        ({"quant_algo": "MIXED_PRECISION", "quantized_layers": {
            "model.layers.0.mlp.up_proj": {"quant_algo": "W4A8_NVFP4_FP8"}}}, "bf16"),
    ],
)  # fmt: skip
def test_inputs_of_8_bits_are_not_taken_for_nvfp4(quantization, expected, tmp_path):
    """ModelOpt's W4A8_NVFP4_FP8 has scales of inputs too, of FP8."""
    quantised_files(made("llama"), tmp_path, False, {**MODELOPT, **quantization})
    for config in ({}, {"config": checkpoint_config(tmp_path)}):
        layer = load(tmp_path, **config).model.layers[0].mlp.up_proj
        assert layer.activations == expected and layer.input_scale > 0
    asked = load(tmp_path, config=checkpoint_config(tmp_path, activations="nvfp4"))
    assert asked.model.layers[0].mlp.up_proj.activations == "nvfp4"


def test_tensors_of_other_shapes_under_the_names_of_buffers(tmp_path):
    """transformers compares shapes, and a global scale may be [1]."""
    model = made("llama")
    given = quantised_files(model, tmp_path, False, MODELOPT)
    ids = tokens()
    expected = load(tmp_path)(ids).logits
    tensors = {
        name: tensor.reshape(1) if name.endswith(("scale_2", "input_scale")) else tensor
        for name, tensor in given.items()
    }
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert torch.equal(load(tmp_path)(ids).logits, expected)


def test_what_is_named_stays_as_it_is(tmp_path):
    made("qwen3_moe").save_pretrained(tmp_path / "bf16")
    kept = ["lm_head", "model.layers.[0-9]+.self_attn"]
    config = CukilnConfig(modules_to_not_convert=kept)
    model = load(tmp_path / "bf16", quantization_config=config)
    assert kinds(model) == {"NVFP4Experts"}
    model.save_pretrained(tmp_path / "nvfp4")
    again = load(tmp_path / "nvfp4")
    assert kinds(again) == {"NVFP4Experts"}
    assert again.config.quantization_config.modules_to_not_convert == kept


# ---- Other tools' checkpoints


def quantised_files(model, path, tool, quantization, input_scales=True):
    """The model as a tool exports it: every matrix of its layers but routers and the output."""
    model.save_pretrained(path)
    file = Path(path) / "model.safetensors"
    tensors = {}
    for key, tensor in load_file(file).items():
        inside = ".layers." in key and tensor.dim() == 2 and key.endswith(".weight")
        if not inside or key.endswith(("gate.weight", "router.weight")):
            tensors[key] = tensor
            continue
        head = key.removesuffix("weight")
        one, _ = modelopt(tensor)
        if input_scales:
            one["input_scale"] = torch.tensor(8 / 2688)
        tensors |= {head + kind: t for kind, t in (compressed(one) if tool else one).items()}
    save_file(tensors, file, {"format": "pt"})
    write_config(path, quantization)
    return tensors


def write_config(path, quantization):
    file = Path(path) / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "quantization_config": quantization}))


MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
PLACES = {
    "mixtral": ("block_sparse_moe", ("w1", "w3", "w2")),
    "qwen3_moe": ("mlp", ("gate_proj", "up_proj", "down_proj")),
    "deepseek_v3": ("mlp", ("gate_proj", "up_proj", "down_proj")),
}


@pytest.mark.parametrize("name", ["llama", *PLACES])
@pytest.mark.parametrize("tool", ["modelopt", "compressed", "nvfp4a16"])
def test_a_checkpoint_of_another_tool(name, tool, tmp_path):
    model = made(name)
    theirs = tool != "modelopt"
    given = quantised_files(
        model, tmp_path, theirs, COMPRESSED if theirs else MODELOPT, tool != "nvfp4a16"
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*gate and up")  # they differ, at no loss
        config = {"config": checkpoint_config(tmp_path)} if theirs else {}
        loaded = load(tmp_path, **config)
    assert_close(loaded, model, 0.87)
    projection = loaded.model.layers[1].self_attn.o_proj
    assert isinstance(projection, NVFP4Linear)
    head = "model.layers.1.self_attn.o_proj."
    packed = given[head + ("weight_packed" if theirs else "weight")]
    assert torch.equal(projection.state_dict()["weight"], packed)
    assert bool(projection.input_scale > 0) == (tool != "nvfp4a16")
    assert projection.activations == ("bf16" if tool == "nvfp4a16" else None)
    if name in PLACES:
        place, names = PLACES[name]
        prefixes = [f"model.layers.1.{place}.experts.{index}." for index in range(4)]
        alone = NVFP4Experts.from_checkpoint(
            given, prefixes, names=names, activations=projection.activations
        )
        x = torch.randn(5, 64, dtype=torch.bfloat16)
        ids = torch.stack([torch.randperm(4)[:2] for _ in range(5)])
        weights = torch.rand(5, 2)
        experts = loaded.model.layers[1].mlp.experts
        assert torch.equal(experts(x, ids, weights), alone(x, ids, weights))
    loaded.save_pretrained(tmp_path / "saved")
    ids = tokens()
    assert torch.equal(load(tmp_path / "saved")(ids).logits, loaded(ids).logits)


def test_gpt_oss_in_mxfp4(tmp_path):
    model = made("gpt_oss")
    blocks = {}
    for index, layer in enumerate(model.model.layers):
        for name, shape in (("gate_up_proj", (128, 64)), ("down_proj", (64, 64))):
            each = [mxfp4(*shape, 121, 124) for _ in range(4)]
            numbers = torch.stack([torch.from_numpy(one[2]) for one in each]).bfloat16()
            getattr(layer.mlp.experts, name).copy_(numbers.transpose(1, 2))
            for part, kind in enumerate(("blocks", "scales")):
                key = f"model.layers.{index}.mlp.experts.{name}_{kind}"
                blocks[key] = torch.stack([one[part] for one in each])
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    rest = {k: t for k, t in load_file(file).items() if not k.endswith(("up_proj", "down_proj"))}
    save_file({**rest, **blocks}, file, {"format": "pt"})
    write_config(tmp_path, {"quant_method": "mxfp4"})
    loaded = load(tmp_path, config=checkpoint_config(tmp_path))
    assert kinds(loaded) == {"NVFP4Experts"}  # attention is bf16 in gpt-oss' checkpoints
    experts = loaded.model.layers[0].mlp.experts
    assert (experts.limit, experts.alpha, experts.beta) == (7.0, pytest.approx(1.702), 1.0)
    assert torch.equal(experts.w13_bias, model.model.layers[0].mlp.experts.gate_up_proj_bias)
    assert_close(loaded, model, 0.97)
    loaded.save_pretrained(tmp_path / "saved")
    ids = tokens()
    assert torch.equal(generated(load(tmp_path / "saved"), ids), generated(loaded, ids))


def test_gpt_oss_with_experts_by_name(tmp_path):
    model = made("gpt_oss")
    model.save_pretrained(tmp_path)
    file, tensors = tmp_path / "model.safetensors", {}
    for key, tensor in load_file(file).items():
        head, _, name = key.rpartition(".")
        if ".experts." not in key:
            tensors[key] = tensor
            continue
        for expert, one in enumerate(tensor):
            if name.startswith("down_proj"):
                parts = {"down_proj": one}
            else:
                parts = {"gate_proj": one[..., 0::2], "up_proj": one[..., 1::2]}
            for projection, part in parts.items():
                path = f"{head}.{expert}.{projection}."
                if name.endswith("bias"):
                    tensors[path + "bias"] = part.contiguous()
                else:
                    both = modelopt(part.T.contiguous())[0]
                    tensors |= {path + kind: t for kind, t in compressed(both).items()}
    save_file(tensors, file, {"format": "pt"})
    write_config(tmp_path, COMPRESSED)
    with pytest.warns(UserWarning, match="gate and up have different weight_scale_2"):
        loaded = load(tmp_path, config=checkpoint_config(tmp_path))
    assert_close(loaded, model, 0.87)


def test_what_cannot_be_loaded_is_named(tmp_path):
    given = quantised_files(made("llama"), tmp_path, False, MODELOPT)
    file = tmp_path / "model.safetensors"
    head = "model.layers.0.mlp.up_proj"

    def refused(match, tensors, **options):
        save_file(tensors, file, {"format": "pt"})
        with pytest.raises(ValueError, match=match):
            load(tmp_path, **options)

    smoothed = {**given, f"{head}.pre_quant_scale": torch.ones(64)}
    refused(rf"{head}\.pre_quant_scale scales the input", smoothed)
    refused(rf"{head} has g_idx, which", {**given, f"{head}.g_idx": torch.ones(64)})
    fp8 = {k: t for k, t in given.items() if k != f"{head}.weight_scale_2"}
    refused(rf"{head} has .*weight_scale: it is quantised in another format than NVFP4", fp8)
    wrong = {**given, f"{head}.weight_scale_2": torch.tensor(math.nan)}
    refused(rf"{head}: weight_scale_2 is nan; expected 0 or more", wrong)
    theirs = {k: t for k, t in given.items() if not k.startswith(head)}
    for kind, tensor in compressed(modelopt(torch.randn(64, 64))[0]).items():
        theirs[f"{head}.{kind}"] = tensor[:8] if kind == "weight_packed" else tensor
    refused(rf"(?s){head}: .*size mismatch for weight", theirs)

    made("llama").save_pretrained(tmp_path / "bf16")
    with pytest.raises(ValueError, match="has no layer in NVFP4 or MXFP4"):
        load(tmp_path / "bf16", config=checkpoint_config(tmp_path / "bf16"))
    for loaded in (False, True):
        quantizer = CukilnQuantizer(CukilnConfig(), pre_quantized=loaded)
        with pytest.raises(ValueError, match="device_map has 'disk'"):
            quantizer.validate_environment(device_map={"model": "cpu", "lm_head": "disk"})
    quantizer.validate_environment(device_map="auto")
    with pytest.raises(ValueError, match="is quantised on one device"):
        CukilnQuantizer(CukilnConfig(), pre_quantized=False).validate_environment("auto")


def test_nothing_is_registered_without_this_module():
    from conftest import in_another_process

    code = (
        "import cukiln.torch, sys; assert 'transformers' not in sys.modules\n"
        "from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING as known\n"
        "assert 'cukiln' not in known\n"
        "import cukiln.torch.transformers\n"
        "print('cukiln' in known)"
    )
    assert in_another_process(code) == "True"
