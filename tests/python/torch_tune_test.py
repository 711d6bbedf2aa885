# SPDX-License-Identifier: Apache-2.0
"""cukiln.torch.tune over a driver that runs nothing: which tactics it keeps, and who takes them. Times are made up."""

import re

import pytest

import cukiln
from conftest import in_another_process
from cukiln import _library
from cukiln.torch import tune

N, K = 4096, 2048
OTHER_PROCESS = f"""
import ctypes, os, cukiln
fake = ctypes.CDLL(os.environ["CUKILN_CUDA_LIBRARY"])
fake.fake_cuda_set_capability(0, 120)
fake.fake_cuda_read_parameters(1)
from cukiln.torch import tune
gemm = tune.Gemm(cukiln.Loader(), 0)
print(*(gemm.chosen(m, {N}, {K}).kernel for m in tune.TOKENS))
"""


@pytest.fixture
def gemm(cuda, loader):
    cuda.library.fake_cuda_set_capability(0, 120)  # whose kernels compile fastest
    cuda.library.fake_cuda_read_parameters(1)
    return tune.Gemm(loader, 0)


def last_is_fastest(m, tactic, best):
    assert best == (float("inf") if tactic == 0 else 10.5 - (tactic - 1) + m)
    return 10.5 - tactic + m


def test_the_fastest_are_kept_and_every_later_process_takes_them(gemm, loader):
    built_in = in_another_process(OTHER_PROCESS)
    assert built_in.split() == [gemm.chosen(m, N, K).kernel for m in tune.TOKENS]
    rows = list(tune.fastest(gemm, N, K, last_is_fastest))
    assert [row.m for row in rows] == list(tune.TOKENS)
    for row in rows:
        tactics = gemm.tactics(row.m, N, K)
        assert (row.n, row.k, row.tactic) == (N, K, tactics[-1])
        assert row.microseconds == 10.5 - (len(tactics) - 1) + row.m
        assert row.before == 10.5 - tactics.index(gemm.chosen(row.m, N, K)) + row.m
    gemm.keep(rows)
    wanted = [row.tactic.kernel for row in rows]
    first, second = in_another_process(OTHER_PROCESS), in_another_process(OTHER_PROCESS)
    assert first.split() == second.split() == wanted
    assert first != built_in
    # Those of this process stay as they were.
    assert [tune.Gemm(loader, 0).chosen(m, N, K).kernel for m in tune.TOKENS] == built_in.split()

    (kept,) = cukiln.BlobStore("cukiln.tactics", loader).list()
    assert re.fullmatch(rb"1 nvfp4_gemm sm_120 \d+ [0-9a-f]{16} Fake GPU 0", kept.key)
    text = cukiln.BlobStore("cukiln.tactics", loader).get(kept.key).decode()
    assert f"{N} {K} 8 {wanted[0]} 1 16500\n" in text


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
    call = _library.GemmCall(
        m=16, n=N, k=K, output=0x10000, a_codes=0x20000, a_scales=0x30000, a_gsa=0x40000,
        b_codes=0x50000, b_scales=0x60000, b_gsa=0x70008, bias=0x80000, constant_b=1, tactic=2,
    )  # fmt: skip
    gemm.launch(call)
    last = cuda.last()
    assert last.kernel == gemm.tactics(16, N, K)[2].kernel
    for pointer in (0x10000, 0x20000, 0x30000, 0x40000, 0x60000, 0x70008, 0x80000):
        assert pointer.to_bytes(8, "little") in last.arguments, hex(pointer)
    call.b_gsa = None
    with pytest.raises(cukiln.InvalidArgumentError, match=r"b\.global_scale is null"):
        gemm.launch(call)


def test_without_a_gpu_it_ends_and_says_so(capsys):
    assert tune.main(["7168x7168"]) == 3
    assert "PyTorch sees no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("weights", ["7168", "7168x", "x", "7168x7168x1", "7169x7168", "8x16", "0x32", "-8x32"])
def test_weights_are_two_sizes_that_a_linear_layer_may_have(weights, capsys):
    with pytest.raises(SystemExit) as left:
        tune.main(["--", weights])
    assert left.value.code == 2
    assert "NxK, as 7168x7168" in capsys.readouterr().err
