# SPDX-License-Identifier: Apache-2.0
"""cukiln.torch.tune over a driver that runs nothing: which tactics it keeps, and who takes them. Times are made up."""

import re

import pytest
import torch

import cukiln
from conftest import in_another_process
from cukiln import _shipped
from cukiln.torch import tune
from cukiln.torch._weights import swizzle

N, K = 4096, 2048
OTHER_PROCESS = f"""
import ctypes, os, cukiln
fake = ctypes.CDLL(os.environ["CUKILN_CUDA_LIBRARY"])
fake.fake_cuda_set_capability(0, 120)
fake.fake_cuda_read_parameters(1)
from cukiln.torch import tune
gemm = tune.Gemm(cukiln.Loader(), 0, "ACTIVATIONS")
print(*(gemm.chosen(m, {N}, {K}).kernel for m in tune.TOKENS))
"""


@pytest.fixture
def device(cuda):
    cuda.library.fake_cuda_set_capability(0, 120)  # whose kernels compile fastest
    cuda.library.fake_cuda_read_parameters(1)


@pytest.fixture
def gemm(device, loader):
    return tune.Gemm(loader, 0)


@pytest.fixture
def w4a16(device, loader):
    return tune.Gemm(loader, 0, "bf16")


@pytest.fixture(params=tune.ACTIVATIONS)
def either(request, device, loader):
    return tune.Gemm(loader, 0, request.param)


def taken_by_another_process(gemm):
    return in_another_process(OTHER_PROCESS.replace("ACTIVATIONS", gemm.activations)).split()


def all_are_right(m, tactic):
    return ""


def last_is_fastest(m, tactic, best):
    assert best == (float("inf") if tactic == 0 else 10.5 - (tactic - 1) + m)
    return 10.5 - tactic + m


def test_the_fastest_are_kept_and_every_later_process_takes_them(either, loader):
    gemm = either
    built_in = taken_by_another_process(gemm)
    assert built_in == [gemm.chosen(m, N, K).kernel for m in tune.TOKENS]
    rows = list(tune.fastest(gemm, N, K, last_is_fastest, all_are_right))
    assert [row.m for row in rows] == list(tune.TOKENS)
    for row in rows:
        tactics = gemm.tactics(row.m, N, K)
        assert (row.n, row.k, row.tactic) == (N, K, tactics[-1])
        assert row.microseconds == 10.5 - (len(tactics) - 1) + row.m
        assert row.before == 10.5 - tactics.index(gemm.chosen(row.m, N, K)) + row.m
    gemm.keep(rows)
    wanted = [row.tactic.kernel for row in rows]
    first, second = taken_by_another_process(gemm), taken_by_another_process(gemm)
    assert first == second == wanted
    assert first != built_in
    # Those of this process stay as they were.
    again = tune.Gemm(loader, 0, gemm.activations)
    assert [again.chosen(m, N, K).kernel for m in tune.TOKENS] == built_in

    (kept,) = cukiln.BlobStore("cukiln.tactics", loader).list()
    family = {"nvfp4": b"nvfp4_gemm", "bf16": b"nvfp4_w4a16_gemm"}[gemm.activations]
    assert re.fullmatch(rb"1 %s sm_120 \d+ [0-9a-f]{16} Fake GPU 0" % family, kept.key)
    text = cukiln.BlobStore("cukiln.tactics", loader).get(kept.key).decode()
    assert f"{N} {K} 8 {wanted[0]} 1 16500\n" in text


def test_w4a4_and_w4a16_are_kept_beside_one_another(gemm, w4a16, loader):
    for each in (gemm, w4a16):
        each.keep(list(tune.fastest(each, N, K, last_is_fastest, all_are_right)))
    assert len(cukiln.BlobStore("cukiln.tactics", loader).list()) == 2
    for each in (gemm, w4a16):
        kept = [each.tactics(m, N, K)[-1].kernel for m in tune.TOKENS]
        assert taken_by_another_process(each) == kept


def test_a_tuner_measures_both_and_keeps_both(device, loader, monkeypatch):
    class Operands:
        def __init__(self, gemm, n, k):
            assert (n, k) == (N, K)

        time = staticmethod(last_is_fastest)
        problem = staticmethod(all_are_right)

    monkeypatch.setattr(tune, "Operands", Operands)
    monkeypatch.setattr(tune.torch, "zeros", lambda *_, **__: None)
    monkeypatch.setattr(tune.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(tune.torch.cuda, "empty_cache", lambda: None)
    reported = []
    rows = tune.tune([(N, K), (N, K)], loader=loader, report=reported.append)
    assert rows == reported
    kernels = [row.tactic.kernel.partition("_decode")[0] for row in rows]
    assert kernels == ["nvfp4_gemm"] * len(tune.TOKENS) + ["w4a16_gemm"] * len(tune.TOKENS)
    assert len(cukiln.BlobStore("cukiln.tactics", loader).list()) == 2
    only = tune.tune([(N, K)], loader=loader, activations=["bf16"], keep=False)
    assert only == rows[len(tune.TOKENS) :]


def test_a_tactic_with_wrong_results_is_left_out_and_named(either):  # fault 321
    last = {m: len(either.tactics(m, N, K)) - 1 for m in tune.TOKENS}

    def problem(m, tactic):
        assert tactic >= last[m] - 1  # only what would be kept is launched again
        return "it is wrong" if tactic == last[m] else ""

    with pytest.warns(RuntimeWarning, match=f"is left out for {N}x{K}, .* tokens: it is wrong") as warned:
        rows = list(tune.fastest(either, N, K, last_is_fastest, problem))
    for row, warning in zip(rows, warned, strict=True):
        tactics = either.tactics(row.m, N, K)
        assert row.tactic == tactics[-2]
        assert f"{tactics[-1].kernel} by {tactics[-1].splits} is" in str(warning.message)
    with pytest.warns(RuntimeWarning):
        assert list(tune.fastest(either, N, K, last_is_fastest, lambda m, tactic: "all are")) == []


def test_results_are_compared_with_one_another_and_with_float32():  # fault 321
    expected = torch.randn(8, 64)
    outputs = expected.bfloat16().expand(5, -1, -1).clone()
    assert tune.difference(outputs, expected) == ""
    outputs[3, 7, 63] *= -1
    assert tune.difference(outputs, expected) == "of 5 launches 1 gave other results than the first"
    assert "relative error" in tune.difference(outputs, 1.01 * expected)
    assert "relative error is nan" in tune.difference(outputs * float("nan"), expected)


@pytest.mark.parametrize(("rows", "columns"), [(8, 32), (300, 416)])
def test_operands_are_dequantised_as_the_kernels_read_them(rows, columns):
    data = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    scales = torch.randint(0x30, 0x48, (rows, columns // 16), dtype=torch.uint8)
    given = tune.dequantized(data.flatten(), swizzle(scales).flatten(), rows, columns)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    for row, column in ((0, 0), (rows - 1, columns - 1), (rows // 2, 17)):
        code = int(data[row, column // 2]) >> column % 2 * 4
        value = values[code & 7] * (-1 if code & 8 else 1)
        assert given[row, column] == value * scales.view(torch.float8_e4m3fn)[row, column // 16].float()


def test_rows_that_no_launch_could_take_are_refused(gemm):
    decode = tune.Tactic("nvfp4_gemm_decode_8x2", 1)
    with pytest.raises(cukiln.InvalidArgumentError, match="no tactic of 16 tokens"):
        gemm.keep([tune.Measured(N, K, 16, decode, 1.0, 1.0)])
    with pytest.raises(cukiln.InvalidArgumentError, match="no such kernel"):
        gemm.keep([tune.Measured(N, K, 8, tune.Tactic("k" * 64, 1), 1.0, 1.0)])
    with pytest.raises(cukiln.InvalidArgumentError, match="tactic is 3"):
        gemm._named(8, N, K, 3)
    assert gemm.tactics(0, N, K) == []


def test_a_launch_has_the_operands_that_it_was_given(gemm, cuda):
    call = _shipped.GemmCall(
        m=16, n=N, k=K, output=0x10000, a_data=0x20000, a_scales=0x30000, a_global_scale=0x40000,
        b_data=0x50000, b_scales=0x60000, b_global_scale=0x70008, bias=0x80000, constant_b=1,
        tactic=2,
    )  # fmt: skip
    gemm.launch(call)
    last = cuda.last()
    assert last.kernel == gemm.tactics(16, N, K)[2].kernel
    for pointer in (0x10000, 0x20000, 0x30000, 0x40000, 0x60000, 0x70008, 0x80000):
        assert pointer.to_bytes(8, "little") in last.arguments, hex(pointer)
    call.b_global_scale = None
    with pytest.raises(cukiln.InvalidArgumentError, match=r"b\.global_scale is null"):
        gemm.launch(call)


def test_a_launch_of_w4a16_has_its_operands(w4a16, cuda):
    call = _shipped.GemmCall(
        m=16, n=N, k=K, output=0x10000, a_bf16=0x20000, b_data=0x50000, b_scales=0x60000,
        b_global_scale=0x70008, bias=0x80000, constant_b=1, tactic=2,
    )  # fmt: skip
    w4a16.launch(call)
    last = cuda.last()
    assert last.kernel == w4a16.tactics(16, N, K)[2].kernel
    for pointer in (0x10000, 0x20000, 0x60000, 0x70008, 0x80000):
        assert pointer.to_bytes(8, "little") in last.arguments, hex(pointer)
    call.a_bf16 = None
    with pytest.raises(cukiln.InvalidArgumentError, match="a is null"):
        w4a16.launch(call)


def test_without_a_gpu_it_ends_and_says_so(capsys):
    assert tune.main(["7168x7168"]) == 3
    assert "PyTorch sees no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("weights", ["7168", "7168x", "x", "7168x7168x1", "7169x7168", "8x16", "0x32", "-8x32"])
def test_weights_are_two_sizes_that_a_linear_layer_may_have(weights, capsys):
    with pytest.raises(SystemExit) as left:
        tune.main(["--", weights])
    assert left.value.code == 2
    assert "NxK, as 7168x7168" in capsys.readouterr().err
