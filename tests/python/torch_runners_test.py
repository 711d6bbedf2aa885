# SPDX-License-Identifier: Apache-2.0
"""Every op under opcheck; runners, their numbers, threads; the library and PyTorch."""

import math
import os
import subprocess
import sys
import threading

import pytest
import torch

import cukiln.torch as ct
from nvfp4_emulation import Quantized
from torch_support import (
    Foreign,
    linear_runner,
    matrix,
    moe_runner,
    moe_weights,
    numbers,
    ops,
    sampler_state,
    workspace,
)

# ---- opcheck


def op_calls():
    x = matrix(5, 64)
    global_scale = ops.amax_gsa(x)
    a, b = Quantized(numbers(matrix(5, 64, 1))), Quantized(numbers(matrix(24, 64, 2)))
    topk = torch.rand(5, 2), torch.zeros(5, 2, dtype=torch.int32)
    weight = matrix(64, 96).requires_grad_()
    return {
        "linear_gemm": lambda: (x, linear_runner(), 48),
        "moe_gemm": lambda: (x, *topk, moe_runner(*moe_weights()), 64),
        "amax_gsa": lambda: (x, 1536.0),
        "fused_amax_quantize_nvfp4": lambda: (x, 1536.0),
        "quantize_nvfp4": lambda: (x, 3.5),
        "quantize_nvfp4_from_buffer": lambda: (x, global_scale),
        "deinterleave_quantize_from_buffer": lambda: (x, global_scale, True),
        "swiglu_quantize_from_buffer": lambda: (x, global_scale, 7.0, 1.702, 1.0, True),
        "swiglu_amax_gsa": lambda: (x, math.inf, 1.0, 0.0, False, 1536.0),
        "gemm": lambda: (*a.tensors(), *b.tensors(), matrix(1, 24)[0]),
        "w4a16_gemm": lambda: (x, *b.tensors(), matrix(1, 24)[0]),
        "quantize_weight_": lambda: (matrix(64, 96), *workspace(matrix(64, 96))),
        "linear_fwd": lambda: (
            matrix(5, 96).requires_grad_(),
            weight,
            *workspace(weight),
            matrix(1, 64)[0].requires_grad_(),
        ),
        "linear_dgrad": lambda: (matrix(5, 64), *workspace(weight)[2:]),
        "linear_wgrad": lambda: (
            matrix(5, 64),
            *ops.linear_fwd(matrix(5, 96), weight.detach(), *workspace(weight))[1:],
        ),
        "run_linear": lambda: (x, ct.register_runner(Foreign()), 48),
        "run_moe": lambda: (x, *topk, ct.register_runner(Foreign()), 64),
        "sample": lambda: (matrix(3, 40), sampler_state(), torch.ones(3), None, torch.rand(3)),
        "top_log_probabilities": lambda: (
            matrix(3, 40),
            5,
            torch.ones(3),
            torch.ones(3, dtype=torch.int32),
        ),
    }


def registered_ops():
    names = torch._C._dispatch_get_all_op_names()
    return {
        name.split("::")[1].split(".")[0]
        for name in names
        if name.startswith(("nvfp4::", "cukiln::"))
    }


def test_every_op_is_checked():
    assert registered_ops() == set(op_calls())


@pytest.mark.parametrize("name", sorted(op_calls()))
def test_opcheck(name):
    arguments = op_calls()[name]()
    kept = [each for each in arguments if isinstance(each, ct.Runner)]
    given = tuple(each.runner_id if isinstance(each, ct.Runner) else each for each in arguments)
    op = getattr(ops, name, None) or getattr(torch.ops.cukiln, name)
    result = torch.library.opcheck(op, given)
    assert set(result.values()) == {"SUCCESS"} and len(kept) < 2


# ---- Runners


def test_ids_follow_from_the_order_of_creation():
    script = """
import torch, cukiln.torch as ct
def runner():
    return ct.LinearRunner(torch.zeros(8, 16, dtype=torch.uint8),
                           torch.zeros(128, 4, dtype=torch.uint8), torch.ones(2))
first, second, third = runner(), runner(), runner()
second.close()
fourth = runner()
print(first.runner_id, third.runner_id, fourth.runner_id, runner().runner_id)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # The second slot's second use, and after it the fourth slot.
    assert run.stdout.split() == ["0", "2", str((1 << 20) + 1), "3"]


def test_an_id_is_not_used_again():
    x = matrix(1, 64)
    runner = linear_runner()
    ops.linear_gemm(x, runner.runner_id, 48)
    runner.close()
    other = linear_runner()
    assert other.runner_id != runner.runner_id
    for number in (runner.runner_id, -1, 1 << 40, 12345):
        with pytest.raises(IndexError, match=f"no runner {number}"):
            ops.linear_gemm(x, number, 48)
    with pytest.raises(LookupError, match="no runner"):
        runner.reserve(1)
    runner.close()  # once more is fine


def test_a_runner_serves_one_kind_of_op():
    moe, linear = moe_runner(*moe_weights()), linear_runner()
    x = matrix(2, 64)
    with pytest.raises(RuntimeError, match="mixture of experts"):
        ops.linear_gemm(x, moe.runner_id, 48)
    with pytest.raises(RuntimeError, match="linear layer"):
        ops.moe_gemm(
            x, torch.rand(2, 1), torch.zeros(2, 1, dtype=torch.int32), linear.runner_id, 64
        )


def test_more_runners_than_a_chunk_holds():
    data, scales = torch.zeros(8, 16, dtype=torch.uint8), torch.zeros(128, 4, dtype=torch.uint8)
    runners = [ct.LinearRunner(data, scales, torch.ones(2)) for _ in range(1100)]
    assert len({runner.runner_id for runner in runners}) == 1100
    assert not ops.linear_gemm(matrix(1, 32), runners[-1].runner_id, 8).any()


def test_ops_run_while_runners_come_and_go():
    runner = linear_runner()
    x = matrix(2, 64)
    expected = ops.linear_gemm(x, runner.runner_id, 48)
    wrong = []

    def call():
        for _ in range(300):
            if not ops.linear_gemm(x, runner.runner_id, 48).equal(expected):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        linear_runner().close()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_op_lets_other_python_threads_run():
    runner = linear_runner(1024, 1024)
    x = matrix(64, 1024)
    running, beats = threading.Event(), []

    def call():
        running.set()
        ops.linear_gemm(x, runner.runner_id, 1024)
        running.clear()

    thread = threading.Thread(target=call)
    thread.start()
    running.wait()
    while running.is_set():
        beats.append(1)
    thread.join()
    # With the lock held for the length of the op there would be a handful, before and after.
    assert len(beats) > 1000


# ---- Runners of other backends


def test_an_object_with_run_impl_is_behind_the_ops():
    x, weights = matrix(5, 64), torch.rand(5, 2)
    ids = torch.randint(0, 3, (5, 2), dtype=torch.int32)
    foreign, own = Foreign(), linear_runner()
    number = ct.register_runner(foreign)
    assert number != own.runner_id
    assert ct.get_runner(number) is foreign and ct.get_runner(own.runner_id) is own
    assert ops.linear_gemm(x, number, 48).equal(x @ foreign.weight.T)
    assert ops.moe_gemm(x, weights, ids, number, 64).equal(foreign._run_impl(x, weights, ids))
    ct.unregister_runner(number)
    with pytest.raises(IndexError, match=f"no runner {number}"):
        ops.linear_gemm(x, number, 48)
    for unknown in (number, 12345):
        with pytest.raises(LookupError, match=f"no runner {unknown}"):
            ct.get_runner(unknown)
        with pytest.raises(LookupError, match=f"no number {unknown}"):
            ct.unregister_runner(unknown)


class Fails:
    def __init__(self, error):
        self.error = error

    def _run_impl(self, x):
        raise self.error


def test_an_exception_of_a_registered_runner_is_named_and_ctrl_c_stays_one():
    for error in (torch.OutOfMemoryError("2 GiB are not there"), KeyError("2 GiB")):
        number = ct.register_runner(Fails(error))
        with pytest.raises(RuntimeError, match=rf"failed: {type(error).__name__}: .*2 GiB"):
            ops.linear_gemm(matrix(2, 64), number, 48)
    number = ct.register_runner(Fails(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        try:
            ops.linear_gemm(matrix(2, 64), number, 48)
        except RuntimeError:
            len("")  # Python looks for signals


def test_a_closed_runner_is_not_found():
    runner = linear_runner()
    runner.close()
    with pytest.raises(LookupError, match=f"no runner {runner.runner_id}"):
        ct.get_runner(runner.runner_id)


def test_numbers_of_all_runners_follow_from_one_order():
    script = """
import torch, cukiln.torch as ct
class Foreign:
    def _run_impl(self, x): return x
own = ct.LinearRunner(torch.zeros(8, 16, dtype=torch.uint8),
                      torch.zeros(128, 4, dtype=torch.uint8), torch.ones(2))
print(own.runner_id, ct.register_runner(Foreign()), ct.register_runner(Foreign()))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["0", "1", "2"]


def test_an_object_without_run_impl_is_refused():
    with pytest.raises(TypeError, match="dict has no method _run_impl: expected"):
        ct.register_runner({})


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (torch.zeros(5, 47, dtype=torch.bfloat16), r"a Wrong, returned \(\(5, 47\), torch.bfloat16"),
        (torch.zeros(5, 48), r"returned \(\(5, 48\), torch.float32"),
        (torch.zeros(5, 48, dtype=torch.bfloat16, device="meta"), "type='meta'"),
        (None, r"returned NoneType; expected \(\(5, 48\), torch.bf"),
        (ValueError("its own words"), "ValueError: its own words"),
    ],
)
def test_what_a_registered_runner_gives_is_checked(result, message):
    class Wrong:
        def _run_impl(self, x):
            if isinstance(result, Exception):
                raise result
            return result

    number = ct.register_runner(Wrong())
    with pytest.raises(RuntimeError, match=message):
        ops.linear_gemm(matrix(5, 64), number, 48)
    with pytest.raises(RuntimeError, match="cukiln::run_moe failed"):
        ops.moe_gemm(
            matrix(5, 64), torch.rand(5, 1), torch.zeros(5, 1, dtype=torch.int32), number, 64
        )


@pytest.mark.parametrize(
    "run", [lambda x: x, lambda x: x.view(-1).view(5, 64), lambda x: x.T.contiguous().T]
)
def test_a_registered_runners_result_is_in_memory_of_its_own(run):
    class Own:
        def _run_impl(self, x, topk_weights=None, topk_ids=None):
            return run(x)

    number = ct.register_runner(Own())
    x, topk = matrix(5, 64), (torch.rand(5, 1), torch.zeros(5, 1, dtype=torch.int32))
    before = x.clone()

    def both(x):
        results = ops.linear_gemm(x, number, 64), ops.moe_gemm(x, *topk, number, 64)
        return [y.mul_(2) for y in results]

    for function in (both, torch.compile(both, backend="aot_eager", fullgraph=True)):
        for y in function(x):
            assert y.stride() == (64, 1) and torch.equal(y, 2 * before)
        assert torch.equal(x, before)


# ---- The library and the process


def test_the_library_needs_nothing_of_torch():
    library = os.environ["CUKILN_LIBRARY"]
    listing = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    needed = [line for line in listing.stdout.splitlines() if "NEEDED" in line]
    assert needed and not any("torch" in line or "c10" in line for line in needed)


def test_pytorchs_compiler_is_not_imported_before_it_is_used():
    """Its import takes as long as PyTorch's own."""
    script = "import sys, cukiln.torch; print('torch._dynamo' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_a_host_without_torch_is_told_what_to_do():
    script = """
import ctypes, os, pathlib
path = pathlib.Path(os.environ["CUKILN_LIBRARY"])
library, nvfp4 = ctypes.CDLL(str(path)), ctypes.CDLL(str(path.parent / "libcukiln_nvfp4.so"))
library.cukiln_last_error.restype = ctypes.c_char_p
print(nvfp4.cukiln_torch_register(), library.cukiln_last_error().decode())
print(nvfp4.cukiln_torch_runner_destroy(ctypes.c_int64(0)), library.cukiln_last_error().decode())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second = run.stdout.splitlines()
    assert first.startswith("2 ") and "import torch first" in first
    assert second.startswith("1 ") and "cukiln_torch_register" in second


def test_registering_again_changes_nothing():
    from cukiln.torch import _native

    _native.call("register")
    assert registered_ops() == set(op_calls())
