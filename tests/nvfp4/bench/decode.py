# SPDX-License-Identifier: Apache-2.0
"""Measures a decode step of a small transformer with random weights, NVFP4 layers beside bf16, eager
and under torch.compile's reduce-overhead.

Each pair is timed alternately in one run. The weights of all blocks exceed the cache, so each step reads
them from memory.
"""

from __future__ import annotations

import statistics
import sys

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn.functional import scaled_dot_product_attention, silu

import results as kept

from cukiln.torch import NVFP4Linear

BLOCKS, WIDTH, HEADS, INTERMEDIATE, CONTEXT = 8, 4096, 32, 14336, 512
ROUNDS, STEPS = 7, 20


class Block(nn.Module):
    """A block of Llama with one head of keys for four of queries, and a cache of CONTEXT tokens."""

    def __init__(self, batch: int):
        super().__init__()
        size = WIDTH // HEADS
        self.norm_1, self.norm_2 = (nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, (HEADS + HEADS // 2) * size, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 2 * INTERMEDIATE, bias=False)
        self.down = nn.Linear(INTERMEDIATE, WIDTH, bias=False)
        for name in ("keys", "values"):
            cache = torch.randn(batch, HEADS // 4, CONTEXT, size)
            self.register_buffer(name, cache, persistent=False)

    def forward(self, x: Tensor, position: Tensor, mask: Tensor) -> Tensor:
        batch, size = x.shape[0], WIDTH // HEADS
        heads = self.qkv(self.norm_1(x)).view(batch, -1, 1, size)
        q, k, v = heads.split([HEADS, HEADS // 4, HEADS // 4], 1)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        attended = scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
        x = x + self.out(attended.reshape(batch, WIDTH))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, -1)
        return x + self.down(silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, batch: int):
        super().__init__()
        self.blocks = nn.ModuleList(Block(batch) for _ in range(BLOCKS))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        mask = (torch.arange(CONTEXT, device=x.device) <= position).view(1, 1, 1, CONTEXT)
        for block in self.blocks:
            x = block(x, position, mask)
        return x


def calibrated(model: Decoder, x: Tensor, position: Tensor) -> Decoder:
    """The model with NVFP4 layers, whose input scales are calibrated by one step."""
    largest: dict[nn.Module, Tensor] = {}
    linears = [(block, name, child) for block in model.blocks for name, child in block.named_children()
               if isinstance(child, nn.Linear)]
    hooks = [child.register_forward_pre_hook(lambda module, given: largest.update({module: given[0].abs().max()}))
             for _, _, child in linears]
    model(x, position)
    for hook in hooks:
        hook.remove()
    for block, name, child in linears:
        layer = NVFP4Linear.from_linear(child, input_scale=largest[child].float() * 1.25 / 2688)
        layer.reserve(len(x))
        setattr(block, name, layer)
    return model


def microseconds(step, arguments) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(STEPS):
        step(*arguments)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / STEPS * 1000


def made(batch: int, seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    with torch.device("cuda"):
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            return Decoder(batch).eval().requires_grad_(False)
        finally:
            torch.set_default_dtype(default)


@torch.inference_mode()
def measure(batch: int) -> list[dict]:
    position = torch.tensor([CONTEXT - 1], device="cuda")
    plain = made(batch)
    x = torch.randn(batch, WIDTH, device="cuda", dtype=torch.bfloat16)
    quantised = calibrated(made(batch), x, position)
    cosine = torch.cosine_similarity(
        quantised(x, position).flatten().float(), plain(x, position).flatten().float(), 0
    ).item()
    counters.clear()
    rows = []
    for mode in ("eager", "reduce-overhead"):
        steps = {"NVFP4": quantised, "bf16": plain}
        if mode != "eager":
            steps = {name: torch.compile(model, mode=mode, fullgraph=True) for name, model in steps.items()}
        samples: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            for _ in range(4):
                step(x, position)
        for _ in range(ROUNDS):
            for name, step in steps.items():
                samples[name].append(microseconds(step, (x, position)))
        us, rival_us = (statistics.median(samples[name]) for name in ("NVFP4", "bf16"))
        skips = counters["inductor"]["cudagraph_skips"]
        rows.append(
            kept.row("decode step", "us", us, samples["NVFP4"], case=f"{mode}, batch {batch}", baseline="bf16",
                     baseline_value=rival_us, baseline_samples=samples["bf16"],
                     note=f"cosine {cosine:.4f}" + (f", CUDA graphs skipped {skips} times" if skips else ""))  # fmt: skip
        )
        print(f"  {mode}, batch {batch}: {us:.0f} us, bf16 {rival_us:.0f} us, {rival_us / us:.2f} x, "
              f"cosine {cosine:.4f}", file=sys.stderr)
    return rows


def results() -> list[dict]:
    rows = []
    for batch in (1, 8, 16, 64):
        torch._dynamo.reset()
        rows += measure(batch)
        torch.cuda.empty_cache()
    return rows
