# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints by other projects' programs, and what their models compute.

    python make.py modelopt [FOLDER]
    python make.py llmcompressor [FOLDER]

Each in an environment of its own, on the CPU: README.md has the packages, and what is in a folder.
"""

from __future__ import annotations

import copy
import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

FOLDER = tempfile.TemporaryDirectory()
HERE = Path(__file__).parent
SIZES = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "bos_token_id": 1,
         "eos_token_id": None, "pad_token_id": 0, "tie_word_embeddings": False}
# All experts of a token: what is rounded moves none to another.
EXPERTS = {"num_experts_per_tok": 4, "router_aux_loss_coef": 0.0}
MODELS = {
    "llama": ("Llama", {}),
    "mixtral": ("Mixtral", {**EXPERTS, "num_local_experts": 4, "intermediate_size": 32}),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 32}),
    "gpt_oss": ("GptOss", {**EXPERTS, "num_local_experts": 4, "intermediate_size": 32,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
}  # fmt: skip
PACKAGES = ("torch", "transformers", "nvidia-modelopt", "llmcompressor", "compressed-tensors")


def made(name: str) -> torch.nn.Module:
    torch.manual_seed(20250605)
    kind, more = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **more})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16)
    for key, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            torch.nn.init.normal_(parameter, std=0.12)
        elif key.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)
    folder = f"{FOLDER.name}/{name}"  # some tools look into a model's
    model.save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    return model.eval().requires_grad_(False)


def batches() -> list[torch.Tensor]:
    """For calibration."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(2, 64, (4, 32), generator=generator) for _ in range(4)]


def tokens() -> torch.Tensor:
    return torch.randint(2, 64, (2, 12), generator=torch.Generator().manual_seed(2))


def inputs() -> torch.Tensor:
    """Of layers; exact in bfloat16."""
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(3)).bfloat16().float()


@torch.no_grad()
def computed(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Logits of `tokens`, what is generated from them, and what linear layers and mixtures of
    experts make of `x`, with numbers between layers in float32, so that only the format rounds."""
    model = model.float()
    generated = model.generate(tokens(), attention_mask=torch.ones_like(tokens()), max_new_tokens=8, do_sample=False)
    tensors = {"tokens": tokens(), "x": inputs(), "logits": model(tokens()).logits, "generated": generated}  # fmt: skip
    for name, module in model.named_modules():
        is_mixture = hasattr(module, "experts")
        if ".experts." in name or not (is_mixture or name.endswith("_proj")):
            continue
        columns = 64 if is_mixture else module.in_features
        y = module(inputs()[None, :, :columns])
        tensors[name] = (y[0] if isinstance(y, tuple) else y).reshape(len(inputs()), -1)
    return {name: tensor.clone() for name, tensor in tensors.items()}


def keep(folder: Path, before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
    save_file({**after, "bf16": before["logits"]}, folder / "expected.safetensors")
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    (folder / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
    for extra in ("generation_config.json", "recipe.yaml"):
        (folder / extra).unlink(missing_ok=True)
    size = sum(file.stat().st_size for file in folder.iterdir())
    error = (after["logits"] - before["logits"]).norm() / before["logits"].norm()
    print(f"{folder.name}: {size:,} bytes, logits {error:.3f} from those of bf16")


def rounded(x: torch.Tensor, block: int, amax: torch.Tensor, *_: int) -> torch.Tensor:
    """ModelOpt's fake quantisation, by the functions that it exports with: its own runs on GPUs."""
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    decode = amax.float().amax() / 2688
    codes, scales, decode = NVFP4QTensor.quantize(x, block, None, decode)
    return codes.dequantize(x.dtype, scale=scales, double_scale=decode, block_sizes={-1: block})


def modelopt(folder: Path) -> None:
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from modelopt.torch.export.layer_utils import sync_moe_gate_up_amax
    from modelopt.torch.export.unified_export_hf import requantize_resmooth_fused_llm_layers
    from modelopt.torch.quantization import tensor_quant

    def calibrate(model: torch.nn.Module) -> None:
        for batch in batches():
            model(batch)

    tensor_quant.dynamic_block_quantize_op = rounded
    runs = (("modelopt_llama", "llama", mtq.NVFP4_DEFAULT_CFG),
            ("modelopt_weight_only_llama", "llama", mtq.NVFP4_MLP_WEIGHT_ONLY_CFG),
            ("modelopt_mixtral", "mixtral", mtq.NVFP4_DEFAULT_CFG),
            ("modelopt_qwen3_moe", "qwen3_moe", mtq.NVFP4_DEFAULT_CFG))
    for path, name, config in runs:
        bf16 = computed(made(name))
        model, again = (mtq.quantize(made(name), config, calibrate) for _ in range(2))
        with torch.inference_mode():
            export_hf_checkpoint(model, export_dir=folder / path)
        # The export calibrates what has one input together.
        requantize_resmooth_fused_llm_layers(again)
        sync_moe_gate_up_amax(again)
        keep(folder / path, bf16, computed(again))


def gpt_oss(folder: Path) -> None:
    """Experts in MXFP4 by ModelOpt, under the names and in the shapes of OpenAI's checkpoints, and
    what transformers makes of them."""
    from modelopt.torch.quantization.qtensor import MXFP4QTensor

    path = folder / "gpt_oss"
    model = made("gpt_oss")
    model.save_pretrained(path)
    tensors = {}
    for name, tensor in load_file(path / "model.safetensors").items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            tensors[name] = tensor
            continue
        tensor = tensor.transpose(1, 2).contiguous()
        shape = (*tensor.shape[:2], tensor.shape[2] // 32)
        codes, exponents = MXFP4QTensor.quantize(tensor, 32)
        tensors[f"{name}_blocks"] = codes._quantized_data.view(*shape, 16).contiguous()
        tensors[f"{name}_scales"] = exponents.view(shape).contiguous()
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    ignored = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens"]
    config["quantization_config"] = {
        "modules_to_not_convert": [*ignored, "lm_head"], "quant_method": "mxfp4"}  # fmt: skip
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        path, quantization_config=transformers.Mxfp4Config(dequantize=True), dtype=torch.bfloat16
    )
    keep(path, computed(model), computed(theirs.eval().requires_grad_(False)))


def llmcompressor(folder: Path) -> None:
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from tokenizers import Tokenizer, models

    words = {f"w{token}": token for token in range(64)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    processor = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="w0")
    rows = [{"input_ids": row.tolist()} for batch in batches() for row in batch]
    for name, scheme in (("llama", "NVFP4"), ("llama", "NVFP4A16"), ("qwen3_moe", "NVFP4")):
        model = made(name)
        bf16 = computed(made(name))
        recipe = QuantizationModifier(targets="Linear", scheme=scheme, ignore=["lm_head", "re:.*mlp.gate$"])
        data = {} if scheme == "NVFP4A16" else {
            "dataset": Dataset.from_list(rows), "num_calibration_samples": len(rows),
            "max_seq_length": 32,
            "processor": processor}  # fmt: skip
        oneshot(model=model, recipe=recipe, **data)
        expected = computed(copy.deepcopy(model))
        path = folder / f"llmcompressor_{scheme.lower()}_{name}"
        model.save_pretrained(path, save_compressed=True)
        keep(path, bf16, expected)


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE
    for make in {"modelopt": (modelopt, gpt_oss), "llmcompressor": (llmcompressor,)}[sys.argv[1]]:
        make(where)
