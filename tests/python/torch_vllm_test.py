# SPDX-License-Identifier: Apache-2.0
"""The plugin for vLLM, over stand-ins for what it takes from vLLM."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tomllib
import torch
from torch import nn

import torch_vllm_stand_ins as stand_ins
from cukiln.adapters.vllm import register
from torch_layers_support import cosine
from torch_support import matrix, numbers
from torch_vllm_support import (
    EXPERTS,
    LINEAR,
    PLUGIN,
    Engine,
    emulated_experts,
    load_experts,
    load_linear,
    reload,
)

REPOSITORY = Path(__file__).parents[2]
KERNEL = "CukilnNvFp4LinearKernel"


@pytest.fixture
def vllm(monkeypatch):
    monkeypatch.setenv("CUKILN_VLLM", "1")
    own, made = stand_ins.modules()
    for name in (*PLUGIN, "vllm.stand_ins"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    engine = Engine()
    engine.own = own
    yield engine
    for name in PLUGIN:
        sys.modules.pop(name, None)


@pytest.fixture
def plugged(vllm):
    register()
    return vllm


# ---- Off, on, and absent


def run(code, **environment):
    environment = {**os.environ, "CUKILN_VLLM": "", **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_it_is_the_entry_point_that_vllm_loads():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["vllm.general_plugins"] == {
        "cukiln": f"{register.__module__}:{register.__name__}"
    }


@pytest.mark.parametrize("value", ["", "0"])
def test_it_is_off_and_imports_nothing(value):
    code = (
        "import sys; from cukiln.adapters.vllm import register; register()\n"
        "print([name for name in ('torch', 'vllm', 'cukiln.torch') if name in sys.modules])"
    )
    assert run(code, CUKILN_VLLM=value) == (0, "[]\n")


def test_without_vllm_two_lines_say_so():
    code = (
        "import logging, sys; logging.basicConfig(); sys.modules['vllm'] = None\n"
        "from cukiln.adapters.vllm import register; register()"
    )
    status, said = run(code, CUKILN_VLLM="1")
    assert (status, said.count("vLLM's own kernels compute")) == (0, 2), said


PRIVATE = {
    "vllm_linear": (
        f"{stand_ins.KERNELS}:_POSSIBLE_NVFP4_KERNELS",
        f"{stand_ins.KERNELS}:_LINEAR_BACKEND_KERNEL_MAP",
        f"{stand_ins.KERNELS}:_get_linear_backend",
        f"{stand_ins.KERNELS}:init_nvfp4_linear_kernel",
        f"{stand_ins.KERNELS}:NvFp4LinearKernel",
        f"{stand_ins.MODELOPT}:ModelOptLinearMethod",
        f"{stand_ins.COMPRESSED}.schemes:CompressedTensorsW4A4Fp4",
        f"{stand_ins.QUARK}:QuarkNVFP4",
        "vllm.config.kernel:KernelConfig",
    ),
    "vllm_experts": (
        f"{stand_ins.MODELOPT}:ModelOptNvFp4Config",
        f"{stand_ins.MODELOPT}:ModelOptNvFp4FusedMoE",
        f"{stand_ins.EXPERTS}.compressed_tensors_moe_w4a4_nvfp4:CompressedTensorsW4A4Nvfp4MoEMethod",
        f"{stand_ins.LAYERS}.fused_moe.activation:MoEActivation",
    ),
}


@pytest.mark.parametrize("name", [*PRIVATE["vllm_linear"], *PRIVATE["vllm_experts"]])
def test_a_name_that_vllm_lacks_leaves_its_own_kernels_and_is_said_once(vllm, caplog, name):
    """fault 441"""
    module, attribute = name.split(":")
    delattr(vllm[module], attribute)
    register()
    assert [line for line in caplog.messages if attribute in line] == caplog.messages
    assert len(caplog.messages) == 1
    if name in PRIVATE["vllm_linear"]:
        (possible,) = vllm.own._POSSIBLE_NVFP4_KERNELS.values()
        assert possible == [vllm.own.MarlinNvFp4LinearKernel]
    else:
        method = vllm.own.ModelOptNvFp4Config.FusedMoEMethodCls
        assert method is vllm.own.ModelOptNvFp4FusedMoE


def apply_with_more(self, layer, x, bias=None, scratch=None):
    pass


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("NvFp4LinearKernel", "apply_weights"),
        ("QuarkNVFP4", "process_weights_after_loading"),
        ("ModelOptNvFp4FusedMoE", "apply"),
        ("CompressedTensorsW4A4Nvfp4MoEMethod", "process_weights_after_loading"),
    ],
)
def test_so_does_another_signature(vllm, caplog, owner, name):
    """fault 441"""
    setattr(getattr(vllm.own, owner), name, apply_with_more)
    register()
    assert len(caplog.messages) == 1
    assert "apply_with_more takes (self, layer, x, bias, scratch); expected (" in caplog.text


# ---- Selection


def test_the_kernel_is_first_and_has_a_name_however_often_it_registers(plugged):
    register()
    names = [kernel.__name__ for kernel in plugged.possible]
    assert names[0] == KERNEL and names.count(KERNEL) == 1
    kernels = plugged[stand_ins.KERNELS]
    assert kernels._LINEAR_BACKEND_KERNEL_MAP["cukiln"] == {plugged.possible[0]}
    for use_a16 in (False, True):
        assert type(kernels.init_nvfp4_linear_kernel(use_a16)).__name__ == KERNEL
        for kind in LINEAR:  # whose modules imported the function before
            assert type(plugged.linear(kind, use_a16).kernel).__name__ == KERNEL
    (field,) = plugged.own.KernelConfig.__dataclass_fields__.values()
    assert "cukiln" in field.type.__args__


@pytest.mark.parametrize("use_a16", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda own: own.linear_backend.__setitem__(0, "marlin"),
        lambda own: own.envs.VLLM_DISABLED_KERNELS.append(KERNEL),
        lambda own: setattr(own.envs, "VLLM_BATCH_INVARIANT", True),
        lambda own: setattr(own.current_platform, "capability", (10, 0)),
        lambda own: setattr(own.current_platform, "is_cuda", lambda: False),
    ],
)
def test_what_the_user_or_the_device_asks_for_is_obeyed(plugged, change, use_a16):
    change(plugged.own)
    kernel = plugged[stand_ins.KERNELS].init_nvfp4_linear_kernel(use_a16)
    assert type(kernel) is plugged.own.MarlinNvFp4LinearKernel
    plugged.own.linear_backend[0] = "auto"


# ---- Linear layers


def parts(*sizes, columns=64, equal=True):
    """Of one matrix, with one amax or several."""
    made = [matrix(size, columns, seed) for seed, size in enumerate(sizes)]
    for index, part in enumerate(made):
        part[0, 0] = 6.0 if equal else 6.0 * (1.37**index)
    return made


def assert_product(y, x, weight, bias=0.0, roundings=1):
    """To bf16, and where there is more than one rounding, before the bias is added."""
    product = numbers(x).astype(np.float64) @ weight.numpy().T
    bound = 2**-8 * (np.abs(product + bias) + (roundings - 1) * np.abs(product))
    assert (np.abs(numbers(y) - product - bias) <= 1.01 * bound + 2**-40).all()


@pytest.mark.parametrize("use_a16", [False, True])
@pytest.mark.parametrize("kind", LINEAR)
def test_linear_layers_compute_with_the_memory_that_vllm_loaded(plugged, kind, use_a16):
    method, layer = plugged.linear(kind, use_a16), nn.Module()
    expected = load_linear(method, layer, parts(64, 32))
    memory = next(p for name, p in layer.named_parameters() if "weight" in name).data_ptr()
    method.process_weights_after_loading(layer)
    assert layer.weight.data_ptr() == memory
    x, bias = matrix(5, 64, 9), matrix(1, 96, 8)[0]
    assert_product(method.kernel.apply_weights(layer, x), x, expected)
    y = method.kernel.apply_weights(layer, x.view(1, 5, 64), bias)
    assert y.shape == (1, 5, 96)
    assert_product(y[0], x, expected, numbers(bias))
    y = method.kernel.apply_weights(layer, x.float(), bias.float())
    assert y.dtype == torch.float32
    assert_product(y, x, expected, numbers(bias), roundings=2)


@pytest.mark.parametrize(("rows", "columns"), [(20, 64), (64, 48), (12, 16)])
def test_shards_of_any_size_are_padded(plugged, rows, columns):
    method, layer = plugged.linear(LINEAR[0]), nn.Module()
    expected = load_linear(method, layer, parts(rows, columns=columns))
    method.process_weights_after_loading(layer)
    x, bias = matrix(3, columns, 9), matrix(1, rows, 8)[0]
    y = method.kernel.apply_weights(layer, x, bias)
    assert_product(y, x, expected, numbers(bias), roundings=2)


@pytest.mark.parametrize("kind", LINEAR)
def test_parts_with_scales_of_their_own_keep_them(plugged, kind):
    """fault 443"""
    method, layer = plugged.linear(kind), nn.Module()
    expected = load_linear(method, layer, parts(48, 32, 16, equal=False))
    method.process_weights_after_loading(layer)
    x, bias = matrix(7, 64, 9), matrix(1, 96, 8)[0]
    y = method.kernel.apply_weights(layer, x, bias)
    assert_product(y, x, expected, numbers(bias), roundings=2)


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("kind", LINEAR)
def test_a_reload_writes_into_what_graphs_read(plugged, kind, equal):
    """fault 444"""
    method, layer = plugged.linear(kind), nn.Module()
    load_linear(method, layer, parts(64, 32, equal=equal))
    method.process_weights_after_loading(layer)
    compiled = torch.compile(
        lambda x: method.kernel.apply_weights(layer, x), fullgraph=True, backend="aot_eager"
    )
    x = matrix(5, 64, 9)
    compiled(x)
    memory = {name: parameter.data_ptr() for name, parameter in layer.named_parameters()}
    other = [part * 0.4 for part in reversed(parts(32, 64))]
    expected = reload(
        layer,
        lambda: load_linear(method, layer, other),
        method.process_weights_after_loading,
    )
    assert {name: parameter.data_ptr() for name, parameter in layer.named_parameters()} == memory
    assert_product(compiled(x), x, expected, roundings=2)


def test_a_reload_with_other_scales_for_each_part_is_refused(plugged):
    """fault 443"""
    method, layer = plugged.linear(LINEAR[0]), nn.Module()
    load_linear(method, layer, parts(64, 32))
    method.process_weights_after_loading(layer)
    with pytest.raises(ValueError, match="start the engine with these weights"):
        reload(
            layer,
            lambda: load_linear(method, layer, parts(64, 32, equal=False)),
            method.process_weights_after_loading,
        )


def test_graphs_that_weights_make_different_have_other_compile_keys(plugged):
    """fault 442"""
    factor, keys = plugged["vllm"].envs.environment_variables["CUKILN_VLLM"], []
    for equal in (True, False):
        method, layer = plugged.linear(LINEAR[0]), nn.Module()
        load_linear(method, layer, parts(64, 32, equal=equal))
        method.process_weights_after_loading(layer)
        reload(
            layer,
            lambda: load_linear(method, layer, parts(64, 32)),  # noqa: B023
            method.process_weights_after_loading,
        )
        keys.append(factor())
    assert keys[1] == f"{keys[0]} 1" and keys[0].endswith(" 0")


def test_layers_of_one_shape_share_a_graph(plugged):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(
        lambda kernel, layer, x: kernel.apply_weights(layer, x), fullgraph=True, backend=backend
    )
    for seed in range(3):
        method, layer = plugged.linear(LINEAR[0]), nn.Module()
        expected = load_linear(method, layer, [matrix(64, 64, seed)])
        method.process_weights_after_loading(layer)
        x = matrix(5, 64, 9)
        assert_product(compiled(method.kernel, layer, x), x, expected)
    code = {graph.code for graph in graphs}
    assert len(code) == 1 and "w4a16_gemm" in code.pop()


# ---- Experts


def experts(count=3, hidden=64, width=32, equal=True):
    made = []
    for seed in range(count):
        gate, up = (matrix(width, hidden, 10 * seed + part) for part in range(2))
        gate[0, 0] = up[0, 0] = 5.0
        if not equal:
            up *= (1.0, 4.0, 1.3)[seed % 3]
        made.append((gate, up, matrix(hidden, width, 10 * seed + 2)))
    return made


def routing(tokens=6, count=3, topk=2):
    generator = torch.Generator().manual_seed(4)
    scores = torch.rand(tokens, count, generator=generator)
    weights, ids = scores.topk(topk)
    return weights, ids.int()


def apply(method, layer, x, weights, ids):
    return method.apply(layer, x, weights, ids, None, None)


@pytest.mark.parametrize("limit", [None, 2.0])
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("kind", EXPERTS)
def test_experts_compute_with_the_memory_that_vllm_loaded(plugged, kind, equal, limit):
    method, layer = plugged.experts(kind, plugged.moe()), nn.Module()
    assert type(method).__name__ == kind  # by which vLLM's loaders know it
    assert not method.is_monolithic
    layer.swiglu_limit = limit
    expected = load_experts(method, layer, experts(equal=equal))
    memory = next(p for name, p in layer.named_parameters() if "w13_weight" in name).data_ptr()
    if equal or limit is None:
        method.process_weights_after_loading(layer)
    else:
        with pytest.warns(UserWarning, match="expert 2: gate and up"):
            method.process_weights_after_loading(layer)
    assert layer.w13_weight.data_ptr() == memory
    x, (weights, ids) = matrix(6, 64, 9), routing()
    y = apply(method, layer, x, weights, ids)
    least = 0.99999 if equal or limit is None else 0.99
    assert cosine(y, emulated_experts(x, weights, ids, expected, limit)) > least


def test_a_rank_computes_its_own_experts(plugged):
    method, layer = plugged.experts(EXPERTS[0], plugged.moe()), nn.Module()
    layer.expert_map = torch.tensor([-1, 0, 1, 2, -1], dtype=torch.int32)
    expected = load_experts(method, layer, experts())
    method.process_weights_after_loading(layer)
    x, weights = matrix(3, 64, 9), torch.full((3, 2), 0.5)
    ids = torch.tensor([[0, 1], [2, 4], [3, 1]], dtype=torch.int32)
    local = torch.tensor([[3, 0], [1, 3], [2, 0]])
    zeros = [torch.zeros_like(weight) for weight in expected[0]]
    assert cosine(
        apply(method, layer, x, weights, ids),
        emulated_experts(x, weights, local, [*expected, zeros]),
    ) > 0.99999  # fmt: skip


@pytest.mark.parametrize("kind", EXPERTS)
def test_a_reload_writes_into_what_the_runner_has(plugged, kind):
    """fault 444"""
    method, layer = plugged.experts(kind, plugged.moe()), nn.Module()
    load_experts(method, layer, experts())
    method.process_weights_after_loading(layer)
    runner = layer.cukiln_runner
    other = [[matrix * 0.7 for matrix in expert] for expert in reversed(experts(equal=False))]
    expected = reload(
        layer,
        lambda: load_experts(method, layer, other),
        method.process_weights_after_loading,
    )
    assert layer.cukiln_runner is runner
    x, (weights, ids) = matrix(6, 64, 9), routing()
    y = apply(method, layer, x, weights, ids)
    assert cosine(y, emulated_experts(x, weights, ids, expected)) > 0.99999
    layer.w13_weight = nn.Parameter(layer.w13_weight.clone(), requires_grad=False)
    with pytest.raises(RuntimeError, match="w13_weight of these experts was replaced"):
        apply(method, layer, x, weights, ids)


def test_weights_of_a_cache_in_the_kernels_order_are_used_as_they_are(plugged):
    """fault 444"""
    method, layer = plugged.experts(EXPERTS[0], plugged.moe()), nn.Module()
    load_experts(method, layer, experts())
    method.process_weights_after_loading(layer)
    mapped = nn.Module()
    mapped.__dict__.update(expert_map=None, swiglu_limit=None, apply_router_weight_on_input=False)
    for name, parameter in layer.named_parameters():
        mapped.register_parameter(name, parameter)
    method.process_weights_after_loading(mapped)
    x, (weights, ids) = matrix(6, 64, 9), routing()
    y = apply(method, mapped, x, weights, ids)
    assert y.equal(apply(method, layer, x, weights, ids))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"moe_backend": "marlin"}, "--moe-backend is marlin"),
        ({"activation": "gelu"}, "the activation is gelu"),
        ({"has_bias": True}, "biases"),
        ({"is_lora_enabled": True}, "LoRA"),
        ({"enable_eplb": True}, "EPLB"),
        ({"dp_size": 2}, "ranks exchange tokens"),
        ({"use_all2all_kernels": True}, "ranks exchange tokens"),
        ({"use_passthrough_all2all": True}, "ranks exchange tokens"),
        ({"width": 48}, "multiples of 32"),
    ],
)
@pytest.mark.parametrize("kind", EXPERTS)
def test_experts_of_another_kind_stay_vllms_and_it_is_said(plugged, caplog, kind, settings, reason):
    """fault 445"""
    method, layer = plugged.experts(kind, plugged.moe(**settings)), nn.Module()
    assert method.is_monolithic
    method.process_weights_after_loading(layer)
    assert layer.built_in and apply(method, layer, *[None] * 3) == "vLLM's"
    assert method.get_fused_moe_quant_config(layer) == "vLLM's"
    assert reason in caplog.text


def test_router_weights_on_inputs_are_vllms(plugged, caplog):
    """fault 445"""
    method, layer = plugged.experts(EXPERTS[0], plugged.moe()), nn.Module()
    layer.expert_map, layer.swiglu_limit, layer.apply_router_weight_on_input = None, None, True
    method.process_weights_after_loading(layer)
    assert layer.built_in and "the router's weights scale their inputs" in caplog.text


def test_experts_without_an_attribute_that_is_asked_for_are_vllms(plugged, caplog):
    """fault 441"""
    moe = plugged.moe()
    del moe.has_bias
    assert plugged.experts(EXPERTS[0], moe).is_monolithic and "'has_bias'" in caplog.text
    method, layer = plugged.experts(EXPERTS[0], plugged.moe()), nn.Module()
    layer.expert_map = layer.swiglu_limit = None
    method.process_weights_after_loading(layer)
    assert layer.built_in and "no apply_router_weight_on_input" in caplog.text


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.WARNING, "vllm.cukiln")
