# SPDX-License-Identifier: Apache-2.0
"""The layers under torch.compile, torch.export and AOTInductor, on the CPU."""

import io

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend, EagerAndRecordGraphs

from cukiln.torch import NVFP4Linear, NVFP4MoE, NVFP4SharedExpert, register_runner
from torch_support import Foreign, matrix, ops


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(20250605)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(64, 32, bias=False)
        self.up_proj = nn.Linear(64, 32, bias=False)
        self.down_proj = nn.Linear(32, 64, bias=False)


class Block(nn.Module):
    """Each kind of layer, with what is fused around it."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(64, 4)
        self.first, self.second = (
            NVFP4Linear.from_linear(nn.Linear(*features)) for features in ((64, 40), (40, 64))
        )
        self.experts = NVFP4MoE.from_linear([Mlp() for _ in range(4)])
        self.shared = NVFP4SharedExpert.from_linear([Mlp()], limit=10.0)
        self.scaled = NVFP4SharedExpert.from_linear([Mlp()], activation_scale=1e-3)

    def forward(self, x):
        x = x + self.second(torch.relu(self.first(x)))
        weights, ids = self.router(x).softmax(-1).topk(2)
        return x + self.experts(x, weights, ids) + self.shared(x) + self.scaled(x)


def block():
    return Block().eval().requires_grad_(False)


def nvfp4_nodes(graph):
    names = [str(node.target).removesuffix(".default") for node in graph.nodes]
    return [name for name in names if name.startswith("nvfp4")]


def test_each_layer_is_one_node_of_one_graph():
    model, backend = block(), EagerAndRecordGraphs()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    x = torch.randn(5, 64)
    assert torch.equal(compiled(x), model(x))
    assert torch._dynamo.explain(model)(x).graph_break_count == 0
    assert nvfp4_nodes(backend.graphs[0].graph) == [
        "nvfp4.linear_gemm",
        "nvfp4.linear_gemm",
        "nvfp4.moe_gemm",
        "nvfp4.moe_gemm",  # a shared expert without a scale for what lies between its products
        "nvfp4.moe_gemm",
    ]


def test_it_says_whether_it_can_be_compiled():
    layer = NVFP4Linear(64, 32)
    assert "process_weights_after_loading" in layer.compile_unsupported_reason()
    assert block().first.compile_unsupported_reason() is None


def test_inductor_compiles_it_once_for_any_number_of_tokens():
    model = nn.Sequential(block().first, nn.ReLU(), block().second)
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for tokens in (3, 5, 8, 17, 33):
        x = torch.randn(tokens, 64, dtype=torch.bfloat16)
        assert torch.equal(compiled(x), model(x))
    assert counter.frame_count == 1


def test_each_kind_of_layer_is_compiled_once_for_any_number_of_tokens():
    model = block()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for tokens in (3, 5, 8, 17, 33):
        x = torch.randn(2, tokens, 64)
        assert torch.equal(compiled(x), model(x))
    assert counter.frame_count == 1


def test_one_token_needs_no_graph_of_its_own():
    model = block()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for tokens in (1, 3, 64):
        x = torch.randn(tokens, 64)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        assert torch.equal(compiled(x), model(x))
    assert counter.frame_count == 1


def test_a_registered_runner_is_a_node_as_a_layers_own_is():
    foreign = Foreign()
    number, backend = register_runner(foreign), CompileCounterWithBackend("inductor")

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def model(x, weights, ids):
        hidden = ops.moe_gemm(torch.relu(x), weights, ids, number, 64)
        return ops.linear_gemm(hidden, number, 48) + 1

    for tokens in (3, 17):
        x, weights = matrix(tokens, 64), torch.rand(tokens, 2)
        ids = torch.zeros(tokens, 2, dtype=torch.int32)
        hidden = foreign._run_impl(torch.relu(x), weights, ids)
        assert model(x, weights, ids).equal(foreign._run_impl(hidden) + 1)
    assert backend.frame_count == 1
    assert nvfp4_nodes(backend.graphs[0].graph) == ["nvfp4.moe_gemm", "nvfp4.linear_gemm"]


@pytest.mark.parametrize(("dynamic", "graphs"), [(True, 2), (None, 3)])
def test_twelve_layers_compiled_one_by_one_share_graphs(dynamic, graphs):
    """Runner numbers are variables, of which PyTorch gives 0 and 1 graphs of their own; without
    `dynamic`, the second number is what makes them variables."""
    layers = [NVFP4Linear.from_linear(nn.Linear(64, 64)) for _ in range(12)]
    blocks = [nn.Sequential(nn.LayerNorm(64), layer) for layer in layers]
    counter = CompileCounterWithBackend("eager")
    x = torch.randn(5, 64)
    for each in blocks:
        compiled = torch.compile(each, fullgraph=True, dynamic=dynamic, backend=counter)
        assert torch.equal(compiled(x), each(x))
    assert counter.frame_count <= graphs


def test_a_graph_with_all_layers_is_compiled_once():
    model = nn.Sequential(*(NVFP4Linear.from_linear(nn.Linear(64, 64)) for _ in range(12)))
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for tokens in (2, 7):
        x = torch.randn(tokens, 64)
        assert torch.equal(compiled(x), model(x))
    assert counter.frame_count == 1


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_is_saved_and_loaded(strict):
    model = block()
    x = torch.randn(4, 64)
    program = torch.export.export(
        model, (x,), dynamic_shapes=({0: torch.export.Dim("tokens")},), strict=strict
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for tokens in (4, 9):
        x = torch.randn(tokens, 64)
        assert torch.equal(loaded(x), model(x))


@pytest.mark.parametrize("settings", [{}, {"activation_scale": 1e-3}, {"activations": "bf16"}])
def test_a_shared_expert_alone_is_exported(settings):
    layer = NVFP4SharedExpert.from_linear([Mlp()], **settings)
    x = torch.randn(4, 64)
    assert torch.equal(torch.export.export(layer, (x,)).module()(x), layer(x))


def test_an_aotinductor_package_runs(tmp_path):
    model = nn.Sequential(NVFP4Linear.from_linear(nn.Linear(64, 32)), nn.ReLU()).eval()
    x = torch.randn(4, 64)
    with torch.no_grad():
        program = torch.export.export(
            model, (x,), dynamic_shapes=({0: torch.export.Dim("tokens", min=2, max=64)},)
        )
        package = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "linear.pt2")
        )
        run = torch._inductor.aoti_load_package(package)
        for tokens in (4, 31):
            x = torch.randn(tokens, 64)
            torch.testing.assert_close(run(x), model(x))
