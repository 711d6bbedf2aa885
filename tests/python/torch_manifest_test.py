# SPDX-License-Identifier: Apache-2.0
"""The manifest of a model's kernels: filled by the command line, then a start that compiles nothing,
over a driver that runs nothing."""

import json
import subprocess

import pytest
import transformers  # which scripts/bootstrap --all-tests fetches

import cukiln
from conftest import BINARIES
from cukiln import _shipped
from cukiln.torch import _native, _runners, manifest_for, tune, use_loader
from cukiln.torch.transformers import CukilnConfig
from torch_transformers_test import MODELS, SIZES

N, K = 4096, 2048


def config(name, **quantization):
    kind, more = MODELS[name]
    words = CukilnConfig(**quantization).to_dict()
    made = getattr(transformers, f"{kind}Config")
    return made(**{**SIZES, **more, "hidden_size": 128}, quantization_config=words)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.json"


def launch(gemm, m):
    gemm.launch(
        _shipped.GemmCall(
            m=m, n=N, k=K, output=1 << 20, a_data=1 << 21, a_scales=1 << 22, a_global_scale=1 << 23,
            b_data=1 << 24, b_scales=1 << 25, b_global_scale=1 << 26, workspace=1 << 27,
            workspace_bytes=1 << 30, tactic=-1, a_bf16=1 << 21,
        )
    )  # fmt: skip


def filled_and_sealed(path, names):
    """A loader of a start after `cukiln preload`."""
    command = [BINARIES / "cukiln", "preload", path, "--no-load"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    loader = cukiln.Loader()
    report = loader.preload(path)
    assert [module.name for module in report.modules] == names
    assert report.hits == len(names)
    loader.seal()
    return loader


def test_after_a_preload_of_the_manifest_no_number_of_tokens_compiles(cuda, path):  # fault 446
    cuda.library.fake_cuda_set_capability(0, 120)  # whose kernels compile fastest
    cuda.library.fake_cuda_read_parameters(1)
    names = manifest_for(config("llama"), 40, 2, path=path, arch="sm_120a")
    assert "fused_amax_quantize" in names
    with filled_and_sealed(path, names) as loader:
        gemm = tune.Gemm(loader, 0)
        for m in range(1, 41):
            launch(gemm, m)
        for kernel in ("amax_gsa", "sampler", "quantize_nvfp4_from_buffer"):
            assert loader.find(kernel)
        with pytest.raises(cukiln.SealedError):
            tune.Gemm(loader, 0, "bf16")
        # The sources beside the file are those of the library, under the same keys.
        assert loader.preload(modules=names).hits == len(names)
        assert loader.stats().compiles == 0


def test_fewer_tokens_need_fewer_modules_and_launch_no_others(cuda, path):
    cuda.library.fake_cuda_set_capability(0, 120)
    cuda.library.fake_cuda_read_parameters(1)
    names = manifest_for(config("llama", activations="bf16"), 8, path=path, arch="sm_120a")
    assert names == ["amax_gsa", "sampler", "sampler_bf16", "nvfp4_w4a16_gemm"]
    with filled_and_sealed(path, names) as loader:
        gemm = tune.Gemm(loader, 0, "bf16")
        launch(gemm, 8)
        with pytest.raises(cukiln.SealedError, match="for 64 tokens.*manifest_for"):
            launch(gemm, 64)


def test_a_sealed_loader_preloads_nothing_more(loader, monkeypatch):
    called = []
    monkeypatch.setattr(_runners, "_loader", None)
    monkeypatch.setattr(_native, "preload", lambda handle: called.append("preload"))
    monkeypatch.setattr(_native, "call", lambda name, handle: called.append(name))
    loader.seal()
    assert use_loader(loader) is loader
    assert called == ["set_loader"]


@pytest.mark.parametrize("arch, activations, experts", [
    ("sm_90a", None, ["nvfp4_moe_w4a16"]),
    ("sm_90a", "nvfp4", ["nvfp4_moe_gemm"]),
    ("sm_100a", None, ["nvfp4_moe_gemm"]),
])  # fmt: skip
def test_experts_take_the_modules_of_their_activations_as_the_layers_do(
    path, arch, activations, experts
):
    few = manifest_for(config("mixtral"), 4, path=path, arch=arch, activations=activations)
    of_half = manifest_for(config("mixtral"), 8192, 2, path=path, arch=arch, activations=activations)
    many = manifest_for(config("mixtral"), 8192, path=path, arch=arch, activations=activations)
    tiles = [name for name in few if name.startswith("nvfp4_moe") and not name.endswith(("route", "combine"))]
    assert tiles == experts
    assert set(few) < set(many)
    last = {"sm_90a": experts[0].removesuffix("_gemm") + "_prefill", "sm_100a": "nvfp4_moe_grouped"}
    assert last[arch] in many
    assert last[arch] not in of_half  # 32 columns are no tile of theirs
    written = json.loads(path.read_text())
    assert all(module["targets"] == [arch] for module in written["modules"])
    other = {"nvfp4_moe_w4a16": "nvfp4_moe_gemm"}.get(experts[0], "nvfp4_moe_w4a16")
    assert other not in many


def test_a_configuration_is_an_object_a_dict_or_a_file(tmp_path, path):
    given = config("qwen3_moe")
    given.save_pretrained(tmp_path / "saved")
    expected = manifest_for(given, 64, path=path, arch="sm_90a")
    for form in (given.to_dict(), tmp_path / "saved", str(tmp_path / "saved" / "config.json")):
        assert manifest_for(form, 64, path=path, arch="sm_90a") == expected
    assert hasattr(given, "quantization_config")  # the caller's stays as it was


@pytest.mark.parametrize("words, w4a16", [
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, False),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, True),
    ({"quant_method": "compressed-tensors", "config_groups": {"g": {"input_activations": None}}}, True),
    ({"quant_method": "compressed-tensors",
      "config_groups": {"g": {"input_activations": {"num_bits": 4}}}}, False),
])  # fmt: skip
def test_the_words_of_other_tools_decide_on_activations(path, words, w4a16):
    given = config("llama").to_dict()
    given["quantization_config"] = words
    names = manifest_for(given, 16, path=path, arch="sm_100a")
    assert ("nvfp4_w4a16_gemm" in names) == w4a16
    assert ("nvfp4_gemm" in names) != w4a16


def test_what_is_missing_or_wrong_is_said(path):
    with pytest.raises(ValueError, match='no GPU.*arch="sm_90a"'):
        manifest_for(config("llama"), 8, path=path)
    with pytest.raises(ValueError, match="expected \"sm_90a\" or a later one"):
        manifest_for(config("llama"), 8, path=path, arch="sm_80")
    with pytest.raises(ValueError, match="max_tokens is 0"):
        manifest_for(config("llama"), 0, path=path, arch="sm_90a")
    with pytest.raises(ValueError, match="has no quantization_config"):
        manifest_for(transformers.LlamaConfig(**SIZES), 8, path=path, arch="sm_90a")
    with pytest.raises(ValueError, match="tp is 3; expected a number that divides"):
        manifest_for(config("mixtral"), 8, 3, path=path, arch="sm_90a")
    with pytest.raises(ValueError, match="config is a int"):
        manifest_for(8, 8, path=path, arch="sm_90a")
    assert not path.exists()
