# SPDX-License-Identifier: Apache-2.0
"""Models of transformers whose checkpoints lack weights, or have what no layer takes: errors that
name them. And architectures that initialise, join or read the weights of their layers.

fault 330, fault 331
"""

import logging
import re

import pytest
import torch
import transformers  # which scripts/bootstrap --all-tests fetches
from safetensors.torch import load_file, save_file

from cukiln.torch import NVFP4Linear
from cukiln.torch._sources import reader_of_weight
from cukiln.torch.transformers import CukilnConfig, _is_router, checkpoint_config
from torch_formats_test import compressed
from torch_layers_support import modelopt
from torch_transformers_test import (
    COMPRESSED,
    MODELOPT,
    SIZES,
    kinds,
    load,
    made,
    quantised_files,
    tokens,
    write_config,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20250605)


def small(kind, head="ForCausalLM", config=None, **sizes):
    """A model in bf16 with random weights, of any architecture."""
    made_of = getattr(transformers, f"{config or kind}Config")(**sizes)
    model = getattr(transformers, kind + head)(made_of).to(torch.bfloat16).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2 and "conv" not in name:
            torch.nn.init.normal_(parameter, std=0.08)
    return model.requires_grad_(False)


def rewritten(path, change):
    """The checkpoint in a folder, with its tensors as `change` returns them."""
    file = path / "model.safetensors"
    tensors = {name: tensor.contiguous() for name, tensor in change(load_file(file)).items()}
    save_file(tensors, file, {"format": "pt"})


def without(path, part):
    rewritten(path, lambda given: {k: t for k, t in given.items() if part not in k})


def packed(head, weight):
    """llm-compressor's tensors of one matrix."""
    tensors = compressed(modelopt(weight)[0])
    return {f"{head}.{kind}": tensor for kind, tensor in tensors.items()}


class Reports(logging.Handler):
    def __enter__(self):
        self.text = ""
        logging.getLogger("transformers").addHandler(self)
        return self

    def emit(self, record):
        self.text += record.getMessage()

    def __exit__(self, *_):
        logging.getLogger("transformers").removeHandler(self)


# ---- Every matrix has its weights


@pytest.mark.parametrize("form", ["bf16", "modelopt", "compressed"])
@pytest.mark.parametrize(
    ("name", "part", "missing"),
    [
        ("llama", "layers.1.mlp.up_proj", "layers.1.mlp.up_proj.weight"),
        ("llama", "lm_head", "lm_head.weight"),
        ("llama", "embed_tokens", "embed_tokens.weight"),
        ("mixtral", "layers.1.mlp.experts", "layers.1.mlp.experts.gate_up_proj"),
        ("mixtral", "layers.1.mlp.gate.", "layers.1.mlp.gate.weight"),
    ],
)
def test_a_matrix_that_is_missing_is_named_and_not_random(name, part, missing, form, tmp_path):
    model = made(name)
    if form == "bf16":
        model.save_pretrained(tmp_path)
        options = {"quantization_config": CukilnConfig()}
    else:
        theirs = form == "compressed"
        quantised_files(model, tmp_path, theirs, COMPRESSED if theirs else MODELOPT)
        options = {"config": checkpoint_config(tmp_path)}
    load(tmp_path, **options)
    without(tmp_path, part.replace("mlp.experts", "block_sparse_moe.experts").replace(
        "mlp.gate.", "block_sparse_moe.gate."))  # fmt: skip
    with pytest.raises(ValueError, match=f"the checkpoint has no weights for .*{missing}.*random"):
        load(tmp_path, **options)


@pytest.mark.parametrize(
    ("name", "part", "said"),
    [
        ("llama", "layers.1.mlp.up_proj.weight_scale", "up_proj: the checkpoint has no weight_sc"),
        ("llama", "1.mlp.up_proj.weight_global_scale", "up_proj: the checkpoint has no weight_sc"),
        ("mixtral", "1.block_sparse_moe.experts.3.w2.weight_s", "has no 3.w2.weight_scale"),
    ],
)
def test_a_part_of_a_layer_that_is_missing_is_named(name, part, said, tmp_path):
    quantised_files(made(name), tmp_path, True, COMPRESSED)
    without(tmp_path, part)
    for _ in range(4):  # whatever is in the memory that transformers allocates
        with pytest.raises(ValueError, match=rf"layers\.1\.mlp\..*{said}"):
            load(tmp_path, config=checkpoint_config(tmp_path))


def test_what_is_no_matrix_is_reported_by_transformers(tmp_path):
    quantised_files(made("llama"), tmp_path, True, COMPRESSED)
    with Reports() as reports:
        load(tmp_path, config=checkpoint_config(tmp_path))
    assert not reports.text
    without(tmp_path, "layers.1.input_layernorm")
    rewritten(tmp_path, lambda given: {**given, "model.layers.1.mlp.other": torch.ones(1)})
    with Reports() as reports:
        load(tmp_path, config=checkpoint_config(tmp_path))
    for name in ("layers.1.input_layernorm.weight", "layers.1.mlp.other"):
        assert name in reports.text


# ---- Every quantised tensor has a layer that takes it


LLAMA4 = {
    **SIZES,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "intermediate_size_mlp": 96,
    "interleave_moe_layer_step": 1,
}
NEMOTRON = {
    **SIZES,
    "layers_block_type": ["mamba", "moe"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 96,
    "moe_shared_expert_intermediate_size": 96,
    "n_group": 1,
    "topk_group": 1,
}


def one_by_one(given):
    """Experts as llm-compressor unstacks them, and the matrices of other layers."""
    tensors = {}
    for name, tensor in given.items():
        head, _, last = name.rpartition(".")
        if ".experts." in name and tensor.dim() == 3:
            for expert, one in enumerate(tensor):
                both = {last: one}
                if last == "gate_up_proj":
                    both = dict(zip(("gate_proj", "up_proj"), one.chunk(2, -1), strict=True))
                for projection, weight in both.items():
                    matrix = weight.T.contiguous()
                    tensors |= packed(f"{head}.{expert}.{projection}", matrix)
        elif name.endswith("q_proj.weight") or ".experts." in name:
            tensors |= packed(head, tensor)
        else:
            tensors[name] = tensor
    return tensors


@pytest.mark.parametrize(
    ("kind", "config", "sizes", "said"),
    [
        ("Llama4", "Llama4Text", LLAMA4, r"0\.feed_forward\.experts, a Llama4TextExperts, is quan"),
        ("NemotronH", None, NEMOTRON, r"1\.mixer\.experts, a NemotronHExperts, is quan"),
    ],
)
def test_experts_that_no_layer_takes_are_an_error(kind, config, sizes, said, tmp_path):
    small(kind, config=config, **sizes).save_pretrained(tmp_path)
    rewritten(tmp_path, one_by_one)
    write_config(tmp_path, COMPRESSED)
    said = rf"{said}tised in the checkpoint in compressed-tensors' NVFP4, .*no layer .*0\..*packed"
    with pytest.raises(ValueError, match=said):
        getattr(transformers, f"{kind}ForCausalLM").from_pretrained(
            tmp_path, config=checkpoint_config(tmp_path)
        )


def test_tensors_of_no_module_are_an_error_unless_the_model_expects_them(tmp_path):
    given = quantised_files(made("deepseek_v3"), tmp_path, True, COMPRESSED)

    def loads_with(head):
        more = packed(head, torch.randn(64, 64).bfloat16())
        rewritten(tmp_path, lambda _: {**given, **more})
        load(tmp_path, config=checkpoint_config(tmp_path))

    loads_with("model.layers.61.mlp.up_proj")  # of a draft, which this class does not have
    for head in ("model.layers.2.mlp.up", "other.up", "model.layers.1.mlp.experts.4.up"):
        with pytest.raises(ValueError, match=rf"no layer that takes .*{head[-2:]}\w*\.weight_p"):
            loads_with(head)


def test_a_base_model_leaves_the_head_of_its_checkpoint(tmp_path):
    model = made("llama")
    quantised_files(model, tmp_path, True, COMPRESSED)
    without(tmp_path, "lm_head")
    head = packed("lm_head", model.lm_head.weight)
    rewritten(tmp_path, lambda given: {**given, **head})
    whole = load(tmp_path, config=checkpoint_config(tmp_path))
    base = transformers.AutoModel.from_pretrained(tmp_path, config=checkpoint_config(tmp_path))
    ids = tokens()
    assert torch.equal(base(ids).last_hidden_state, whole.model(ids).last_hidden_state)
    base.save_pretrained(tmp_path / "base")
    for at in (tmp_path, tmp_path / "base"):
        config = checkpoint_config(at)
        config.num_hidden_layers = 1
        with pytest.raises(ValueError, match=r"no layer that takes .*layers\.1\."):
            transformers.AutoModel.from_pretrained(at, config=config)


def test_a_format_that_is_not_supported_is_named(tmp_path):
    """As ModelOpt exports gpt-oss, and an embedding."""
    made("gpt_oss").save_pretrained(tmp_path)

    def stacked(given):
        tensors = {}
        for name, tensor in given.items():
            tensors[name] = tensor
            if ".experts." in name and tensor.dim() == 3:
                tensors[name] = torch.zeros(4, tensor.shape[1] // 2, tensor.shape[2]).byte()
                blocks = torch.ones(4, tensor.shape[1] // 16, tensor.shape[2])
                tensors[f"{name}_weight_scale"] = blocks.to(torch.float8_e4m3fn)
                tensors[f"{name}_weight_scale_2"] = torch.tensor(0.01)
                tensors[f"{name}_input_scale"] = torch.tensor(0.01)
            elif name.endswith("q_proj.weight"):
                head = name.removesuffix("weight")
                tensors |= {head + kind: t for kind, t in modelopt(tensor)[0].items()}
        return tensors

    rewritten(tmp_path, stacked)
    write_config(tmp_path, MODELOPT)
    said = (
        r"mlp\.experts, a GptOssExperts, is .* ModelOpt's form of stacked experts, .*_weight_scale"
    )
    with pytest.raises(ValueError, match=said):
        load(tmp_path)
    quantised_files(made("llama"), tmp_path, False, MODELOPT)
    embedding, _ = modelopt(torch.randn(128, 64).bfloat16())
    more = {f"model.embed_tokens.{kind}": tensor for kind, tensor in embedding.items()}
    rewritten(tmp_path, lambda given: {**given, **more})
    said = r"embed_tokens, a Embedding, is .* ModelOpt's NVFP4, and .* weight_scale, weight_scale_2"
    with pytest.raises(ValueError, match=said):
        load(tmp_path)


# ---- Architectures that initialise or join the weights of their layers


GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 128}
FALCON = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128}
MAMBA = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16}
MAMBA2 = {**MAMBA, "num_heads": 8, "head_dim": 16, "n_groups": 1}


@pytest.mark.parametrize(
    ("kind", "sizes", "layers"),
    [
        ("GPTBigCode", GPT, 8),
        ("ModernBertDecoder", {**SIZES, "cls_token_id": 1, "sep_token_id": 2}, 9),
        ("NanoChat", SIZES, 12),
        ("Mamba2", MAMBA2, 4),
        ("HrmText", SIZES, 32),
        ("GPT2", GPT, 0),
        ("Falcon", FALCON, 0),
    ],
)
def test_what_was_saved_is_loaded(kind, sizes, layers, tmp_path):
    model = small(kind, "LMHeadModel" if kind == "GPT2" else "ForCausalLM", **sizes)
    model.save_pretrained(tmp_path / "bf16")
    ids = tokens()
    config = CukilnConfig(activations="bf16")
    if not layers:
        with pytest.warns(UserWarning, match="replaced no layer"):
            quantised = type(model).from_pretrained(tmp_path / "bf16", quantization_config=config)
    else:
        quantised = type(model).from_pretrained(tmp_path / "bf16", quantization_config=config)
    assert kinds(quantised) == ({"NVFP4Linear"} if layers else set())
    given, at = quantised, tmp_path / "bf16"
    for name in ("once", "twice"):
        at = tmp_path / name
        given.save_pretrained(at)
        given = type(model).from_pretrained(at)
        assert kinds(given) == kinds(quantised)
        assert torch.equal(given(ids).logits, quantised(ids).logits)


# ---- Architectures that compute with the weights of their layers, and routers


@pytest.mark.parametrize(
    ("kind", "sizes", "said"),
    [
        ("Mamba", MAMBA, r"layers\.0\.mixer\.dt_proj cannot be in NVFP4: MambaMixer computes"),
        ("Rwkv", FALCON, r"blocks\.0\.attention\.output cannot be in NVFP4: RwkvModel computes"),
    ],
)
def test_a_weight_that_its_model_computes_with_is_refused_before_it_loads(
    kind, sizes, said, tmp_path
):
    sizes = {key: size for key, size in sizes.items() if key != "num_attention_heads"}
    model = small(kind, **sizes)
    model.save_pretrained(tmp_path)
    rewritten(tmp_path, lambda given: dict(list(given.items())[:1]))  # no weight is read
    with pytest.raises(ValueError, match=f"{said} with its weight itself.*modules_to_not_convert"):
        type(model).from_pretrained(tmp_path, quantization_config=CukilnConfig())
    model.save_pretrained(tmp_path)
    name = "dt_proj" if kind == "Mamba" else "attention.output"

    def quantised(given):
        chosen = {key: t for key, t in given.items() if key.endswith(f"{name}.weight")}
        rest = {key: t for key, t in given.items() if key not in chosen}
        for key, tensor in chosen.items():
            more = -tensor.shape[1] % 16
            padded = torch.nn.functional.pad(tensor, (0, more))
            rest |= packed(key.removesuffix(".weight"), padded)
        return rest

    rewritten(tmp_path, quantised)
    write_config(tmp_path, COMPRESSED)
    with pytest.raises(ValueError, match=f"{said} with its weight itself"):
        type(model).from_pretrained(tmp_path, config=checkpoint_config(tmp_path))


def test_what_its_model_computes_with_can_be_left(tmp_path):
    model = small("Mamba", **MAMBA)
    model.save_pretrained(tmp_path / "bf16")
    config = CukilnConfig(["lm_head", "dt_proj"], activations="bf16")
    options = {"quantization_config": config, "dtype": torch.bfloat16}
    quantised = type(model).from_pretrained(tmp_path / "bf16", **options)
    quantised.save_pretrained(tmp_path / "nvfp4")
    again, ids = type(model).from_pretrained(tmp_path / "nvfp4"), tokens()
    assert torch.equal(again(ids).logits, quantised(ids).logits)
    assert kinds(again) == {"NVFP4Linear"}


def test_code_that_knows_quantised_weights_or_trains_is_no_reader():
    class Knows(torch.nn.Module):
        def forward(self, x):
            if self.a.weight.dtype != torch.uint8:
                x = x.to(self.a.weight.dtype)
            return self.a(x)

    class Trains(torch.nn.Module):
        def _init_weights(self, module):
            self.a.weight.normal_()

        def forward(self, x):
            if self.training and x.requires_grad:
                return x @ self.a.weight
            return self.a(x.to(self.a.weight.device)) * self.a.weight.shape[0]

    class Reads(torch.nn.Module):
        def forward(self, x):
            if self.training:
                return self.a(x)
            elif isinstance(self.a.weight, torch.Tensor):
                return torch.nn.functional.linear(x, self.a.weight)

    class Casts(torch.nn.Module):
        def forward(self, x):
            return self.a(x.to(dtype=self.a.weight.dtype))

    for kind in (Knows, Trains, Reads, Casts):
        module = kind()
        module.a, module.b = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        model = torch.nn.Sequential(module)
        expected = kind.__name__ if kind in (Reads, Casts) else None
        assert reader_of_weight(model, "0.a") == expected
        assert reader_of_weight(model, "0.b") is None


MOE = {**SIZES, "num_experts": 4, "moe_intermediate_size": 64}
GEMMA4 = {
    **MOE,
    "enable_moe_block": True,
    "top_k_experts": 4,
    "hidden_size_per_layer_input": 0,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_kv_shared_layers": 0,
}
LONGCAT = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_layers": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_hidden_size": 96,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "head_dim": 16,
    "n_routed_experts": 4,
    "expert_ffn_hidden_size": 64,
    "moe_topk": 4,
    "zero_expert_num": 2,
}


@pytest.mark.parametrize(
    ("kind", "config", "sizes", "router"),
    [
        ("HunYuanMoEV1", None, {**MOE, "moe_topk": 4}, r"layers\.0\.mlp\.gate\.wg"),
        ("Gemma4", "Gemma4Text", GEMMA4, r"layers\.0\.router\.proj"),
        ("JetMoe", None, {**SIZES, "num_local_experts": 4, "kv_channels": 16}, r"router\.layer"),
        ("LongcatFlash", None, LONGCAT, r"layers\.0\.mlp\.router\.classifier"),
    ],
)
@pytest.mark.filterwarnings("ignore:quantize_")
def test_routers_of_any_name_stay_as_they_are(kind, config, sizes, router, tmp_path):
    model = small(kind, config=config, **sizes)
    model.save_pretrained(tmp_path)
    quantised = type(model).from_pretrained(tmp_path, quantization_config=CukilnConfig())
    found = {name: module for name, module in quantised.named_modules() if re.search(router, name)}
    assert found and all(type(module) is torch.nn.Linear for module in found.values())
    assert "NVFP4Linear" in kinds(quantised)


def test_a_layer_with_a_number_for_each_expert_beside_it_is_a_router():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.selector = torch.nn.Module()
            self.selector.scores = torch.nn.Linear(64, 4)
            self.experts = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(4)])
            self.other = torch.nn.Linear(64, 64)

    model = torch.nn.ModuleDict({"mlp": Block()})
    routers = [name for name, _ in model.named_modules() if name and _is_router(model, name)]
    assert "mlp.selector.scores" in routers
    assert not {"mlp.experts.0", "mlp.other"} & set(routers)


def test_vision_towers_stay_as_they_are(tmp_path):
    vision = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 16,
        "patch_size": 8,
    }
    model = small(
        "Llava",
        "ForConditionalGeneration",
        text_config=transformers.LlamaConfig(**SIZES),
        vision_config=transformers.CLIPVisionConfig(**vision),
        image_token_index=127,
    )
    model.save_pretrained(tmp_path / "bf16")
    quantised = type(model).from_pretrained(tmp_path / "bf16", quantization_config=CukilnConfig())
    names = [name for name, module in quantised.named_modules() if isinstance(module, NVFP4Linear)]
    assert names and not [name for name in names if "vision" in name]
    quantised.save_pretrained(tmp_path / "nvfp4")
    again = type(model).from_pretrained(tmp_path / "nvfp4")
    pixels = torch.randn(1, 3, 16, 16).bfloat16()
    ids = torch.tensor([[1, *[127] * 4, 5, 6]])
    expected = quantised(ids, pixel_values=pixels).logits
    assert torch.equal(again(ids, pixel_values=pixels).logits, expected)
