# SPDX-License-Identifier: Apache-2.0
"""The three products of a linear layer in training, and their gradients, on the CPU."""

import numpy as np
import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from nvfp4_emulation import Quantized, compute_global_scale, laid_out, quantize
from torch_support import assert_rounded, matrix, numbers, ops, workspace


def test_a_weight_is_quantised_both_ways_with_one_scale():
    weight = matrix(64, 96, 1)
    *quantised, global_scale = workspace(weight)
    x = numbers(weight)
    np.testing.assert_array_equal(global_scale.numpy(), compute_global_scale(x))
    for given, wanted in zip(
        quantised,
        (
            *laid_out(*quantize(x, global_scale.numpy())),
            *laid_out(*quantize(x.T.copy(), global_scale.numpy())),
        ),
        strict=True,
    ):
        np.testing.assert_array_equal(given.numpy(), wanted)


def filled_up(x):
    """Transposed, with zeros up to a multiple of 32 columns."""
    return np.pad(x.T, ((0, 0), (0, -len(x) % 32)))


@pytest.mark.parametrize("tokens", [0, 1, 32, 45])
@pytest.mark.parametrize("with_bias", [False, True])
def test_gradients_are_products_of_what_was_quantised(tokens, with_bias):
    weight = matrix(64, 96, 1).requires_grad_()
    bias = matrix(1, 64, 2)[0].requires_grad_() if with_bias else None
    x = matrix(tokens, 96, 3).requires_grad_()
    dy = matrix(tokens, 64, 4, 1e-3)
    y = ops.linear_fwd(x, weight, *workspace(weight), bias)[0]
    y.backward(dy)

    w, gradient, input_ = numbers(weight.detach()), numbers(dy), numbers(x.detach())
    shift = numbers(bias.detach()) if with_bias else 0
    expected = Quantized(input_).numbers() @ Quantized(w).numbers().T + shift
    assert_rounded(y.detach(), expected)
    # The transpose has the same global scale, and blocks of its own.
    scale, dy_scale = compute_global_scale(input_), compute_global_scale(gradient)
    wt = Quantized(w.T.copy(), compute_global_scale(w)).numbers()
    expected = Quantized(gradient).numbers() @ wt.T
    assert_rounded(x.grad, expected)
    dyt = Quantized(filled_up(gradient), dy_scale).numbers()
    xt = Quantized(filled_up(input_), scale).numbers()
    assert_rounded(weight.grad, dyt @ xt.T)
    if with_bias:
        assert_rounded(bias.grad, gradient.sum(0, dtype=np.float64))


def test_a_layer_learns():
    torch.manual_seed(0)
    target = matrix(32, 64, 9)
    weight = torch.zeros(32, 64, dtype=torch.bfloat16).requires_grad_()
    first = last = None
    for step in range(60):
        x = matrix(64, 64, 100 + step)
        y = ops.linear_fwd(x, weight, *workspace(weight))[0]
        loss = (y.float() - x.float() @ target.float().t()).square().mean()
        loss.backward()
        with torch.no_grad():
            weight -= 8 * weight.grad
        weight.grad = None
        first, last = first if first is not None else loss.item(), loss.item()
    assert last < 0.05 * first


def test_forward_and_backward_compile_to_single_nodes():
    graphs = []

    def record(graph, inputs):
        graphs.append(
            [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        )
        return make_boxed_func(graph.forward)

    weight = matrix(64, 96, 1).requires_grad_()
    space = workspace(weight)

    def step(x, weight, fresh):
        if fresh:
            ops.quantize_weight_(weight.detach(), *space)
        return ops.linear_fwd(x, weight, *space)[0]

    compiled = torch.compile(
        step, fullgraph=True, backend=aot_autograd(fw_compiler=record, bw_compiler=record)
    )
    for fresh in (True, False):
        results = []
        for function in (step, compiled):
            x = matrix(45, 96, 3).requires_grad_()
            weight.grad = None
            y = function(x, weight, fresh)
            y.backward(torch.ones_like(y))
            results.append((y.detach(), x.grad, weight.grad))
        for eager, other in zip(*results, strict=True):
            assert eager.equal(other)
    for forward, backward in (graphs[:2], graphs[2:]):
        assert sum("linear_fwd" in name for name in forward) == 1
        assert [name for name in backward if "nvfp4" in name] == [
            "nvfp4.linear_dgrad.default",
            "nvfp4.linear_wgrad.default",
        ]
