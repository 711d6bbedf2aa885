# SPDX-License-Identifier: Apache-2.0
"""Graphs of other processes: with the same layers they run, with others they are refused."""

import json

import pytest
import torch
from torch import nn

import cukiln.torch as ct
from conftest import in_another_process
from cukiln.torch._fingerprint import fingerprint
from torch_support import Foreign, linear_runner, matrix, moe_runner, moe_weights, ops

MODEL = """
import json, torch
from torch import nn
from cukiln.torch import NVFP4Linear, NVFP4MoE, register_runner

def mlp():
    names = ("gate_proj", "up_proj", "down_proj")
    shapes = ((64, 32), (64, 32), (32, 64))
    return nn.ModuleDict({name: nn.Linear(*shape, False) for name, shape in zip(names, shapes)})

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        experts = [nn.Module(), nn.Module()]
        for expert in experts:
            for name, linear in mlp().items():
                expert.add_module(name, linear)
        self.experts = NVFP4MoE.from_linear(experts, limit=7.0)
    def forward(self, x):
        weights, ids = x[:, :2].softmax(-1).topk(1)
        return x + self.experts(x, weights, ids)

def model(seed):
    torch.manual_seed(seed)
    layers = [NVFP4Linear.from_linear(nn.Linear(64, 64)), nn.ReLU(), Experts()]
    return nn.Sequential(*layers).eval().requires_grad_(False)

torch.manual_seed(5)
x = torch.randn(4, 64)
"""


def test_an_exported_program_runs_where_the_same_layers_are_and_nowhere_else(tmp_path):
    path = str(tmp_path / "program.pt2")
    export = f"""
made = model(1)
torch.export.save(torch.export.export(made, (x,)), {path!r})
print(made(x).double().sum().item())
"""
    expected = in_another_process(MODEL + export)
    run = f"""
program = torch.export.load({path!r}).module()
try:
    print(program(x).double().sum().item())
except (IndexError, RuntimeError) as error:
    print(error)
"""
    assert in_another_process(MODEL + "made = model(1)" + run) == expected
    foreign = in_another_process(MODEL + "made = model(2)" + run)
    assert foreign.startswith("runner 0 has other weights than this graph was made with")
    registered = """
class Backend:
    def _run_impl(self, x):
        return torch.zeros(4, 64, dtype=torch.bfloat16)
register_runner(Backend())
made = model(1)
"""
    assert "runner 0, a Backend, has other weights" in in_another_process(MODEL + registered + run)


def test_inductors_cache_on_disk_is_hit_by_the_same_layers_and_by_no_others(tmp_path):
    compiled = """
from torch._dynamo.utils import counters
made = model(SEED)
given = torch.compile(made, fullgraph=True)(x)
counted = counters["inductor"]
print(json.dumps({
    "hits": counted["fxgraph_cache_hit"], "misses": counted["fxgraph_cache_miss"],
    "close": torch.allclose(given, made(x), rtol=0.05, atol=0.05),
}))
"""

    def run(seed):
        code = MODEL + compiled.replace("SEED", str(seed))
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
        return json.loads(in_another_process(code, **environment).splitlines()[-1])

    # AOTAutograd's cache, on top, has Inductor's hit inside.
    assert run(1) == {"hits": 0, "misses": 1, "close": True}
    assert run(1) == {"hits": 1, "misses": 0, "close": True}
    assert run(2) == {"hits": 0, "misses": 1, "close": True}


def test_an_op_takes_a_runner_with_the_fingerprint_or_any():
    x, topk = matrix(2, 64), (torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.int32))
    linear, moe = linear_runner(), moe_runner(*moe_weights())
    for op, arguments, runner, size in (
        (ops.linear_gemm, (x,), linear, 48),
        (ops.moe_gemm, (x, *topk), moe, 64),
    ):
        expected = op(*arguments, runner.runner_id, size)
        assert torch.equal(op(*arguments, runner.runner_id, size, runner.fingerprint), expected)
        with pytest.raises(IndexError, match=f"runner {runner.runner_id} has other weights"):
            op(*arguments, runner.runner_id, size, runner.fingerprint + 1)
    foreign = ct.register_runner(Foreign())
    ct.get_runner(foreign).fingerprint = 77
    for op, arguments, size in ((ops.linear_gemm, (x,), 48), (ops.moe_gemm, (x, *topk), 64)):
        with pytest.raises(RuntimeError, match=f"runner {foreign}, a Foreign, has other weights"):
            op(*arguments, foreign, size, linear.fingerprint)
        assert torch.equal(op(*arguments, foreign, size), op(*arguments, foreign, size, 77))


def test_a_fingerprint_is_of_contents_and_settings():
    up, down = moe_weights()
    same = moe_runner(up, down).fingerprint
    assert moe_runner(up, down).fingerprint == same
    for options in (
        {"limit": 7.0},
        {"alpha": 1.702},
        {"interleaved": True},
        {"activation_global_scale": torch.tensor([32.0, 1 / 32])},
        {"activation_global_scale": None, "dynamic_activations": True},
        {"hidden_global_scale": torch.tensor([32.0, 1 / 32])},
        {"expert_map": torch.tensor([0, 2, 1], dtype=torch.int32)},
        {"up_bias": torch.zeros(3, 64, dtype=torch.bfloat16)},
        {"down_bias": torch.zeros(3, 64, dtype=torch.bfloat16)},
    ):
        assert moe_runner(up, down, **options).fingerprint != same, options
    assert moe_runner(up, down, max_tokens=8, max_topk=2).fingerprint == same

    def layer():
        torch.manual_seed(3)
        return ct.NVFP4Linear.from_linear(nn.Linear(64, 13))

    first, again = layer(), layer()
    assert first.fingerprint == again.fingerprint and first.runner_id != again.runner_id
    assert 2 <= first.fingerprint < 1 << 62
    state = first.state_dict()
    state["bias"][3] += 1
    again.load_state_dict(state)
    assert again.fingerprint != first.fingerprint


def biased_experts(change=lambda state: None, **settings):
    """Quantised experts with biases and a map, a tensor of which is changed before they are."""
    torch.manual_seed(3)
    weights = torch.randn(3, 64, 64), torch.randn(3, 64, 32)
    made = ct.NVFP4Experts.from_bf16(*weights, limit=7.0).state_dict()
    biases = torch.randn(2, 3, 64).bfloat16()
    state = {**made, "w13_bias": biases[0], "w2_bias": biases[1]}
    change(state)
    expert_map = settings.pop("expert_map", torch.tensor([0, 2, 1]))
    layer = ct.NVFP4Experts(
        3,
        64,
        32,
        bias=True,
        **{"limit": 7.0, "activations": "nvfp4", "expert_map": expert_map, **settings},
    )
    layer.load_state_dict(state)
    return layer


def test_experts_with_biases_have_a_fingerprint_of_all_that_they_compute_with():
    def add_one(name):
        def change(state):
            flat = state[name].view(torch.uint8).reshape(-1)
            flat[flat.numel() // 2] ^= 1

        return change

    first, again = biased_experts(), biased_experts()
    assert first.fingerprint == again.fingerprint and first.runner_id != again.runner_id
    assert 2 <= first.fingerprint < 1 << 62
    seen = {first.fingerprint}
    for name in first.state_dict():
        if "input_scale" not in name:
            seen.add(biased_experts(add_one(name)).fingerprint)
    for name in ("w13_input_scale", "w2_input_scale"):
        seen.add(biased_experts(lambda state, name=name: state[name].fill_(0.5)).fingerprint)
    for settings in ({"limit": 6.0}, {"alpha": 1.702}, {"beta": 1.0}, {"interleaved": True},
                     {"activations": "bf16"}, {"expert_map": None},
                     {"expert_map": torch.tensor([0, 1, 2])}):  # fmt: skip
        seen.add(biased_experts(**settings).fingerprint)
    assert len(seen) == 1 + 8 + 2 + 7

    x, ids, weights = matrix(2, 64), torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, 1)
    given = x, weights, ids, first.runner_id, 64
    assert torch.equal(ops.moe_gemm(*given, first.fingerprint), first(x, ids, weights))
    with pytest.raises(IndexError, match="other weights"):
        ops.moe_gemm(*given, first.fingerprint + 1)


def test_an_exported_program_runs_on_no_other_experts_with_biases(tmp_path):
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = biased_experts()

        def forward(self, x):
            weights, ids = x[:, :3].softmax(-1).topk(1)
            return self.experts(x, ids, weights)

    made, x, path = Routed(), torch.randn(4, 64), tmp_path / "program.pt2"
    expected = made(x)
    torch.export.save(torch.export.export(made, (x,)), path)
    program = torch.export.load(path).module()
    assert torch.equal(program(x), expected)
    state = made.experts.state_dict()
    state["w2_bias"] += 1
    made.experts.load_state_dict(state)  # the runner of before has ended, and a new one has its id
    with pytest.raises((IndexError, RuntimeError), match=r"no runner|other weights"):
        program(x)


@pytest.mark.parametrize("size", [1, 5, 4096 * 4, 4096 * 4 + 3, 4096 * 4 * 1025 + 7])
def test_every_bit_counts(size):
    data = torch.randint(256, (size,), dtype=torch.uint8)
    seen = {fingerprint([data], ()), fingerprint([data[:-1]], ())}
    for place in {0, size // 2, size - 1}:
        for bit in (1, 128):
            data[place] ^= bit
            seen.add(fingerprint([data], ()))
            data[place] ^= bit
    assert len(seen) == 2 + 2 * len({0, size // 2, size - 1})
    unaligned = torch.cat([data[:1], data])[1:]
    assert fingerprint([unaligned], ()) == fingerprint([data], ())
    if size > 4096 * 8:  # the same bytes elsewhere
        data[:16384], data[16384:32768] = data[16384:32768].clone(), data[:16384].clone()
        assert fingerprint([data], ()) not in seen
