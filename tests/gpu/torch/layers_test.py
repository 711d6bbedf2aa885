# SPDX-License-Identifier: Apache-2.0
"""The layers on CUDA tensors: beside bf16, beside their emulation, and in CUDA graphs.

usage: layers_test.py [RESULTS.json]   with cukiln and PyTorch to be imported
"""

from __future__ import annotations

import copy
import subprocess
import sys
import unittest
from pathlib import Path

import torch
from rows import run
from torch import nn
from torch._dynamo.utils import counters

from cukiln.torch import (
    NVFP4Linear,
    NVFP4MoE,
    NVFP4SharedExpert,
    NVFP4TrainableLinear,
    quantize_,
)

REPOSITORY = Path(__file__).resolve().parents[3]
DEVICE = "cuda"


def cosine(given: torch.Tensor, expected: torch.Tensor) -> float:
    flat = [tensor.double().cpu().flatten() for tensor in (given, expected)]
    return torch.cosine_similarity(*flat, dim=0).item()


def linear(in_features: int, out_features: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(in_features, out_features, bias, DEVICE, torch.bfloat16)


class Mlp(nn.Module):
    def __init__(self, hidden: int, width: int, limit: float = 10.0):
        super().__init__()
        self.gate_proj, self.up_proj = linear(hidden, width), linear(hidden, width)
        self.down_proj = linear(width, hidden)
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate_proj(x).float().clamp(max=self.limit)
        up = self.up_proj(x).float().clamp(-self.limit, self.limit)
        return self.down_proj((nn.functional.silu(gate) * up).to(x.dtype))


class Block(nn.Module):
    """A decoder block without its attention: what is around NVFP4 layers is fused by inductor."""

    def __init__(self, width: int = 512, experts: int = 4):
        super().__init__()
        self.norm_1, self.norm_2 = (nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.first, self.second = linear(width, 2 * width), linear(2 * width, width)
        self.router = linear(width, experts)
        self.experts = NVFP4MoE.from_linear([Mlp(width, width) for _ in range(experts)], limit=10.0)
        self.shared = NVFP4SharedExpert.from_linear([Mlp(width, width)], limit=10.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.second(nn.functional.silu(self.first(self.norm_1(x))))
        h = self.norm_2(x)
        weights, ids = self.router(h).float().softmax(-1).topk(2)
        return x + self.experts(h, weights, ids) + self.shared(h)


def block(max_tokens: int = 64) -> Block:
    made = Block().to(DEVICE, torch.bfloat16).eval().requires_grad_(False)
    quantize_(made, lambda name, _: name != "router")
    for layer in made.children():
        if hasattr(layer, "reserve"):
            layer.reserve(max_tokens)
    return made


class Layers(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(20250605)
        torch._dynamo.reset()
        counters.clear()

    def test_attention_projections_keep_a_cosine_of_0_99(self):
        for name, k, n in (
            ("q_a", 7168, 1536),
            ("q_b", 1536, 24576),
            ("kv", 7168, 576),
            ("o_b", 16384, 7168),
        ):
            original = linear(k, n)
            layer = NVFP4Linear.from_linear(original)
            for tokens in (1, 16, 300):
                x = torch.randn(tokens, k, device=DEVICE, dtype=torch.bfloat16)
                found = cosine(layer(x), original(x))
                print(f"  {name} {tokens} tokens: cosine {found:.4f}", file=sys.stderr)
                self.assertGreaterEqual(found, 0.99)

    def test_layers_are_their_emulation(self):
        for activations in ("nvfp4", "bf16"):
            with self.subTest(activations):
                self.check_emulation({"activations": activations})

    def check_emulation(self, settings):
        for made, arguments in (
            (NVFP4Linear.from_linear(linear(1024, 512, True), **settings), ()),
            (NVFP4Linear.from_linear(linear(1000, 100), **settings), ()),  # padded
            (NVFP4SharedExpert.from_linear([Mlp(1024, 512)], limit=10.0, **settings), ()),
            (
                NVFP4MoE.from_linear([Mlp(1024, 512) for _ in range(4)], limit=10.0, **settings),
                (torch.rand(9, 2), torch.randint(-1, 5, (9, 2))),
            ),
        ):
            width = made.in_features if isinstance(made, NVFP4Linear) else made.hidden_size
            x = torch.randn(9, width, dtype=torch.bfloat16)
            there = made(x.cuda(), *(argument.cuda() for argument in arguments))
            here = copy.deepcopy(made).to("cpu")(x, *arguments)
            self.assertGreater(cosine(there, here), 0.9999, type(made).__name__)

    def test_a_fingerprint_is_the_same_on_every_device(self):
        for made in (
            NVFP4Linear.from_linear(nn.Linear(1000, 100), activations="nvfp4"),
            NVFP4Linear.from_linear(nn.Linear(1000, 100), activations="bf16"),
            NVFP4MoE.from_linear([Mlp(512, 256).cpu() for _ in range(4)], activations="bf16"),
            NVFP4SharedExpert.from_linear([Mlp(512, 256).cpu()], activations="nvfp4"),
        ):
            here = made.fingerprint
            self.assertEqual(made.to(DEVICE).fingerprint, here)
            arguments = (torch.randn(2, 1000 if isinstance(made, NVFP4Linear) else 512),)
            if type(made) is NVFP4MoE:
                arguments += torch.rand(2, 2), torch.randint(0, 4, (2, 2))
            made(*(argument.cuda() for argument in arguments))

    def test_small_activations_are_not_lost(self):
        experts = [Mlp(1024, 512, float("inf")) for _ in range(4)]
        shared = NVFP4SharedExpert.from_linear(experts[:1], activations="nvfp4")
        mixture = NVFP4MoE.from_linear(experts, activations="nvfp4")
        for tokens in (1, 16, 300):
            for size in (1.0, 1e-2, 1e-4):
                x = torch.randn(tokens, 1024, device=DEVICE, dtype=torch.bfloat16) * size
                self.assertGreater(cosine(shared(x), experts[0](x)), 0.96)
        ids = torch.randint(0, 4, (300, 1), device=DEVICE)
        mixture.calibrate(x, ids)
        y = mixture(x, torch.ones(300, 1, device=DEVICE), ids)
        expected = torch.stack([each(x) for each in experts])[ids[:, 0], torch.arange(300)]
        self.assertGreater(cosine(y, expected), 0.96)
        in_bf16 = NVFP4MoE.from_linear(experts)  # by default here, where no scale has a part in it
        self.assertTrue(in_bf16.keeps_bf16())
        y = in_bf16(x, torch.ones(300, 1, device=DEVICE), ids)
        self.assertGreater(cosine(y, expected), 0.98)

    def test_a_batch_invariant_layer_computes_the_same_bits_in_every_batch(self):
        for k, n, bias in ((4096, 4096, False), (7168, 2048, True), (1000, 100, True)):
            layer = NVFP4Linear.from_linear(linear(k, n, bias)).batch_invariant(16)
            x = torch.randn(5, k, device=DEVICE, dtype=torch.bfloat16)
            other = torch.randn(64, k, device=DEVICE, dtype=torch.bfloat16)
            other[::3] *= 1e4
            expected = layer(x)
            self.assertTrue(torch.cat([layer(row[None]) for row in x]).equal(expected))
            for before, after in ((0, 3), (11, 0), (3, 40)):
                batch = torch.cat([other[:before], x, other[:after]])
                self.assertTrue(layer(batch)[before : before + 5].equal(expected), (k, n, before))

    def test_batch_invariant_experts_compute_the_same_bits_in_every_batch(self):
        """Few of 64 experts in the one batch, many in the other."""
        fixed = {"input_scale": 8 / 2688, "activation_scale": 8 / 2688, "activations": "nvfp4"}
        experts = [Mlp(1024, 512) for _ in range(64)]
        for settings in (fixed, {"activations": "bf16"}):
            layer = NVFP4MoE.from_linear(experts, limit=10.0, **settings).batch_invariant(16)
            x = torch.randn(5, 1024, device=DEVICE, dtype=torch.bfloat16)
            other = torch.randn(64, 1024, device=DEVICE, dtype=torch.bfloat16)
            other[::3] *= 1e4
            weights = torch.rand(69, 4, device=DEVICE)
            ids = torch.randint(0, 64, (69, 4), device=DEVICE)
            expected = layer(x, weights[:5], ids[:5])
            alone = [layer(x[i : i + 1], weights[i : i + 1], ids[i : i + 1]) for i in range(5)]
            self.assertTrue(torch.cat(alone).equal(expected))
            for before, after, near in ((0, 3, False), (11, 0, True), (3, 40, True), (3, 8, False)):
                batch = torch.cat([other[:before], x, other[:after]])
                there = slice(before, before + 5)
                given = weights[: len(batch)].clone(), ids[5 : 5 + len(batch)].clone()
                if near:  # to the same experts
                    given[1][:] = ids[0]
                for all_, own in zip(given, (weights[:5], ids[:5]), strict=True):
                    all_[there] = own
                self.assertTrue(layer(batch, *given)[there].equal(expected), (settings, before))

    def test_an_emptied_layer_is_empty(self):
        layer = NVFP4Linear.from_linear(linear(512, 256))
        x = torch.randn(4, 512, device=DEVICE, dtype=torch.bfloat16)
        state, expected = copy.deepcopy(layer.state_dict()), layer(x)
        layer.to_empty(device=DEVICE)
        with self.assertRaisesRegex(RuntimeError, "no weights yet"):
            layer(x)
        layer.load_state_dict(state)
        self.assertTrue(layer(x).equal(expected))

    def test_a_moved_layer_has_a_runner_there(self):
        original = nn.Linear(256, 128)
        layer = NVFP4Linear.from_linear(original, activations="bf16")
        x = torch.randn(4, 256)
        expected = layer(x)
        layer.to(DEVICE)
        self.assertGreater(cosine(layer(x.to(DEVICE)), expected), 0.9999)
        state = {name: tensor.cpu() for name, tensor in layer.state_dict().items()}
        self.assertTrue(layer.cpu()(x).equal(expected))
        for name, tensor in layer.state_dict().items():
            self.assertTrue(tensor.float().equal(state[name].float()), name)

    def test_reduce_overhead_skips_no_graph(self):
        model = block()
        compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        for tokens in (16, 1):
            x = torch.randn(tokens, 512, device=DEVICE, dtype=torch.bfloat16)
            expected = model(x)
            for _ in range(4):
                torch.compiler.cudagraph_mark_step_begin()
                given = compiled(x).clone()
            self.assertGreater(cosine(given, expected), 0.999)
        self.assertEqual(counters["inductor"]["cudagraph_skips"], 0)

    def test_blocks_compiled_one_by_one_share_graphs_that_are_captured(self):
        blocks = [NVFP4Linear.from_linear(linear(512, 512)) for _ in range(12)]
        for each in blocks:
            each.reserve(64)
        x = torch.randn(8, 512, device=DEVICE, dtype=torch.bfloat16)
        before = counters["stats"]["unique_graphs"]
        for each in blocks:
            compiled = torch.compile(each, mode="reduce-overhead", fullgraph=True, dynamic=True)
            for _ in range(3):
                torch.compiler.cudagraph_mark_step_begin()
                given = compiled(x).clone()
            self.assertTrue(given.equal(each(x)))
        self.assertLessEqual(counters["stats"]["unique_graphs"] - before, 3)
        self.assertEqual(counters["inductor"]["cudagraph_skips"], 0)

    def test_a_program_is_exported(self):
        model = block()
        x = torch.randn(4, 512, device=DEVICE, dtype=torch.bfloat16)
        program = torch.export.export(
            model, (x,), dynamic_shapes=({0: torch.export.Dim("tokens")},)
        ).module()
        for tokens in (4, 9):
            x = torch.randn(tokens, 512, device=DEVICE, dtype=torch.bfloat16)
            self.assertTrue(program(x).equal(model(x)))

    def test_training_is_compiled_bit_for_bit(self):
        layer = NVFP4TrainableLinear(512, 256, device=DEVICE)
        other = copy.deepcopy(layer)
        compiled = torch.compile(layer, fullgraph=True)

        def step(function, module, x, is_first):
            x = x.detach().requires_grad_()
            module.zero_grad()
            y = function(x, is_first)
            y.backward(torch.ones_like(y))
            return y.detach(), x.grad, module.weight.grad, module.bias.grad

        for batch, is_first in enumerate((True, False, False, None)):
            torch.manual_seed(batch)
            x = torch.randn(48, 512, device=DEVICE, dtype=torch.bfloat16)
            given, expected = step(compiled, layer, x, is_first), step(other, other, x, is_first)
            for one, two in zip(given, expected, strict=True):
                self.assertTrue(one.equal(two))
        reference = linear(512, 256, True)
        reference.load_state_dict(layer.state_dict())
        x = torch.randn(48, 512, device=DEVICE, dtype=torch.bfloat16)
        dy = torch.randn(48, 256, device=DEVICE, dtype=torch.bfloat16)
        gradients = []
        for module in (layer, reference):
            module.zero_grad()
            rows = x.clone().requires_grad_()
            module(rows).backward(dy)
            gradients.append((rows.grad, module.weight.grad))
        for one, two in zip(*gradients, strict=True):
            self.assertGreater(cosine(one, two), 0.98)

    def test_the_examples_run(self):
        for name in ("torch_linear", "torch_moe", "quantize_model"):
            done = subprocess.run(
                [sys.executable, REPOSITORY / "examples" / f"{name}.py"],
                capture_output=True,
                text=True,
                check=False,
            )
            print(done.stdout, file=sys.stderr)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("False", done.stdout)


if __name__ == "__main__":
    sys.exit(run(Layers))
