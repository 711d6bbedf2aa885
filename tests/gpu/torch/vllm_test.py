# SPDX-License-Identifier: Apache-2.0
"""The plugin for vLLM on a GPU, over stand-ins for what it takes from vLLM: CUDA graphs, and a
reload beneath them.

usage: vllm_test.py [RESULTS.json]   with cukiln and PyTorch to be imported
"""

from __future__ import annotations

import os
import sys
import unittest
from collections.abc import Callable
from pathlib import Path

import torch
from rows import run
from torch import Tensor, nn
from torch._dynamo.utils import counters

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import torch_vllm_stand_ins as stand_ins
from cukiln.adapters.vllm import register
from torch_layers_support import cosine
from torch_vllm_support import (
    EXPERTS,
    LINEAR,
    Engine,
    emulated_experts,
    load_experts,
    load_linear,
    reload,
)

DEVICE = "cuda"
PARTS = ((512, 128, 128), 1024)  # q, k and v: rows, and columns
SIZES = (8, 512, 256)  # experts, hidden, width


def matrix(rows: int, columns: int, amax: float = 4.0) -> Tensor:
    """bf16, on the CPU."""
    made = torch.randn(rows, columns).clamp(-3, 3).bfloat16()
    made[0, 0] = amax
    return made


def parts(equal: bool) -> list[Tensor]:
    rows, columns = PARTS
    return [matrix(each, columns, 4 if equal else 4 + i) for i, each in enumerate(rows)]


def experts(equal: bool) -> list[tuple[Tensor, Tensor, Tensor]]:
    count, hidden, width = SIZES
    up = 4.0 if equal else 5.0
    return [
        (matrix(width, hidden), matrix(width, hidden, up), matrix(hidden, width))
        for _ in range(count)
    ]


def captured(call: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
    """A graph's result, and what replays it."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call()
    return y, graph.replay


class Vllm(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(20261130)
        torch._dynamo.reset()
        counters.clear()
        os.environ["CUKILN_VLLM"] = "1"
        sys.modules.update(stand_ins.modules()[1])
        self.engine = Engine()
        register()

    def linear(self, kind: str, given: list[Tensor]) -> tuple[object, nn.Module, Tensor]:
        method, layer = self.engine.linear(kind), nn.Module()
        with torch.device(DEVICE):
            expected = load_linear(method, layer, given)
        method.process_weights_after_loading(layer)
        return method, layer, expected

    def assert_product(self, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None):
        expected = x.cpu().double() @ weight.double().T
        if bias is not None:
            expected = expected + bias.cpu().double()
        self.assertGreater(cosine(y.cpu(), expected), 0.99999)

    def test_linear_layers_compute_what_was_loaded(self):
        bias = torch.randn(sum(PARTS[0]), device=DEVICE).bfloat16()
        for kind in LINEAR:
            for equal in (True, False):
                method, layer, expected = self.linear(kind, parts(equal))
                for tokens in (1, 16, 300):
                    x = torch.randn(tokens, PARTS[1], device=DEVICE).bfloat16()
                    for given in (None, bias):
                        y = method.kernel.apply_weights(layer, x, given)
                        self.assert_product(y, x, expected, given)

    def test_shards_of_any_size_are_padded(self):
        for rows, columns in ((100, 1024), (512, 1008), (20, 48)):
            method, layer, expected = self.linear(LINEAR[0], [matrix(rows, columns)])
            x = torch.randn(9, columns, device=DEVICE).bfloat16()
            self.assert_product(method.kernel.apply_weights(layer, x), x, expected)

    def test_a_graph_computes_with_what_a_reload_wrote(self):
        for equal in (True, False):
            method, layer, expected = self.linear(LINEAR[0], parts(equal))
            x = torch.randn(16, PARTS[1], device=DEVICE).bfloat16()
            y, replay = captured(lambda: method.kernel.apply_weights(layer, x))  # noqa: B023
            replay()
            self.assert_product(y, x, expected)
            other = parts(equal)

            def load():
                with torch.device(DEVICE):
                    return load_linear(method, layer, other)  # noqa: B023

            expected = reload(layer, load, method.process_weights_after_loading)
            replay()
            self.assert_product(y, x, expected)

    def test_layers_compiled_in_full_graphs_are_captured(self):
        layers = [self.linear(LINEAR[0], parts(equal)) for equal in (True, True, False)]

        def model(x: Tensor) -> Tensor:
            for method, layer, _ in layers:
                x = x + nn.functional.pad(
                    method.kernel.apply_weights(layer, nn.functional.rms_norm(x, x.shape[-1:])),
                    (0, PARTS[1] - sum(PARTS[0])),
                )
            return x

        x = torch.randn(16, PARTS[1], device=DEVICE).bfloat16()
        expected = model(x)
        compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        with torch.no_grad():
            for _ in range(4):
                torch.compiler.cudagraph_mark_step_begin()
                y = compiled(x)
        self.assertGreater(cosine(y, expected), 0.9999)
        self.assertEqual(counters["inductor"]["cudagraph_skips"], 0)

    def test_a_graph_of_experts_computes_with_what_a_reload_wrote(self):
        count, hidden, width = SIZES
        for kind in EXPERTS:
            moe = self.engine.moe(count, hidden, width)
            method, layer = self.engine.experts(kind, moe), nn.Module()
            given = experts(True)

            def load():
                with torch.device(DEVICE):
                    return load_experts(method, layer, given)  # noqa: B023

            expected = load()
            method.process_weights_after_loading(layer)
            x = torch.randn(16, hidden, device=DEVICE).bfloat16()
            scores = torch.rand(16, count, device=DEVICE)
            weights, ids = scores.topk(2)
            arguments = (x, weights, ids.int(), None, None)
            y, replay = captured(lambda: method.apply(layer, *arguments))  # noqa: B023
            replay()
            self.assertGreater(
                cosine(y.cpu(), emulated_experts(x, weights, ids, expected)), 0.99999
            )
            given = experts(False)
            expected = reload(layer, load, method.process_weights_after_loading)
            replay()
            self.assertGreater(
                cosine(y.cpu(), emulated_experts(x, weights, ids, expected)), 0.99999
            )


if __name__ == "__main__":
    sys.exit(run(Vllm))
