# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a tensor or sequence parallel MLP compute, and the same in one process: for
torch_parallel_test.py, and on two GPUs for tests/gpu/torch/parallel_test.py."""

import copy
import os
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from cukiln.torch import NVFP4TrainableLinear, use_loader
from torch_support import matrix, ops, workspace

RANKS = 2
TOKENS, FEATURES, WIDTH = 6, 64, 128
UP, UP_BIAS = matrix(WIDTH, FEATURES, 1, 0.1), matrix(1, WIDTH, 3)[0]
DOWN, DOWN_BIAS = matrix(FEATURES, WIDTH, 2, 0.1), matrix(1, FEATURES, 4)[0]
X, DY = matrix(TOKENS, FEATURES, 5), matrix(TOKENS, FEATURES, 6)


class Mlp(nn.Module):
    def __init__(self, rank, group, sequence_parallel):
        super().__init__()
        settings = {"process_group": group, "sequence_parallel": sequence_parallel}
        self.up = NVFP4TrainableLinear(FEATURES, WIDTH, parallel_mode="column", **settings)
        self.down = NVFP4TrainableLinear(WIDTH, FEATURES, parallel_mode="row", **settings)
        with torch.no_grad():
            self.up.weight.copy_(UP.chunk(RANKS)[rank])
            self.up.bias.copy_(UP_BIAS.chunk(RANKS)[rank])
            self.down.weight.copy_(DOWN.chunk(RANKS, 1)[rank])
            self.down.bias.copy_(DOWN_BIAS)

    def forward(self, x, is_first):
        return self.down(torch.relu(self.up(x, is_first)), is_first)


def step(function, model, x, dy, is_first):
    x = x.detach().requires_grad_()
    model.zero_grad()
    y = function(x, is_first)
    y.backward(dy)
    gradients = {name: one.grad.clone() for name, one in model.named_parameters()}
    return {"y": y.detach(), "x": x.grad, **gradients}


def end_rank():
    """Ends a process that has passed. The interpreter does not: a thread of gloo's that frees the last tensor while it ends
    aborts the process (github.com/pytorch/pytorch/pull/179291)."""
    dist.destroy_process_group()
    os._exit(0)


def run_rank(rank, folder, backend, device, compiler):
    """Saves what it computed eagerly; compiled must be the same, bit for bit."""
    if device == "cuda":
        torch.cuda.set_device(rank)
        use_loader()
    dist.init_process_group(
        backend, init_method=f"file://{folder}/group", rank=rank, world_size=RANKS
    )
    for sequence_parallel in (False, True):
        model = Mlp(rank, dist.group.WORLD, sequence_parallel).to(device)
        compiled = torch.compile(model, fullgraph=True, backend=compiler)
        x, dy = X.to(device), DY.to(device)
        if sequence_parallel:
            x, dy = x.chunk(RANKS)[rank], dy.chunk(RANKS)[rank]
        for is_first in (True, False):
            eager = step(model, model, x, dy, is_first)
            for name, other in step(compiled, model, x, dy, is_first).items():
                assert torch.equal(eager[name], other), name
        saved = {name: tensor.cpu() for name, tensor in eager.items()}
        torch.save(saved, f"{folder}/{sequence_parallel}{rank}")
    for refused, what in (
        (lambda: model.down(matrix(3, WIDTH // RANKS).to(device)), "divides 3 tokens"),
        (
            lambda: NVFP4TrainableLinear(
                96, 32, parallel_mode="row", process_group=dist.group.WORLD
            ),
            "for each of 2 ranks",
        ),
    ):
        try:
            refused()
        except ValueError as error:
            assert what in str(error), error
        else:
            raise AssertionError(f"not refused: {what}")
    end_rank()


def run_sharded_rank(rank, folder):
    """FSDP2 over two ranks computes as one process does, and has nothing to warn of."""
    warnings.simplefilter("error")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=RANKS
    )
    linears = [nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, FEATURES)]
    with torch.no_grad():
        for linear, weight, bias in zip(linears, (UP, DOWN), (UP_BIAS, DOWN_BIAS), strict=True):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
    alone, sharded = (
        nn.Sequential(*(NVFP4TrainableLinear.from_linear(copy.deepcopy(one)) for one in linears))
        for _ in range(2)
    )
    for layer in (*sharded, sharded):
        fully_shard(layer)
    assert sharded[0].weight.to_local().shape == (WIDTH // RANKS, FEATURES)
    for x, dy in ((X, DY), (X.view(2, 3, FEATURES), DY.view(2, 3, FEATURES))):
        results = []
        for model in (alone, sharded):
            x = x.detach().requires_grad_()
            model.zero_grad()
            y = model(x)
            y += 0  # keeps the hooks, as y is no view
            y.backward(dy)
            gradients = [each.grad for each in model.parameters()]
            full = [each.full_tensor() if model is sharded else each for each in gradients]
            results.append([y.detach(), x.grad, *full])
        for expected, given in zip(*results, strict=True):
            assert torch.equal(expected, given)
    end_rank()


def run_sharded(folder):
    torch.multiprocessing.spawn(run_sharded_rank, (str(folder),), nprocs=RANKS)


def run_ranks(folder, backend="gloo", device="cpu", compiler="aot_eager"):
    """By whether tokens are divided, a list of each rank's results."""
    arguments = (str(folder), backend, device, compiler)
    torch.multiprocessing.spawn(run_rank, arguments, nprocs=RANKS)
    return {
        divided: [torch.load(f"{folder}/{divided}{rank}") for rank in range(RANKS)]
        for divided in (False, True)
    }


def run_alone(device="cpu"):
    """Each rank's part by the op, and sums of parts. Gradients of parameters: a list, by rank."""
    parameters = {
        name: [part.to(device).clone().requires_grad_() for part in parts]
        for name, parts in (
            ("up.weight", UP.chunk(RANKS)),
            ("up.bias", UP_BIAS.chunk(RANKS)),
            ("down.weight", [part.contiguous() for part in DOWN.chunk(RANKS, 1)]),
            ("down.bias", [DOWN_BIAS]),
        )
    }
    parts, inputs = [], []
    for up, up_bias, down in zip(
        parameters["up.weight"], parameters["up.bias"], parameters["down.weight"], strict=True
    ):
        inputs.append(X.to(device).clone().requires_grad_())
        middle = torch.relu(ops.linear_fwd(inputs[-1], up, *workspace(up), up_bias)[0])
        parts.append(ops.linear_fwd(middle, down, *workspace(down))[0])
    y = parts[0] + parts[1] + parameters["down.bias"][0]
    y.backward(DY.to(device))
    gradients = {name: [part.grad.cpu() for part in every] for name, every in parameters.items()}
    return {"y": y.detach().cpu(), "x": (inputs[0].grad + inputs[1].grad).cpu(), **gradients}


def check_tensor_parallel(given, expected):
    """Ranks have all tokens and their parts of the weights."""
    for rank, one in enumerate(given):
        for name in ("y", "x"):
            assert torch.equal(one[name], expected[name]), name
        for name in ("up.weight", "up.bias", "down.weight"):
            assert torch.equal(one[name], expected[name][rank]), name
        assert torch.equal(one["down.bias"], expected["down.bias"][0])


def check_sequence_parallel(given, expected):
    """Ranks have their parts of the tokens too."""
    for name in ("y", "x"):
        assert torch.equal(torch.cat([one[name] for one in given]), expected[name]), name
    for rank, one in enumerate(given):
        for name in ("up.weight", "up.bias", "down.weight"):
            assert torch.equal(one[name], expected[name][rank]), name
        # Each rank added up its own tokens, and rounded that to bf16.
        torch.testing.assert_close(
            one["down.bias"], expected["down.bias"][0], rtol=2**-7, atol=0.02
        )
        assert torch.equal(one["down.bias"], given[0]["down.bias"])
