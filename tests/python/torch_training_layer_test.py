# SPDX-License-Identifier: Apache-2.0
"""NVFP4TrainableLinear on the CPU: learning, microbatches, compiled graphs, errors."""

import copy
import io
import warnings

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from cukiln.torch import NVFP4TrainableLinear
from torch_support import matrix, ops, workspace


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(20250605)
    torch._dynamo.reset()


def step(layer, x, *arguments):
    """Output and all gradients of one call."""
    x = x.detach().requires_grad_()
    layer.zero_grad()
    y = layer(x, *arguments)
    y.float().square().sum().backward()
    return [y.detach(), x.grad, *(parameter.grad.clone() for parameter in layer.parameters())]


def assert_equal(given, expected):
    for one, other in zip(given, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_op_with_a_workspace_of_its_own(bias):
    layer = NVFP4TrainableLinear(96, 64, bias)
    x = matrix(45, 96, 3)
    weight = layer.weight.detach().requires_grad_()
    rows = x.detach().requires_grad_()
    y = ops.linear_fwd(rows, weight, *workspace(weight), layer.bias)[0]
    y.float().square().sum().backward()
    assert_equal(step(layer, x.view(5, 9, 96))[2:3], [weight.grad])
    given = step(layer, x)
    assert_equal(given[:3], [y.detach(), rows.grad, weight.grad])


def test_it_learns_what_a_linear_layer_does():
    target = nn.Linear(64, 32).requires_grad_(False)
    layer = NVFP4TrainableLinear(64, 32, dtype=torch.float32)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    losses = []
    for _ in range(80):
        x = torch.randn(64, 64)
        loss = (layer(x) - target(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    assert layer.weight.grad.dtype == torch.float32


def test_later_microbatches_use_the_weight_as_it_was_quantised():
    layer = NVFP4TrainableLinear(64, 32, bias=False)
    x = matrix(8, 64, 1)
    first = step(layer, x, True)
    with torch.no_grad():
        layer.weight.mul_(2)
    assert_equal(step(layer, x, False), first)
    for is_first in (None, True):
        assert_equal(step(layer, x, is_first), [2 * first[0], 4 * first[1], 2 * first[2]])


def test_nothing_quantised_yet_is_an_error():
    layer = NVFP4TrainableLinear(64, 32)
    with pytest.raises(RuntimeError, match="the first call of a step"):
        layer(matrix(8, 64, 1), False)
    layer(matrix(8, 64, 1), True)
    layer.load_state_dict(layer.state_dict())  # other weights, perhaps
    with pytest.raises(RuntimeError, match="the first call of a step"):
        layer(matrix(8, 64, 1), False)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_microbatches_are_compiled_bit_for_bit(backend):
    layer = NVFP4TrainableLinear(64, 32)
    other = copy.deepcopy(layer)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for batch, is_first in enumerate((True, False, False, None)):
        x = matrix(8, 64, batch)
        assert_equal(step(compiled, x, is_first), step(other, x, is_first))
        for name, buffer in layer.named_buffers():  # the workspace is written in place
            assert torch.equal(buffer, other.get_buffer(name))
    assert counter.frame_count == 3  # True, False, None


def test_gradients_into_main_grad_are_added_and_leave_the_graph_with_one_warning():
    plain = NVFP4TrainableLinear(64, 32)
    fused = NVFP4TrainableLinear.from_linear(plain_copy(plain), fuse_wgrad_accumulation=True)
    x = matrix(8, 64, 1)
    y, dx, dw, db = step(plain, x)
    for model in (fused, torch.compile(fused, backend="eager")):
        fused.weight.main_grad = torch.ones(32, 64)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                rows = x.detach().requires_grad_()
                fused.zero_grad()
                given = model(rows)
                given.float().square().sum().backward()
        assert_equal([given.detach(), rows.grad, fused.bias.grad], [y, dx, db])
        assert fused.weight.grad is None
        torch.testing.assert_close(fused.weight.main_grad, 1 + 2 * dw.float())
        messages = [str(warning.message) for warning in caught]
        eager = [message for message in messages if "falling back to eager" in message]
        assert len(eager) == (0 if model is fused else 1)
    assert "main_grad" in eager[0]
    assert plain.compile_unsupported_reason() is None
    with pytest.raises(torch._dynamo.exc.Unsupported, match="compile_unsupported_reason"):
        torch.compile(fused, backend="eager", fullgraph=True)(x)


def plain_copy(layer):
    linear = nn.Linear(layer.in_features, layer.out_features, dtype=layer.weight.dtype)
    linear.load_state_dict(layer.state_dict())
    return linear


def test_its_state_dict_is_that_of_a_linear_layer_and_its_scales_keep_their_dtype():
    layer = NVFP4TrainableLinear(64, 32)
    assert plain_copy(layer).weight.shape == (32, 64)
    x = matrix(8, 64, 1)
    expected = layer(x)
    layer.float()
    assert layer.weight.dtype == torch.float32
    assert torch.equal(layer(x, False), expected)


def test_copies_pickles_and_layers_from_meta_compute_the_same():
    layer = NVFP4TrainableLinear(64, 32)
    x = torch.randn(5, 64)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    from_meta = NVFP4TrainableLinear(64, 32, device="meta").to_empty(device="cpu")
    from_meta.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False), from_meta):
        assert torch.equal(other(x), layer(x))


def test_no_tokens_have_a_gradient_of_zero():
    layer = NVFP4TrainableLinear(64, 32)
    layer(torch.randn(0, 64, requires_grad=True)).sum().backward()
    assert not layer.weight.grad.any() and not layer.bias.grad.any()


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="out_features is 40"):
        NVFP4TrainableLinear(64, 40)
    with pytest.raises(ValueError, match="both or neither"):
        NVFP4TrainableLinear(64, 32, parallel_mode="row")
    with pytest.raises(ValueError, match=r"\(2, 60\).*64"):
        NVFP4TrainableLinear(64, 32)(torch.randn(2, 60))
    with pytest.raises(ValueError, match=r"x is \(\) "):
        NVFP4TrainableLinear(64, 32)(torch.tensor(1.0))
    with pytest.raises(ValueError, match="int64"):
        NVFP4TrainableLinear(64, 32)(torch.ones(2, 64, dtype=torch.int64))
    with pytest.raises(ValueError, match="a rank's part"):
        NVFP4TrainableLinear.from_linear(nn.Linear(64, 32), parallel_mode="row")
