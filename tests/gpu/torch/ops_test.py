# SPDX-License-Identifier: Apache-2.0
"""The ops on CUDA tensors, beside the same ops on CPU tensors, which tests/python holds to NumPy.

usage: ops_test.py [RESULTS.json]   with cukiln and PyTorch to be imported
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import unittest
from collections.abc import Callable

import torch
from rows import run

import cukiln.torch as ct

ops = torch.ops.nvfp4
Tensors = tuple[torch.Tensor, ...]


def matrix(rows: int, columns: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator).mul(scale).bfloat16()


def on(device: str, *tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    return tuple(None if tensor is None else tensor.to(device) for tensor in tensors)


def quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    global_scale = ops.amax_gsa(weight)
    return *ops.quantize_nvfp4_from_buffer(weight, global_scale), global_scale


def linear(device: str, n: int = 256, k: int = 512, bias: bool = False, static: bool = False,
           **options: int) -> ct.LinearRunner:  # fmt: skip
    data, scales, global_scale = on(device, *quantised(matrix(n, k, 1)))
    given, scale = on(device, matrix(1, n, 2)[0], torch.tensor([500.0, 1 / 500]))
    return ct.LinearRunner(data, scales, global_scale, bias=given if bias else None,
                           input_global_scale=scale if static else None, **options)  # fmt: skip


def moe(
    device: str, experts: int = 8, hidden: int = 256, width: int = 128, **options: object
) -> ct.MoeRunner:
    up = [quantised(matrix(2 * width, hidden, 10 + e)) for e in range(experts)]
    down = [quantised(matrix(hidden, width, 50 + e)) for e in range(experts)]

    def stacked(parts: list[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
        data, scales, global_scale = (torch.stack(each) for each in zip(*parts, strict=True))
        return on(device, data, scales, global_scale[:, 1].contiguous())

    scale = torch.tensor([64.0, 1 / 64]).to(device)
    options = {"activation_global_scale": scale, "limit": 10.0} | options
    return ct.MoeRunner(*stacked(up), *stacked(down), **options)


def routing(tokens: int, topk: int, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(-1, experts + 1, (tokens, topk), generator=generator, dtype=torch.int32)
    return torch.rand(tokens, topk, generator=generator), ids


def two_at_once() -> tuple[Callable[..., Tensors], list[Tensors]]:
    """One call of one linear layer and one mixture of experts, and inputs for two of it, large
    enough that kernels of two calls run concurrently."""
    runner, mixture = linear("cuda", 1024, 1024), moe("cuda")

    def step(x: torch.Tensor, *hidden: torch.Tensor) -> Tensors:
        y = ops.linear_gemm(x, runner.runner_id, 1024)
        return y, ops.moe_gemm(*hidden, mixture.runner_id, 256)

    return step, [
        on("cuda", matrix(rows, 1024, rows), matrix(rows, 256, rows), *routing(rows, 2, 8))
        for rows in (3000, 4000)
    ]


def differences_at_once(calls: list[Callable[[], Tensors]], expected: list[Tensors]) -> list[int]:
    """Numbers that are not as expected, of calls that are made 100 times, each on a stream."""
    streams = [torch.cuda.Stream() for _ in calls]
    counts = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in calls]
    torch.cuda.synchronize()
    # Nothing is loaded or allocated the second time: that would wait for the device.
    for times in (1, 100):
        for stream in streams:  # until all have something to do
            with torch.cuda.stream(stream):
                torch.cuda._sleep(100_000_000)
        for _ in range(times):
            for stream, call, want, count in zip(streams, calls, expected, counts, strict=True):
                with torch.cuda.stream(stream):
                    for one, other in zip(call(), want, strict=True):
                        count += (one != other).sum()
        torch.cuda.synchronize()
    return [int(count) for count in counts]


KERNEL_NODE, MEMSET_NODE = 0, 2  # CUgraphNodeType


def node_kinds(call: Callable[[], object]) -> set[int]:
    """Of the graph that is captured from a call."""
    driver = ctypes.CDLL("libcuda.so.1")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    raw, count, kind = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t(), ctypes.c_int()
    assert driver.cuGraphGetNodes(raw, None, ctypes.byref(count)) == 0
    nodes = (ctypes.c_void_p * count.value)()
    assert driver.cuGraphGetNodes(raw, nodes, ctypes.byref(count)) == 0
    kinds = set()
    for node in nodes:
        assert driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
        kinds.add(kind.value)
    return kinds


def workspace(weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n, k = weight.shape

    def empty(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        return torch.empty(*shape, dtype=dtype, device=weight.device)

    out = (
        empty(n, k // 2),
        empty(-(-n // 128) * 128, -(-k // 64) * 4),
        empty(k, n // 2),
        empty(-(-k // 128) * 128, -(-n // 64) * 4),
        empty(2, dtype=torch.float32),
    )
    ops.quantize_weight_(weight.detach(), *out)
    return out


class Ops(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        ct.use_loader()

    def assert_same(self, given: torch.Tensor, expected: torch.Tensor) -> None:
        self.assertTrue(given.is_cuda)
        self.assertTrue(given.cpu().equal(expected), (given.cpu() != expected).sum())

    def assert_rounded(self, given: torch.Tensor, expected: torch.Tensor) -> None:
        """One unit of bf16, and what sums in float lose."""
        self.assertTrue(given.is_cuda)
        given, expected = given.cpu().double(), expected.double()
        error = (given - expected).abs()
        allowed = expected.abs() * 2**-7 + 2**-16 * expected.abs().max()
        self.assertTrue((error <= allowed).all(), (error - allowed).max())

    def test_quantisers_write_the_same_bytes(self):
        for rows, columns in ((1, 32), (130, 80), (300, 2048)):
            x = matrix(rows, columns, rows)
            global_scale = ops.amax_gsa(x)
            self.assert_same(ops.amax_gsa(x.cuda()), global_scale)
            self.assert_same(ops.amax_gsa(x.cuda(), 1536.0), ops.amax_gsa(x, 1536.0))
            for op, arguments in (
                (ops.quantize_nvfp4_from_buffer, (global_scale,)),
                (ops.quantize_nvfp4, (3.7,)),
            ):
                expected = op(x, *arguments)
                given = op(x.cuda(), *(a.cuda() if a is global_scale else a for a in arguments))
                for one, other in zip(given, expected, strict=True):
                    self.assert_same(one, other)
        x = matrix(70, 4 * 64, 5)
        global_scale = torch.tensor([100.0, 0.01])
        for interleaved in (False, True):
            expected = ops.deinterleave_quantize_from_buffer(x, global_scale, interleaved)
            on_cuda = (x.cuda(), global_scale.cuda())
            given = ops.deinterleave_quantize_from_buffer(*on_cuda, interleaved)
            for one, other in zip(given, expected, strict=True):
                self.assert_same(one, other)
            # SwiGLU takes the hardware's exponential: a value next to a tie may round otherwise.
            swiglu = (7.0, 1.702, 1.0, interleaved)
            expected = ops.swiglu_quantize_from_buffer(x, global_scale, *swiglu)
            given = ops.swiglu_quantize_from_buffer(*on_cuda, *swiglu)
            for one, other in zip(given, expected, strict=True):
                self.assertLess((one.cpu() != other).float().mean(), 0.01)
            torch.testing.assert_close(
                ops.swiglu_amax_gsa(x.cuda(), *swiglu).cpu(),
                ops.swiglu_amax_gsa(x, *swiglu),
                rtol=2**-7, atol=0,
            )  # fmt: skip

    def test_linear_gemm(self):
        for bias, static in ((False, False), (True, False), (True, True)):
            here, there = (linear(device, bias=bias, static=static) for device in ("cpu", "cuda"))
            for tokens in (0, 1, 7, 16, 33, 300, 2):
                x = matrix(tokens, 512, tokens)
                expected = ops.linear_gemm(x, here.runner_id, 256)
                given = ops.linear_gemm(x.cuda(), there.runner_id, 256)
                self.assertEqual(given.shape, (tokens, 256))
                if tokens:
                    self.assert_rounded(given, expected)

    def test_moe_gemm(self):
        expert_map = torch.tensor([3, -1, 0, 7, 1, -1, 2, 6, 5, 4], dtype=torch.int32)
        scale = torch.tensor([400.0, 1 / 400])
        for ids_below, options in (
            (8, {}),
            (8, {"interleaved": True, "alpha": 1.702, "beta": 1.0}),
            (10, {"expert_map": expert_map, "hidden_global_scale": scale}),
            (10, {"expert_map": expert_map, "activation_global_scale": None, "limit": math.inf}),
        ):
            runners = [
                moe(device, **{
                    name: value.to(device) if isinstance(value, torch.Tensor) else value
                    for name, value in options.items()
                })
                for device in ("cpu", "cuda")
            ]  # fmt: skip
            for tokens in (1, 5, 64, 300, 3):
                x = matrix(tokens, 256, tokens)
                weights, ids = routing(tokens, 2, ids_below)
                results = [
                    ops.moe_gemm(*on(device, x, weights, ids), runner.runner_id, 256).cpu().double()
                    for device, runner in zip(("cpu", "cuda"), runners, strict=True)
                ]
                # A code of y next to a tie may differ by one.
                error = (results[1] - results[0]).norm() / results[0].norm().clamp(min=1e-9)
                self.assertLess(error, 0.02)
                unassigned = (ids < 0).logical_or(ids >= ids_below).all(1)
                self.assertTrue(results[1][unassigned].eq(0).all())

    def test_training(self):
        weight, x, dy = matrix(256, 512, 1), matrix(45, 512, 2), matrix(45, 256, 3, 1e-3)
        results = []
        for device in ("cpu", "cuda"):
            w, a, b = (
                each.detach().clone().to(device).requires_grad_()
                for each in (weight, x, matrix(1, 256)[0])
            )
            y = ops.linear_fwd(a, w, *workspace(w), b)[0]
            y.backward(dy.to(device))
            results.append((y.detach(), a.grad, w.grad, b.grad))
        for expected, given in zip(*results, strict=True):
            self.assert_rounded(given, expected)
        for expected, given in zip(workspace(weight), workspace(weight.cuda()), strict=True):
            self.assert_same(given, expected)

    def test_sample(self):
        logits = matrix(64, 32000, 1).float().mul(3)
        for parameters in (
            {"temperature": torch.zeros(64)},
            {"top_k": torch.full((64,), 50, dtype=torch.int32), "top_p": torch.full((64,), 0.9)},
        ):
            states = [torch.tensor([5, 2, 0]).to(device) for device in ("cpu", "cuda")]
            expected = torch.ops.cukiln.sample(logits, states[0], **parameters)
            moved = {name: value.cuda() for name, value in parameters.items()}
            given = torch.ops.cukiln.sample(logits.cuda(), states[1], **moved)
            same = given[0].cpu() == expected[0]
            self.assertGreater(same.float().mean(), 0.96)
            torch.testing.assert_close(given[1].cpu()[same], expected[1][same], rtol=0, atol=1e-4)
            self.assertEqual(states[1].tolist(), [5, 3, 0])
            seeds = [torch.arange(128).view(64, 2).contiguous().to(device) for device in ("cpu", "cuda")]
            expected = torch.ops.cukiln.sample(logits, states[0], **parameters, row_seeds=seeds[0])
            given = torch.ops.cukiln.sample(logits.cuda(), states[1], **moved, row_seeds=seeds[1])
            self.assertGreater((given[0].cpu() == expected[0]).float().mean(), 0.96)
            self.assert_same(seeds[1], seeds[0])
            self.assertEqual(states[1].tolist(), [5, 3, 0])

    def test_top_log_probabilities_are_the_reference(self):
        logits = torch.randn(16, 20000) * 3
        tokens = torch.randint(0, 20000, (16,), dtype=torch.int32)
        temperature = torch.rand(16) + 0.5
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            typed = logits.to(dtype)
            expected = torch.ops.cukiln.top_log_probabilities(typed, 20, temperature, tokens)
            given = torch.ops.cukiln.top_log_probabilities(
                typed.cuda(), 20, temperature.cuda(), tokens.cuda()
            )
            self.assert_same(given[1], expected[1])
            torch.testing.assert_close(given[0].cpu(), expected[0], rtol=1e-6, atol=1e-5)
            torch.testing.assert_close(given[2].cpu(), expected[2], rtol=1e-6, atol=1e-5)

    def test_opcheck(self):
        x, global_scale = matrix(5, 64).cuda(), torch.tensor([100.0, 0.01]).cuda()
        weight = matrix(64, 96).cuda().requires_grad_()
        space = workspace(weight)
        a, b = quantised(matrix(5, 64).cuda()), quantised(matrix(24, 64).cuda())
        runner, mixture = linear("cuda", 48, 64), moe("cuda", 4, 64, 32)
        forward = ops.linear_fwd(matrix(5, 96).cuda(), weight.detach(), *space)
        calls = {
            ops.linear_gemm: (x, runner.runner_id, 48),
            ops.moe_gemm: (x, *on("cuda", *routing(5, 2, 4)), mixture.runner_id, 64),
            ops.amax_gsa: (x, 1536.0),
            ops.fused_amax_quantize_nvfp4: (x,),
            ops.quantize_nvfp4: (x, 3.5),
            ops.quantize_nvfp4_from_buffer: (x, global_scale),
            ops.deinterleave_quantize_from_buffer: (x, global_scale, True),
            ops.swiglu_quantize_from_buffer: (x, global_scale, 7.0),
            ops.swiglu_amax_gsa: (x, math.inf),
            ops.gemm: (*a, *b, matrix(1, 24)[0].cuda()),
            ops.w4a16_gemm: (x, *b, matrix(1, 24)[0].cuda()),
            ops.quantize_weight_: (weight.detach(), *space),
            ops.linear_fwd: (matrix(5, 96).cuda().requires_grad_(), weight, *space),
            ops.linear_dgrad: (matrix(5, 64).cuda(), *space[2:]),
            ops.linear_wgrad: (matrix(5, 64).cuda(), *forward[1:]),
            torch.ops.cukiln.sample: (
                torch.randn(3, 40).cuda(),
                torch.tensor([1, 0, 0]).cuda(),
                torch.zeros(3).cuda(),
                *(None, None, None, False),
                torch.zeros(3, 2, dtype=torch.int64).cuda(),
            ),
            torch.ops.cukiln.top_log_probabilities: (
                torch.randn(3, 40).cuda(),
                5,
                torch.ones(3).cuda(),
                torch.ones(3, dtype=torch.int32).cuda(),
            ),
        }
        for op, arguments in calls.items():
            with self.subTest(str(op)):
                result = torch.library.opcheck(op, arguments)
                self.assertEqual(set(result.values()), {"SUCCESS"})

    def test_ops_run_on_the_current_stream(self):
        runner, x = linear("cuda"), matrix(4, 512).cuda()
        expected = ops.linear_gemm(x, runner.runner_id, 256)
        late = torch.zeros_like(x)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            late.copy_(x)
            given = ops.linear_gemm(late, runner.runner_id, 256)
        self.assertFalse(stream.query())  # nothing waited here
        stream.synchronize()
        self.assertTrue(given.equal(expected))

    def test_a_thread_without_a_context_gets_one(self):
        runner, x = linear("cuda"), matrix(4, 512).cuda()
        expected, given = ops.linear_gemm(x, runner.runner_id, 256), []
        thread = threading.Thread(
            target=lambda: given.append(ops.linear_gemm(x, runner.runner_id, 256))
        )
        thread.start()
        thread.join()
        self.assertTrue(given[0].equal(expected))

    def test_a_captured_graph_computes_anew(self):
        runner, mixture = linear("cuda", max_tokens=64), moe("cuda", max_tokens=64, max_topk=2)
        x, weights, ids = on("cuda", matrix(16, 256), *routing(16, 2, 8))
        wide = matrix(16, 512).cuda()
        state = torch.tensor([1, 0, 0]).cuda()

        def step() -> tuple[torch.Tensor, ...]:
            y = ops.linear_gemm(wide, runner.runner_id, 256)
            z = ops.moe_gemm(x + y, weights, ids, mixture.runner_id, 256)
            return y, z, *torch.ops.cukiln.sample(z.float() / z.float().std(), state)

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # the first call of all
            out = step()
        draws = []
        for seed in (7, 8, 8):
            wide.copy_(matrix(16, 512, seed))
            graph.replay()
            expected = step()
            self.assertTrue(out[0].equal(expected[0]) and out[1].equal(expected[1]))
            draws.append(out[2].tolist())
        self.assertNotEqual(draws[1], draws[2])

    def test_a_capture_needs_no_reservation(self):
        wide = matrix(500, 512).cuda()
        tokens = on("cuda", matrix(500, 256), *routing(500, 2, 8))
        for runner, call in (
            (linear("cuda", max_tokens=4), lambda r: ops.linear_gemm(wide, r.runner_id, 256)),
            (moe("cuda", max_tokens=4), lambda r: ops.moe_gemm(*tokens, r.runner_id, 256)),
        ):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = call(runner)
            expected = call(runner)
            graph.replay()
            self.assertTrue(out.equal(expected))

    def test_one_layer_on_two_streams_at_once(self):
        step, inputs = two_at_once()
        expected = [step(*each) for each in inputs]
        calls = [lambda each=each: step(*each) for each in inputs]
        self.assertEqual(differences_at_once(calls, expected), [0, 0])

    def test_graphs_with_one_layer_are_replayed_at_once(self):
        step, inputs = two_at_once()
        expected = [step(*each) for each in inputs]
        side, forked = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        graphs, results = [], []
        for each in inputs:
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1]):
                results.append(step(*each))
        with torch.cuda.graph(forked):  # two streams of one graph
            side.wait_stream(torch.cuda.current_stream())
            both = [*step(*inputs[0])]
            with torch.cuda.stream(side):
                both += step(*inputs[1])
            torch.cuda.current_stream().wait_stream(side)
        graphs.append(forked)
        results.append(tuple(both))
        expected.append((*expected[0], *expected[1]))

        def replay(graph: torch.cuda.CUDAGraph, result: Tensors) -> Callable[[], Tensors]:
            return lambda: (graph.replay(), result)[1]

        calls = [replay(*each) for each in zip(graphs, results, strict=True)]
        self.assertEqual(differences_at_once(calls, expected), [0, 0, 0])

    def test_layers_take_turns_in_scratch(self):
        x = matrix(4096, 4096).cuda()
        weight = on("cuda", *quantised(matrix(256, 4096, 1)))
        hidden = on("cuda", matrix(4096, 256), *routing(4096, 2, 8))
        each, mixture = ct.LinearRunner(*weight), moe("cuda", max_topk=2)

        def peak(calls: list[Callable[[], object]]) -> int:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before, free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
            for call in calls:
                call()
            torch.cuda.synchronize()
            taken = free - torch.cuda.mem_get_info()[0]
            self.assertLess(taken, 200 << 20)
            return torch.cuda.max_memory_allocated() - before

        for first, call in (
            (each, lambda r: ops.linear_gemm(x, r.runner_id, 256)),
            (mixture, lambda r: ops.moe_gemm(*hidden, r.runner_id, 256)),
        ):
            one = peak([lambda: call(first)])
            self.assertGreater(one, 1 << 20)
            runners = [
                ct.LinearRunner(*weight) if first is each else moe("cuda", max_topk=2)
                for _ in range(8)
            ]
            reserve = [lambda r=runner: r.reserve(4096) for runner in runners]
            self.assertLessEqual(peak(reserve), one)
            self.assertEqual(peak([lambda r=runner: call(r) for runner in runners]), one)

    def test_nothing_is_cleared(self):
        x, gate_up, weight = matrix(64, 512).cuda(), matrix(64, 256).cuda(), matrix(256, 512).cuda()
        space = workspace(weight)
        forward = ops.linear_fwd(x, weight, *space)
        dy = matrix(64, 256, 3).cuda()
        runner, mixture = linear("cuda"), moe("cuda")
        hidden = on("cuda", matrix(64, 256), *routing(64, 2, 8))
        for name, call in {
            "amax_gsa": lambda: ops.amax_gsa(x),
            "swiglu_amax_gsa": lambda: ops.swiglu_amax_gsa(gate_up, math.inf),
            "gemm": lambda: ops.gemm(*quantised(x), *quantised(weight)),
            "linear_fwd": lambda: ops.linear_fwd(x, weight, *space),
            "linear_dgrad": lambda: ops.linear_dgrad(dy, *space[2:]),
            "linear_wgrad": lambda: ops.linear_wgrad(dy, *forward[1:]),
            "linear_gemm": lambda: ops.linear_gemm(x, runner.runner_id, 256),
            "moe_gemm": lambda: ops.moe_gemm(*hidden, mixture.runner_id, 256),
        }.items():
            with self.subTest(name):
                kinds = node_kinds(call)
                self.assertIn(KERNEL_NODE, kinds)
                self.assertNotIn(MEMSET_NODE, kinds)

    def test_reduce_overhead_skips_no_graph(self):
        from torch._dynamo.utils import counters

        runner = linear("cuda", 512, 512, max_tokens=32)

        def step(x: torch.Tensor) -> torch.Tensor:
            return ops.linear_gemm(ops.linear_gemm(x, runner.runner_id, 512), runner.runner_id, 512)

        x = matrix(16, 512, 1, 0.01).cuda()
        expected = step(x)
        counters.clear()
        compiled = torch.compile(step, mode="reduce-overhead", fullgraph=True)
        for _ in range(4):
            given = compiled(x).clone()
        self.assertTrue(given.equal(expected))
        self.assertEqual(counters["inductor"]["cudagraph_skips"], 0)

    def test_arguments_of_two_devices_are_refused(self):
        runner = linear("cuda")
        with self.assertRaisesRegex(RuntimeError, "x is .* on cpu.* weights are on cuda:0"):
            ops.linear_gemm(matrix(2, 512), runner.runner_id, 256)
        with self.assertRaisesRegex(RuntimeError, "on one device"):
            ops.quantize_nvfp4_from_buffer(matrix(2, 64).cuda(), torch.ones(2))


if __name__ == "__main__":
    sys.exit(run(Ops))
