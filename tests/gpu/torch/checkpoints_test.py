# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and stacked experts on CUDA tensors, beside the same on the CPU; and models of
transformers, where it is installed.

usage: checkpoints_test.py [RESULTS.json]   with cukiln and PyTorch to be imported
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
from rows import run
from torch import nn

from cukiln.torch import NVFP4Experts, NVFP4Linear, NVFP4MoE, quantize_

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from torch_layers_support import modelopt

MISSING = [name for name in ("transformers", "pytest") if importlib.util.find_spec(name) is None]


def cosine(given: torch.Tensor, expected: torch.Tensor) -> float:
    flat = [tensor.double().cpu().flatten() for tensor in (given, expected)]
    return torch.cosine_similarity(*flat, dim=0).item()


def moved(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.cuda() for name, tensor in tensors.items()}


def experts(count: int = 4, hidden: int = 256, width: int = 128) -> dict[str, torch.Tensor]:
    """Each projection with a scale of its own."""
    tensors = {}
    for index in range(count):
        for name, shape in (
            ("gate_proj", (width, hidden)),
            ("up_proj", (width, hidden)),
            ("down_proj", (hidden, width)),
        ):
            made, _ = modelopt(torch.randn(shape).div(8).bfloat16())
            tensors |= {f"{index}.{name}.{kind}": tensor for kind, tensor in made.items()}
        tensors[f"{index}.down_proj.input_scale"] = torch.tensor(8 / 2688)
    return tensors


def routed(tokens: int = 33, count: int = 4, topk: int = 2) -> tuple[torch.Tensor, ...]:
    x = torch.randn(tokens, 256).bfloat16()
    ids = torch.stack([torch.randperm(count)[:topk] for _ in range(tokens)])
    return x, torch.rand(tokens, topk), ids


class GptOss(nn.Module):
    """Experts as transformers keeps gpt-oss'."""

    has_gate, has_bias, is_transposed = True, True, True
    is_concatenated, has_post_expert_norm, _is_expert_parallel = False, False, False
    limit, alpha = 7.0, 1.702

    def __init__(self, count: int = 4, hidden: int = 256, width: int = 128) -> None:
        super().__init__()
        for name, shape in (("gate_up_proj", (hidden, 2 * width)), ("down_proj", (width, hidden))):
            setattr(self, name, nn.Parameter(torch.randn(count, *shape) / 8))
            setattr(self, f"{name}_bias", nn.Parameter(torch.randn(count, shape[1])))

    def _apply_gate(self, both: torch.Tensor) -> torch.Tensor:
        gate, up = both[..., ::2].clamp(max=7.0), both[..., 1::2].clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)


class Formats(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(20250605)

    def near(self, given: torch.Tensor, expected: torch.Tensor) -> None:
        """Sums in another order; a value between two products may be rounded to its neighbour."""
        self.assertGreater(cosine(given, expected), 0.9999)

    def test_compressed_tensors(self) -> None:
        made, _ = modelopt(torch.randn(64, 256).bfloat16())
        theirs = {
            "weight_packed": made["weight"],
            "weight_scale": made["weight_scale"],
            "weight_global_scale": 1 / made["weight_scale_2"].reshape(1),
            "input_global_scale": torch.tensor([2688 / 8.0]),
        }
        x = torch.randn(33, 256).bfloat16()
        results = []
        for device in ("cpu", "cuda"):
            layer = NVFP4Linear(256, 64, device=device, activations="nvfp4")
            layer.load_state_dict(theirs)
            results.append(layer(x.to(device)))
        self.near(results[1], results[0])

    def test_gates_and_ups_of_different_scales(self) -> None:
        tensors, prefixes = experts(), [f"{index}." for index in range(4)]
        x, weights, ids = routed()
        for limit in ({}, {"limit": 10.0}):
            settings = {**limit, "activations": "nvfp4"}
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                cpu = NVFP4MoE.from_checkpoint(tensors, prefixes, **settings)
                gpu = NVFP4MoE.from_checkpoint(moved(tensors), prefixes, **settings)
            self.assertEqual(bool(seen), bool(limit))
            y = gpu(x.cuda(), weights.cuda(), ids.cuda())
            self.near(y, cpu(x, weights, ids))

    def test_gpt_oss(self) -> None:
        tensors = {}
        for name, rows, columns in (("gate_up_proj", 256, 256), ("down_proj", 256, 128)):
            shape = (4, rows, columns // 32)
            tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
            tensors[f"{name}_scales"] = torch.randint(118, 124, shape, dtype=torch.uint8)
            tensors[f"{name}_bias"] = torch.randn(4, rows).bfloat16()
        x, weights, ids = routed()
        for biases, activations in ((True, "bf16"), (True, "nvfp4"), (False, "nvfp4"), (False, "bf16")):
            if not biases:
                tensors = {k: t for k, t in tensors.items() if not k.endswith("bias")}
            cpu, gpu = (
                NVFP4Experts.from_mxfp4(each, activations=activations)
                for each in (tensors, moved(tensors))
            )
            given = x.cuda(), ids.cuda(), weights.cuda()
            y = gpu(*given)
            self.near(y, cpu(x, ids, weights))
            self.assertTrue(torch.equal(torch.compile(gpu, fullgraph=True)(*given), y))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = gpu(*given)
            graph.replay()
            self.assertTrue(torch.equal(captured, y))

    def test_stacked_experts(self) -> None:
        x, weights, ids = routed()
        results = []
        for device in ("cpu", "cuda"):
            torch.manual_seed(1)
            model = nn.Sequential(GptOss()).requires_grad_(False).to(device)
            quantize_(model, activations="nvfp4")
            self.assertIsInstance(model[0], NVFP4Experts)
            results.append(model[0](x.to(device), ids.to(device), weights.to(device)))
        self.near(results[1], results[0])

    @unittest.skipIf(MISSING, f"{' and '.join(MISSING)} are not installed")
    def test_generate_beside_bf16(self) -> None:
        import transformers

        from cukiln.torch.transformers import CukilnConfig
        from torch_transformers_test import MODELS, made

        load = transformers.AutoModelForCausalLM.from_pretrained
        for name in MODELS:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                model = made(name)
                model.save_pretrained(f"{folder}/bf16")
                model.cuda()
                ids = torch.randint(2, 128, (2, 10), device="cuda")
                mask = torch.ones_like(ids)

                def tokens(of, ids=ids, mask=mask):
                    return of.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False)

                config = CukilnConfig()
                quantised = load(f"{folder}/bf16", quantization_config=config).cuda()
                along = tokens(model)
                self.assertGreater(cosine(quantised(along).logits, model(along).logits), 0.87)
                quantised.save_pretrained(f"{folder}/nvfp4")
                again = load(f"{folder}/nvfp4").cuda()
                self.assertTrue(torch.equal(tokens(again), tokens(quantised)))


if __name__ == "__main__":
    sys.exit(run(Formats))
