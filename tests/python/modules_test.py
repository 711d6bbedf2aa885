# SPDX-License-Identifier: Apache-2.0
"""get_cuda_module: a drop-in for a loader over torch.utils.cpp_extension.load."""

import inspect
import struct

import pytest
import torch

import cukiln
from conftest import BINARIES

pytestmark = pytest.mark.usefixtures("own_default_loader")
REPOSITORY = BINARIES.parents[2]
SCALE = 'extern "C" __global__ void scale(float* x, float f) { x[threadIdx.x] *= FACTOR(f); }\n'


@pytest.fixture
def source(tmp_path):
    (tmp_path / "factor.cuh").write_text("#define FACTOR(f) (f)\n")
    path = tmp_path / "scale.cu"
    path.write_text('#include "factor.cuh"\n' + SCALE)
    return path


def test_kernels_are_attributes_and_launch(source, cuda):
    cuda.parameters("scale", 8, 4)
    module = cukiln.get_cuda_module("own", [str(source)], extra_cuda_cflags=["-O3"])
    assert list(module) == ["scale"] and "scale" in dir(module) and len(module) == 1
    module.scale[1, 32](None, 2.0)
    assert cuda.last().arguments == struct.pack("<Qf", 0, 2.0)
    assert module["scale"] is module.scale
    with pytest.raises(TypeError, match=r"scale is launched with a grid and a block: scale\[grid"):
        module.scale(None, 2.0)
    with pytest.raises(AttributeError, match="module own has no kernel 'shift'; it has: scale"):
        module.shift  # noqa: B018
    with pytest.raises(cukiln.NotFoundError, match="no kernel 'shift'"):
        module["shift"]


def test_it_takes_what_cpp_extension_load_takes():
    from torch.utils import cpp_extension

    ours = inspect.signature(cukiln.get_cuda_module).parameters
    theirs = inspect.signature(cpp_extension.load).parameters
    assert set(theirs) - set(ours) == {"extra_sycl_cflags", "with_sycl"}  # another vendor's
    assert list(ours)[:3] == ["name", "sources", "extra_cuda_cflags"]


def test_a_host_compilers_arguments_have_no_effect(source, cuda, tmp_path):
    plain = cukiln.get_cuda_module("own", [source])
    dressed = cukiln.get_cuda_module(
        "own",
        source,  # one path is a list of one
        extra_cflags=["-O2", "-march=native"],
        extra_ldflags=["-lcudart"],
        build_directory=tmp_path / "build",
        with_cuda=True,
        keep_intermediates=False,
    )
    assert dressed is not plain or list(dressed) == list(plain)
    assert cukiln.default_loader().stats().compiles == 1
    assert not (tmp_path / "build").exists()
    for impossible in ({"is_python_module": False}, {"is_standalone": True}):
        with pytest.raises(cukiln.InvalidArgumentError, match="library on disk"):
            cukiln.get_cuda_module("own", [source], **impossible)
    with pytest.raises(cukiln.InvalidArgumentError, match=r"binding\.cpp is host code"):
        cukiln.get_cuda_module("own", ["binding.cpp", source])


def test_include_paths_flags_and_names_reach_the_compiler(cuda, tmp_path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "n.h").write_text("#define N 3\n")
    path = tmp_path / "fill.cu"
    path.write_text(
        '#include "n.h"\ntemplate <class T> __global__ void fill(T* x) { *x = N + M; }\n'
    )
    module = cukiln.get_cuda_module(
        "fill",
        [path],
        ["-DM=4"],
        extra_include_paths=[tmp_path / "inc"],
        names=["fill<float>"],
    )
    for spelling in ("fill<float>", "&fill< float >"):
        assert module[spelling].name == "fill<float>"
    with pytest.raises(cukiln.NotFoundError, match="has no kernel 'fill<int>'; it has: fill<float>"):
        module["fill<int>"]


def test_a_module_of_templates_alone_says_what_it_lacks(tmp_path, cuda):
    path = tmp_path / "fill.cu"
    path.write_text("template <class T> __global__ void fill(T* x) { *x = 1; }\n")
    lacks = r"no kernel .fill<float>.; it has: none; a template is compiled only for name expressions"
    with pytest.raises(cukiln.NotFoundError, match=lacks):
        cukiln.get_cuda_module("fill", [path])["fill<float>"]
    with pytest.raises(cukiln.NotFoundError, match=lacks):
        cukiln.default_loader().get(cukiln.ModuleSpec(path), "fill<float>")


def test_a_second_call_gives_the_same_module(source, cuda):
    first = cukiln.get_cuda_module("own", [source])
    assert cukiln.get_cuda_module("own", [source]) is first
    assert cukiln.get_cuda_module("own", [source], ["-DX"]) is not first
    ids = len(cukiln.default_loader())
    for _ in range(10):
        cukiln.get_cuda_module("own", [source])
    assert len(cukiln.default_loader()) == ids  # nothing grows


def test_an_edited_header_gives_another_module(source, cuda):
    first = cukiln.get_cuda_module("own", [source])
    (source.parent / "factor.cuh").write_text("#define FACTOR(f) (2 * (f))\n")
    second = cukiln.get_cuda_module("own", [source])
    assert second is not first and second.scale != first.scale
    assert cukiln.default_loader().stats().compiles == 2
    source.write_text('#include "factor.cuh"\n' + SCALE.replace("scale", "other"))
    assert list(cukiln.get_cuda_module("own", [source])) == ["other"]


def test_a_sealed_loader_gives_what_is_loaded_and_no_more(source, cuda):
    first = cukiln.get_cuda_module("own", [source])
    cukiln.default_loader().seal()
    assert cukiln.get_cuda_module("own", [source]) is first
    (source.parent / "factor.cuh").write_text("#define FACTOR(f) (3 * (f))\n")
    with pytest.raises(cukiln.SealedError):
        cukiln.get_cuda_module("own", [source])


def test_errors_are_those_of_the_compile(source, cuda, tmp_path):
    with pytest.raises(cukiln.NotFoundError, match=r"none\.cu"):
        cukiln.get_cuda_module("own", [tmp_path / "none.cu"])
    for arguments, said in (
        ((None, [source]), "^name is None; expected a str"),
        (("own", [3]), r"^sources has 3 \(int\); expected a str or a path"),
    ):
        with pytest.raises(TypeError, match=said):
            cukiln.get_cuda_module(*arguments)
    with pytest.raises(TypeError, match="^extra_include_paths has 3"):
        cukiln.get_cuda_module("own", [source], extra_include_paths=[3])
    for field in ("sources", "include", "objects"):
        with pytest.raises(TypeError, match=f"^{field} has 3"):
            cukiln.ModuleSpec(**{"sources": "a.cu", field: [3]}).to_c()
    for field in ("name", "working_folder"):
        with pytest.raises(TypeError, match=rf"^{field} has \['a.cu'\] \(list\); expected a str or a path"):
            cukiln.ModuleSpec(**{"sources": "a.cu", field: ["a.cu"]}).to_c()
    source.write_text("#include <torch/extension.h>\n")
    with pytest.raises(cukiln.CompileError) as raised:
        cukiln.get_cuda_module("own", [source])
    assert "torch/extension.h" in raised.value.log


def test_verbose_says_what_was_done(source, cuda, capsys):
    cukiln.get_cuda_module("own", [source], verbose=True)
    assert "'own' (sm_90a: compiled): scale" in capsys.readouterr().err
    cukiln.get_cuda_module("own", [source])
    assert capsys.readouterr() == ("", "")


def test_without_a_gpu_a_module_compiles_and_a_launch_says_why(source, monkeypatch):
    monkeypatch.setenv("CUKILN_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
    module = cukiln.get_cuda_module("own", [source], ["-arch=sm_90a"])
    assert list(module) == ["scale"]
    with pytest.raises(cukiln.DriverError, match=r"scale is compiled and not loaded: .*libcuda"):
        module.scale[1, 1](None, 2.0)
    with pytest.raises(TypeError, match=r"scale\[grid, block\].* not loaded: .*libcuda"):
        module.scale(None, 2.0)
    cukiln.get_cuda_module("own", [source], ["-arch=sm_90a"])
    assert cukiln.default_loader().stats().compiles == 1


def test_a_driver_that_fails_to_load_is_an_error(source, cuda):
    cuda.library.fake_cuda_fail(b"cuLibraryLoadData", 2, -1)
    with pytest.raises(cukiln.DriverError, match="OUT_OF_MEMORY"):
        cukiln.get_cuda_module("own", [source])


SHIPPED = REPOSITORY / "kernels_src" / "nvfp4" / "fused_amax_quantize.cu"


@pytest.mark.parametrize(
    "arguments",
    [
        ("fused_amax_quantize",),
        ("fused", ["fused_amax_quantize.cu"]),
        ("mine", [SHIPPED], ["-O3", "-arch=sm_90a"]),
    ],
)
def test_functions_of_shipped_modules_take_and_return_tensors(cuda, arguments):
    module = cukiln.get_cuda_module(*arguments)
    assert set(module) == {"quantize_nvfp4_from_buffer", "deinterleave_quantize_from_buffer"}
    x, global_scale = torch.ones(128, 64).bfloat16(), torch.tensor([2688.0, 1 / 2688])
    data, scales = module.quantize_nvfp4_from_buffer(x, global_scale)
    assert (data.shape, scales.shape) == ((128, 32), (128, 4))
    assert set(data.unique().tolist()) == {0x77}  # 6, the largest, twice
    assert module.quantize_nvfp4_from_buffer.name == "quantize_nvfp4_from_buffer"
    assert cukiln.get_cuda_module(*arguments) is module

    for given in (module.fused_amax_quantize_nvfp4(x), module.fused_amax_quantize_nvfp4(x, 2688.0)):
        assert all(map(torch.equal, given, (data, scales, global_scale)))
    *_, halved = module.fused_amax_quantize_nvfp4(x=x, divisor=1344.0)
    assert halved.equal(global_scale * torch.tensor([0.5, 2.0]))
    assert "fused_amax_quantize_nvfp4" in dir(module) and len(module) == 2
    with pytest.raises(AttributeError, match="has no kernel 'fused_amax_quantize'; it has: deint"):
        module.fused_amax_quantize  # noqa: B018


def test_every_operator_of_a_shipped_kernel_is_there():
    for kernel in cukiln._shipped.OPERATORS:
        assert isinstance(
            cukiln._shipped.operator_of(kernel, on_gpu=False), torch._ops.OpOverloadPacket
        )


def test_a_gpu_tensor_makes_the_operators_kernels_ready(cuda, monkeypatch):
    import cukiln.torch

    made = []
    monkeypatch.setattr(cukiln.torch, "use_loader", lambda: made.append("ready"))
    monkeypatch.setattr(torch.ops.nvfp4, "amax_gsa", lambda x: x)
    amax = cukiln.get_cuda_module("amax_gsa").amax_gsa
    amax(torch.ones(1))
    assert made == []
    amax(type("OnGpu", (), {"is_cuda": True})())
    assert made == ["ready"]
    amax(x=type("OnGpu", (), {"is_cuda": True})())
    assert made == ["ready", "ready"]


def test_a_file_that_only_has_a_shipped_name_is_an_ordinary_kernel(cuda, tmp_path):
    path = tmp_path / "amax_gsa.cu"
    path.write_text('extern "C" __global__ void amax_gsa(float* x) { *x = 1; }\n')
    module = cukiln.get_cuda_module("amax_gsa", [path])
    assert isinstance(module.amax_gsa, cukiln.Kernel)


def test_preload_all_makes_every_shipped_kernel_ready(monkeypatch):
    report = cukiln.preload_all(modules=["amax_gsa", "sampler"], targets=["sm_90a"], load=False)
    assert {module.name for module in report.modules} == {"amax_gsa", "sampler"}
    assert report.failed == 0
