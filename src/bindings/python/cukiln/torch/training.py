# SPDX-License-Identifier: Apache-2.0
"""A linear layer that is trained: its three GEMMs are NVFP4's.

Forward and both gradients quantise their operands and are one op each (`nvfp4::linear_fwd`,
`linear_dgrad`, `linear_wgrad`), so one node each of a compiled graph. The quantised weight is a
workspace, which is written again only where `is_first_microbatch` says so.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.weak import TensorWeakRef

from ._layer import check_input, check_weight, keeps_values, refuse_tangents, result_dtype
from ._weights import apply_keeping_dtypes, blank, blank_quantized, ready

_MULTIPLE = 32  # of features: either is summed over in some GEMM
# As quantize_weight_ takes them.
_WORKSPACE = ("_w_data", "_w_scales", "_wt_data", "_wt_scales", "_w_global_scale")


class NVFP4TrainableLinear(nn.Module):
    """y = x · weightᵀ + bias, with gradients.

    On every rank both features are multiples of 32. `is_first_microbatch` of `forward`: None or
    True quantises the weight; False takes what was quantised last, as later microbatches of a step
    may. A weight that was changed must not be quantised again between a forward and its backward:
    outside of graphs that backward is an error, as nn.Linear's is.

    Tensor parallel over a process group: a rank of a "column" layer has its part of the outputs, of
    a "row" layer its part of the inputs. With `sequence_parallel` the tokens, x's first dimension,
    are divided before a "column" layer and after a "row" layer; without, every rank has all.

    `fuse_wgrad_accumulation` adds the weight's gradient to `weight.main_grad`, in place. A graph
    cannot: such a layer runs eagerly, with a warning, also where the rest of a model is compiled.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        parallel_mode: Literal["column", "row"] | None = None,
        process_group: dist.ProcessGroup | None = None,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        super().__init__()
        if (parallel_mode is None) != (process_group is None):
            raise ValueError(
                f"parallel_mode is {parallel_mode!r} and process_group {process_group!r}; expected "
                "both or neither"
            )
        if parallel_mode not in (None, "column", "row"):
            raise ValueError(f"parallel_mode is {parallel_mode!r}; expected 'column' or 'row'")
        self.parallel_mode, self.sequence_parallel = parallel_mode, sequence_parallel
        self.fuse_wgrad_accumulation = fuse_wgrad_accumulation
        # Of the group, what a graph may hold and a copy may have.
        self._ranks = 1 if process_group is None else process_group.size()
        self._group = "" if process_group is None else process_group.group_name
        self.in_features = self._share("in_features", in_features, parallel_mode == "row")
        self.out_features = self._share("out_features", out_features, parallel_mode == "column")
        n, k = self.out_features, self.in_features
        self.weight = nn.Parameter(torch.empty(n, k, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(n, device=device, dtype=dtype)) if bias else None
        workspace = (
            *blank_quantized(n, k, device),
            *blank_quantized(k, n, device),
            blank((2,), torch.float32, device),
        )
        for name, buffer in zip(_WORKSPACE, workspace, strict=True):
            self.register_buffer(name, buffer, persistent=False)
        self._quantized = False
        self._last: tuple[TensorWeakRef, int] | None = None  # the weight quantised last, its version
        self._warned = False
        _leave_out_of_graphs(self)
        ready(self.weight)
        self.reset_parameters()

    def _share(self, name: str, features: int, divided: bool) -> int:
        ranks = self._ranks if divided else 1
        if features <= 0 or features % (ranks * _MULTIPLE):
            among = f", for each of {ranks} ranks," if divided else ""
            raise ValueError(f"{name} is {features}; expected a positive multiple of 32{among}")
        return features // ranks

    def reset_parameters(self) -> None:
        """As nn.Linear does, by the in_features of all ranks."""
        ranks = self._ranks if self.parallel_mode == "row" else 1
        bound = 1 / math.sqrt(self.in_features * ranks)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    @classmethod
    def from_linear(cls, linear: nn.Linear, **settings: Any) -> NVFP4TrainableLinear:
        """Takes over the parameters themselves. Without a parallel mode: a rank has a part only."""
        if settings.get("parallel_mode") is not None:
            raise ValueError("from_linear makes whole layers; copy a rank's part into its weight")
        check_weight("weight", linear.weight, linear.out_features, linear.in_features)
        layer = cls(
            linear.in_features, linear.out_features, False, device=linear.weight.device, **settings
        )
        layer.weight, layer.bias = linear.weight, linear.bias
        return layer.train(linear.training)

    def compile_unsupported_reason(self) -> str | None:
        """Why torch.compile leaves this layer out of its graphs; None where it does not."""
        if self.fuse_wgrad_accumulation:
            return "fuse_wgrad_accumulation writes weight.main_grad in backward"
        return None

    def forward(self, x: Tensor, is_first_microbatch: bool | None = None) -> Tensor:
        check_input(x, self.in_features)
        refuse_tangents(self, x, *self.parameters(recurse=False))
        if self.compile_unsupported_reason() is not None:
            return _outside_graphs(self, x, is_first_microbatch, torch.compiler.is_compiling())
        return self._run(x, is_first_microbatch)

    def _run_eagerly(self, x: Tensor, is_first: bool | None, compiling: bool) -> Tensor:
        if compiling and not self._warned:
            self._warned = True
            warnings.warn(
                "falling back to eager execution under torch.compile: "
                f"{self.compile_unsupported_reason()}",
                stacklevel=2,
            )
        return self._run(x, is_first)

    def _run(self, x: Tensor, is_first: bool | None) -> Tensor:
        workspace = [getattr(self, name) for name in _WORKSPACE]
        if is_first is not False:
            torch.ops.nvfp4.quantize_weight_(self.weight.detach().to(torch.bfloat16), *workspace)
            self._quantized = True
            if not torch.compiler.is_compiling():
                self._note_version(workspace)
        elif not self._quantized:
            raise RuntimeError(
                "is_first_microbatch is False, and no weight was quantised yet: the first call of "
                "a step takes True or None"
            )
        dtype, row_bias = result_dtype(x), None
        bias = None if self.bias is None else self.bias.to(torch.bfloat16)
        x = x.to(torch.bfloat16)
        if self.parallel_mode == "column":
            x = self._exchange(x, "all_gather", "reduce_scatter", None, "all_reduce")
        elif self.parallel_mode == "row":
            bias, row_bias = None, bias  # once, after the sum over ranks
        rows = x.reshape(-1, self.in_features).contiguous()
        # It multiplies by the workspace; the weight is there for its gradient.
        if self.fuse_wgrad_accumulation:
            y = _IntoMainGrad.apply(rows, self.weight, *workspace, bias)
        else:
            y = torch.ops.nvfp4.linear_fwd(rows, self.weight.to(torch.bfloat16), *workspace, bias)[
                0
            ]
        if x.dim() != 2:  # not as a view, of which FSDP2 warns: an in-place op drops its hooks
            y = torch.ops.aten._unsafe_view.default(y, [*x.shape[:-1], self.out_features])
        if self.parallel_mode == "row":
            y = self._exchange(y, "reduce_scatter", "all_gather", "all_reduce", None)
            if row_bias is not None:
                # Each rank sees the gradient of its own tokens.
                y = y + self._exchange(row_bias, None, "all_reduce", None, None)
        return y.to(dtype)

    def _note_version(self, workspace: list[Tensor]) -> None:
        """A backward whose forward saw an earlier weight finds another one in the workspace.
        Autograd refuses it, as nn.Linear's, if the workspace counts as changed."""
        if self.weight.is_inference():
            return
        weight, last = self.weight, self._last
        if last is None or last[0]() is not weight or last[1] != weight._version:
            torch.autograd.graph.increment_version(workspace)
            self._last = TensorWeakRef(weight), weight._version

    def _exchange(
        self,
        tensor: Tensor,
        divided_forward: str | None,
        divided_backward: str | None,
        forward: str | None,
        backward: str | None,
    ) -> Tensor:
        """What the ranks do together in forward and in backward, with tokens divided or not."""
        if self.sequence_parallel:
            forward, backward = divided_forward, divided_backward
        return _Exchange.apply(tensor, forward, backward, self._ranks, self._group)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NVFP4TrainableLinear:
        self._last = None  # a weak reference would keep torch.utils.swap_tensors from it
        self._quantized = self._quantized and keeps_values(fn, self.weight.device)
        apply_keeping_dtypes(self, super()._apply, fn, recurse)
        ready(self.weight)
        return self

    def _load_from_state_dict(self, *arguments: Any) -> None:
        self._last = None  # as in _apply
        super()._load_from_state_dict(*arguments)
        self._quantized = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _leave_out_of_graphs(self)

    def extra_repr(self) -> str:
        parallel = f", parallel_mode={self.parallel_mode}" if self.parallel_mode else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}{parallel}"
        )


_outside_graphs: Any = None  # _run_eagerly, from the first layer on that needs it


def _leave_out_of_graphs(layer: NVFP4TrainableLinear) -> None:
    """To say so takes PyTorch's compiler, whose import takes as long as PyTorch's own."""
    global _outside_graphs
    if _outside_graphs is None and layer.compile_unsupported_reason() is not None:
        _outside_graphs = torch.compiler.disable(
            NVFP4TrainableLinear._run_eagerly, reason="its compile_unsupported_reason() says why"
        )


class _IntoMainGrad(torch.autograd.Function):
    """linear_fwd, whose weight gradient goes into `weight.main_grad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, *rest: Tensor | None) -> Tensor:
        wt_data, wt_scales, w_global_scale, bias = rest[2:]
        y, *saved = torch.ops.nvfp4.linear_fwd(x, weight.to(torch.bfloat16), *rest)
        ctx.save_for_backward(wt_data, wt_scales, w_global_scale, *saved)
        ctx.weight, ctx.has_bias = weight, bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        wt_data, wt_scales, w_global_scale, *saved = ctx.saved_tensors
        dy = dy.contiguous()
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.ops.nvfp4.linear_dgrad(dy, wt_data, wt_scales, w_global_scale)
        if ctx.weight.requires_grad:
            ctx.weight.main_grad.add_(torch.ops.nvfp4.linear_wgrad(dy, *saved))
        db = dy.sum(0, dtype=torch.float32).to(dy.dtype) if ctx.has_bias else None
        return dx, None, None, None, None, None, None, db


class _Exchange(torch.autograd.Function):
    """A collective over a group of ranks, and another one for its gradient; None for neither."""

    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, forward: str | None, backward: str | None, ranks: int, group: str
    ) -> Tensor:
        ctx.collective = (backward, ranks, group)
        return _collect(tensor, forward, ranks, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _collect(gradient, *ctx.collective), None, None, None, None


def _collect(tensor: Tensor, name: str | None, ranks: int, group: str) -> Tensor:
    """Of the first dimension, where it is gathered or scattered."""
    ops = torch.ops._c10d_functional
    tensor = tensor.contiguous()
    if name is None:
        return tensor.view_as(tensor)
    if name == "all_reduce":
        result = ops.all_reduce(tensor, "sum", group)
    elif name == "all_gather":
        result = ops.all_gather_into_tensor(tensor, ranks, group)
    else:
        if tensor.shape[0] % ranks:
            raise ValueError(
                f"sequence_parallel divides {tensor.shape[0]} tokens, x's first dimension, among "
                f"{ranks} ranks; expected a multiple of {ranks}"
            )
        result = ops.reduce_scatter_tensor(tensor, "sum", ranks, group)
    return ops.wait_tensor(result)
