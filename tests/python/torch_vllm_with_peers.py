# SPDX-License-Identifier: Apache-2.0
"""The plugin in vLLM itself, on a CPU that vLLM takes for a GPU of compute capability 9.0: its
selection, its methods for linear layers and experts, its reload and its command line. None of
vLLM's kernels runs.

CUKILN_TEST_VLLM is a folder with the .py files of vLLM's wheel (0.33.0). Besides PyTorch, NumPy and
pytest this needs aiohttp apache-tvm-ffi blake3 cachetools cbor2 cloudpickle einops fastapi ijson
jsonschema llguidance loguru mcp msgspec openai orjson oss-harmony partial-json-parser pillow
prometheus_client protobuf psutil py-cpuinfo pybase64 pydantic python-json-logger pyyaml pyzmq regex
requests setproctitle tiktoken tqdm transformers<5.21 uvloop watchfiles, and, without what they
require, compressed-tensors==0.17.0 and xgrammar==0.2.8.
"""

import importlib.metadata
import os
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_vllm_stand_ins as stand_ins
from cukiln.adapters.vllm import register
from torch_layers_support import cosine
from torch_support import matrix
from torch_vllm_support import (
    EXPERTS,
    LINEAR,
    Engine,
    emulated_experts,
    fill,
    load_linear,
    modelopt,
)
from torch_vllm_test import (  # noqa: F401  (run again, in vLLM)
    KERNEL,
    assert_product,
    experts,
    parts,
    routing,
    test_a_rank_computes_its_own_experts,
    test_a_reload_with_other_scales_for_each_part_is_refused,
    test_a_reload_writes_into_what_graphs_read,
    test_a_reload_writes_into_what_the_runner_has,
    test_experts_compute_with_the_memory_that_vllm_loaded,
    test_layers_of_one_shape_share_a_graph,
    test_linear_layers_compute_with_the_memory_that_vllm_loaded,
    test_parts_with_scales_of_their_own_keep_them,
    test_shards_of_any_size_are_padded,
    test_weights_of_a_cache_in_the_kernels_order_are_used_as_they_are,
)

VLLM = os.environ["CUKILN_TEST_VLLM"]
if not Path(VLLM, "vllm").is_dir():
    raise FileNotFoundError(f"CUKILN_TEST_VLLM is {VLLM!r}; expected a folder with vllm in it")
sys.path.append(VLLM)


class Vllm(Engine):
    def __init__(self):
        pass  # the plugin is registered once

    def linear(self, kind, use_a16=True):
        if kind == LINEAR[0]:
            config = types.SimpleNamespace(group_size=16)
            algorithm = "W4A16_NVFP4" if use_a16 else "NVFP4"
            return self[stand_ins.MODELOPT].build_linear_method(config, algorithm, "layer")
        if kind == LINEAR[2]:
            keys = self[f"{stand_ins.QUANTIZATION}.utils.quant_utils"]
            return self[stand_ins.QUARK].QuarkNVFP4(keys.kNvfp4Dynamic)
        return super().linear(kind, use_a16)

    def experts(self, kind, moe):
        if kind != EXPERTS[0]:
            return super().experts(kind, moe)
        config = types.SimpleNamespace(
            quant_method="NVFP4",
            is_checkpoint_nvfp4_serialized=True,
            group_size=16,
            moe_activation_override=None,
        )
        method = self[stand_ins.MODELOPT].ModelOptNvFp4Config.FusedMoEMethodCls
        return method(quant_config=config, moe_config=moe)


@pytest.fixture(scope="module")
def vllm():
    engine, patch = Vllm(), pytest.MonkeyPatch()
    patch.setenv("CUKILN_VLLM", "1")
    asking = f"{stand_ins.QUANTIZATION}.online"  # its library, which is not there, if there is CUDA
    for name in ("cukiln.torch.vllm_linear", "cukiln.torch.vllm_experts", f"{asking}.fp8"):
        engine[name]
    platforms = engine["vllm.platforms"]
    device = type(platforms.current_platform)
    capability = engine["vllm.platforms.interface"].DeviceCapability(9, 0)
    patch.setattr(device, "_enum", platforms.PlatformEnum.CUDA)
    patch.setattr(device, "device_type", "cuda")
    patch.setattr(device, "is_cuda", lambda self: True)
    patch.setattr(device, "get_device_capability", classmethod(lambda *_, **__: capability))
    parameter = engine["vllm.model_executor.parameter"]
    patch.setattr(parameter, "get_tensor_model_parallel_rank", lambda: 0)
    patch.setattr(parameter, "get_tensor_model_parallel_world_size", lambda: 1)
    oracle = engine[f"{stand_ins.LAYERS}.fused_moe.oracle.nvfp4"]
    experts = types.SimpleNamespace(is_monolithic=lambda: True)
    chosen = oracle.NvFp4MoeBackend.MARLIN, experts
    for module in (stand_ins.MODELOPT, f"{stand_ins.EXPERTS}.compressed_tensors_moe_w4a4_nvfp4"):
        patch.setattr(engine[module], "select_nvfp4_moe_backend", lambda **_: chosen)
    yield engine
    patch.undo()


@pytest.fixture
def plugged(vllm):
    os.environ["CUKILN_VLLM"] = "1"
    register()
    return vllm


def test_vllm_loads_the_plugin_and_takes_its_kernel(vllm, monkeypatch):
    monkeypatch.setenv("CUKILN_VLLM", "1")
    point = importlib.metadata.EntryPoint("cukiln", "cukiln.adapters.vllm:register", "")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    plugins = vllm["vllm.plugins"]
    for _ in range(2):
        plugins.plugins_loaded = False
        plugins.load_general_plugins()
    assert [kernel.__name__ for kernel in vllm.possible].count(KERNEL) == 1
    kernels = vllm[stand_ins.KERNELS]
    for use_a16 in (False, True):
        assert type(kernels.init_nvfp4_linear_kernel(use_a16)).__name__ == KERNEL


def test_the_command_line_and_the_configuration_have_its_name(plugged):
    engine, config = plugged["vllm.engine.arg_utils"], plugged["vllm.config"]
    parser = engine.EngineArgs.add_cli_args(
        plugged["vllm.utils.argparse_utils"].FlexibleArgumentParser()
    )
    named = parser.parse_args(["--linear-backend", "cukiln"])
    kernel_config = config.KernelConfig()
    kernel_config.linear_backend = named.linear_backend  # as EngineArgs does
    kernels = plugged[stand_ins.KERNELS]
    with config.set_current_vllm_config(types.SimpleNamespace(kernel_config=kernel_config)):
        for use_a16 in (False, True):
            assert type(kernels.init_nvfp4_linear_kernel(use_a16)).__name__ == KERNEL
        kernel_config.linear_backend = "emulation"
        kernel = kernels.init_nvfp4_linear_kernel()
        assert type(kernel).__name__ == "EmulationNvFp4LinearKernel"


def test_compiled_graphs_are_kept_apart(plugged):
    assert plugged["vllm.envs"].compile_factors()["CUKILN_VLLM"]


def test_what_is_asked_of_a_mixture_is_there(plugged):
    config = plugged[f"{stand_ins.LAYERS}.fused_moe.config"]
    moe = vars(plugged.moe())
    for name in moe:
        assert name in config.FusedMoEConfig.__dataclass_fields__ or name == "is_act_and_mul"
    for name in vars(moe["moe_parallel_config"]):
        given = config.FusedMoEParallelConfig
        assert name in given.__dataclass_fields__ or hasattr(given, name)


@pytest.mark.parametrize("algorithm", ["NVFP4", "W4A16_NVFP4"])
def test_tensor_parallel_layers_load_their_shards(plugged, monkeypatch, algorithm):
    linear = plugged["vllm.model_executor.layers.linear"]
    config = plugged[stand_ins.MODELOPT].ModelOptNvFp4Config(algorithm, True, None, [])
    named = {"quant_config": config, "bias": False, "params_dtype": torch.bfloat16}
    heads = {"q": matrix(64, 96, 1), "k": matrix(32, 96, 2), "v": 1.4 * matrix(32, 96, 3)}
    out, x, sums = matrix(40, 96, 4), matrix(5, 96, 9), 0.0
    for rank in range(2):
        for module in (linear, plugged["vllm.model_executor.parameter"]):
            monkeypatch.setattr(module, "get_tensor_model_parallel_rank", lambda: rank)  # noqa: B023
            monkeypatch.setattr(module, "get_tensor_model_parallel_world_size", lambda: 2)
        qkv = linear.QKVParallelLinear(96, 16, 4, 2, prefix="qkv_proj", **named)
        row = linear.RowParallelLinear(96, 40, prefix="o_proj", reduce_results=False, **named)
        expected = []
        for layer, matrices in ((qkv, heads), (row, {None: out})):
            for part, whole in matrices.items():
                tensors, weight = modelopt(whole)
                tensors["input_scale"] = torch.tensor(1 / 64)
                for name, parameter in layer.named_parameters():
                    where = () if part is None else (part,)
                    parameter.weight_loader(parameter, tensors[name], *where)
                size = len(weight) // 2
                expected.append(torch.from_numpy(weight[rank * size : (rank + 1) * size]))
            layer.quant_method.process_weights_after_loading(layer)
        assert_product(qkv(x)[0], x, torch.cat(expected[:3]), roundings=2)
        sums = sums + row(x[:, rank * 48 : (rank + 1) * 48])[0].double()
    expected = x.double() @ torch.from_numpy(modelopt(out)[1]).T
    assert cosine(sums, expected) > 0.99999


@pytest.mark.parametrize("algorithm", ["NVFP4", "W4A16_NVFP4"])
def test_vllms_runner_calls_experts_that_loaded_their_shards(plugged, algorithm):
    where = f"{stand_ins.LAYERS}.fused_moe"
    config, routed = plugged[f"{where}.config"], plugged[f"{where}.routed_experts"]
    runner = plugged[f"{where}.runner.moe_runner"].MoERunner
    quant_config = plugged[stand_ins.MODELOPT].ModelOptNvFp4Config(algorithm, True, None, [])
    given, x, (weights, ids) = experts(width=64, equal=False), matrix(6, 64, 9), routing()
    dequantised = [[torch.from_numpy(modelopt(m)[1]) for m in matrices] for matrices in given]
    y = 0.0
    for rank in range(2):
        parallel = config.FusedMoEParallelConfig(
            tp_size=2, pcp_size=1, dp_size=1, ep_size=1, tp_rank=rank, pcp_rank=0, dp_rank=0,
            ep_rank=0, sp_size=1, use_ep=False, all2all_backend="naive", enable_eplb=False,
        )  # fmt: skip
        moe = config.FusedMoEConfig(
            num_experts=3, experts_per_token=2, hidden_dim=64, intermediate_size=64,
            num_local_experts=3, num_logical_experts=3, activation=plugged.moe().activation,
            device="cpu", routing_method=config.RoutingMethodType.Default,
            moe_parallel_config=parallel, in_dtype=torch.bfloat16,
        )  # fmt: skip
        places = plugged[f"{where}.expert_map_manager"].ExpertMapManager(
            64, 2, 3, 0, None, parallel, "linear", False
        )
        layer = routed.RoutedExperts("experts", torch.bfloat16, moe, quant_config, places)
        parameters = dict(layer.named_parameters())
        for expert, matrices in enumerate(given):
            for shard, part in zip(("w1", "w3", "w2"), matrices, strict=True):
                tensors = {**modelopt(part)[0], "input_scale": torch.tensor(1 / 64)}
                for kind, tensor in tensors.items():
                    name = f"{'w2' if shard == 'w2' else 'w13'}_{kind}"
                    layer.weight_loader(parameters[name], tensor, name, shard, expert)
        layer.quant_method.process_weights_after_loading(layer)
        assert layer.quant_method.cukiln_reason is None
        caller = types.SimpleNamespace(
            routed_experts=layer,
            router=types.SimpleNamespace(select_experts=lambda **_: (weights, ids)),
            _maybe_apply_shared_experts=lambda *_: None,
            _quant_method=layer.quant_method,
            _shared_experts=None,
        )
        layer._ensure_moe_quant_config_init()
        y = y + runner._apply_quant_method(caller, x, None, None)[1].double()
    assert cosine(y, emulated_experts(x, weights, ids, dequantised)) > 0.99999


@pytest.mark.parametrize("kind", LINEAR[:1])
@pytest.mark.parametrize("equal", [True, False])
def test_vllms_own_reload_keeps_graphs_right(plugged, kind, equal):
    reload = plugged["vllm.model_executor.model_loader.reload.layerwise"]
    method, model = plugged.linear(kind), nn.Module()
    layer = model.layer = nn.Module()
    layer.quant_method = method

    def loader(param, loaded_weight):
        param.data.copy_(loaded_weight)

    load_linear(method, layer, parts(64, 32, equal=equal))
    for parameter in layer.parameters():
        parameter.weight_loader = loader
    reload.record_metadata_for_reloading(model)
    method.process_weights_after_loading(layer)
    compiled = torch.compile(
        lambda x: method.kernel.apply_weights(layer, x), fullgraph=True, backend="aot_eager"
    )
    x = matrix(5, 64, 9)
    compiled(x)
    memory = {name: parameter.data_ptr() for name, parameter in layer.named_parameters()}
    reload.initialize_layerwise_reload(model)
    other, halves = [part * 0.4 for part in parts(64, 32)], nn.Module()
    for name, parameter in layer.named_parameters():
        halves.register_parameter(
            name, nn.Parameter(torch.zeros_like(parameter, device="cpu"), False)
        )
    expected, row = [], 0
    for index, part in enumerate(other):
        tensors, weight = modelopt(part)
        fill(halves, "", (slice(row, row + len(part)), index), tensors)
        row += len(part)
        expected.append(torch.from_numpy(weight))
    for name, parameter in list(layer.named_parameters()):
        parameter.weight_loader(parameter, getattr(halves, name).data)
    reload.finalize_layerwise_reload(model, None)
    assert {name: parameter.data_ptr() for name, parameter in layer.named_parameters()} == memory
    assert_product(compiled(x), x, torch.cat(expected), roundings=2)
