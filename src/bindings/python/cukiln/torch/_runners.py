# SPDX-License-Identifier: Apache-2.0
"""Runners: quantised weights on a device, by a number that goes through graphs."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import math
import weakref
from typing import Any

import torch
from torch import Tensor

from .. import Loader, default_loader
from . import _native
from ._fingerprint import fingerprint

_loader: Loader | None = None  # of this process, once set


def use_loader(loader: Loader | None = None) -> Loader:
    """Makes the kernels ready that the ops launch on CUDA tensors; for the whole process, once.

    Without an argument it is the loader that get_cuda_module and preload_all use. Runners on CUDA
    call this themselves. A sealed loader has them ready: see manifest_for.
    """
    global _loader
    if _loader is None or loader not in (None, _loader):
        chosen = default_loader() if loader is None else loader
        if not chosen.sealed:
            _native.preload(chosen.handle)
        _native.call("set_loader", chosen.handle)
        _loader = chosen
    return _loader


def _scale_shape(rows: int, columns: int) -> tuple[int, int]:
    return -(-rows // 128) * 128, -(-columns // 64) * 4


def _pointer(
    tensors: list[torch.Tensor],
    name: str,
    tensor: torch.Tensor | None,
    dtype: torch.dtype,
    *shape: int,
) -> int | None:
    """Of a tensor that is as expected and on the device of the first; it joins those kept alive."""
    if tensor is None:
        return None
    if tensor.dtype != dtype or tuple(tensor.shape) != shape or not tensor.is_contiguous():
        gaps = "" if tensor.is_contiguous() else ", not contiguous"
        raise ValueError(
            f"{name} is {tuple(tensor.shape)} {tensor.dtype}{gaps}; expected {shape} {dtype}, "
            "contiguous"
        )
    if tensors and tensor.device != tensors[0].device:
        raise ValueError(
            f"{name} is on {tensor.device}, and the packed data on {tensors[0].device}: all weights "
            "of a runner are on one device"
        )
    tensors.append(tensor)
    return tensor.data_ptr()


def _device(tensor: torch.Tensor) -> int:
    """As the library counts; kernels are made ready for a CUDA device."""
    if tensor.device.type == "cpu":
        return -1
    if tensor.device.type != "cuda":
        raise ValueError(f"the weights are on {tensor.device}; expected cpu or cuda")
    use_loader()
    return tensor.device.index


_own: weakref.WeakValueDictionary[int, Runner] = weakref.WeakValueDictionary()
_registered: dict[int, Any] = {}  # of register_runner


_NOT_OF_WEIGHTS = {"struct_bytes", "device", "max_tokens", "max_topk", "fingerprint"}


def _settings(kind: str, weights: ctypes.Structure) -> list[Any]:
    """What a runner computes besides its tensors' contents: numbers, and which tensors there are."""
    given: list[Any] = [kind]
    for name, form in ((field[0], field[1]) for field in weights._fields_):
        if name not in _NOT_OF_WEIGHTS:
            value = getattr(weights, name)
            given.append((name, value is not None if form is ctypes.c_void_p else value))
    return given


class Runner:
    """Weights that ops find by `runner_id`: 0, 1, 2, … in the order of creation, and 2^20 more where
    a closed runner's place is used again.

    Other processes have the same numbers. A graph that may go there passes `fingerprint`, of the
    weights as they are at creation, as the op's last argument: a runner with other weights is an
    IndexError then.

    Any streams and threads may use it concurrently: a call's scratch is memory that PyTorch's allocator
    provides, in a captured graph the graph's. So graphs may be replayed concurrently, unless they share
    a memory pool. The tensors are shared, not copied: what is written into them counts from then on.
    """

    def __init__(self, kind: str, weights: ctypes.Structure, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        self._open = False
        self.fingerprint = weights.fingerprint = fingerprint(tensors, _settings(kind, weights))
        self.runner_id = _native.create(kind, weights)
        self._open = True
        _own[self.runner_id] = self

    def reserve(self, max_tokens: int) -> None:
        """Has PyTorch's allocator get the scratch of so many tokens or fewer, for the current stream:
        a first call then does not wait for it. All runners share it; captures need none."""
        _native.call("runner_reserve", self.runner_id, max_tokens)

    def close(self) -> None:
        """The number is unknown afterwards, also to graphs that were captured with it."""
        if self._open:
            self._open = False
            del _own[self.runner_id]
            _native.call("runner_destroy", self.runner_id)
            self._tensors.clear()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be shutting down
            self.close()


class LinearRunner(Runner):
    """y = x · weightᵀ + bias for `torch.ops.nvfp4.linear_gemm(x, runner_id, out_features)`.

    data uint8 [out, in / 2] and scales uint8 as `nvfp4::quantize_nvfp4_from_buffer` returns them,
    global_scale float32 [2], bias bfloat16 [out]. input_global_scale float32 [2] scales every
    input; without it, each input's own amax does. With w4a16 inputs are not quantised, and
    input_global_scale is not read.
    """

    def __init__(
        self,
        data: torch.Tensor,
        scales: torch.Tensor,
        global_scale: torch.Tensor,
        *,
        bias: torch.Tensor | None = None,
        input_global_scale: torch.Tensor | None = None,
        w4a16: bool = False,
        max_tokens: int = 0,
    ) -> None:
        if data.dim() != 2:
            raise ValueError(f"data is {tuple(data.shape)}; expected [out, in / 2]")
        rows, columns = data.shape[0], 2 * data.shape[1]
        kept: list[torch.Tensor] = []
        self.out_features, self.in_features = rows, columns
        weights: dict[str, Any] = {
            "data": _pointer(kept, "data", data, torch.uint8, rows, columns // 2),
            "scales": _pointer(kept, "scales", scales, torch.uint8, *_scale_shape(rows, columns)),
            "global_scale": _pointer(kept, "global_scale", global_scale, torch.float32, 2),
            "bias": _pointer(kept, "bias", bias, torch.bfloat16, rows),
            "input_global_scale": _pointer(
                kept, "input_global_scale", input_global_scale, torch.float32, 2
            ),
        }
        super().__init__(
            "linear",
            _native.Linear(
                device=_device(data),
                in_features=columns,
                out_features=rows,
                max_tokens=max_tokens,
                w4a16=int(w4a16),
                **weights,
            ),
            kept,
        )


class MoeRunner(Runner):
    """A mixture of experts for
    `torch.ops.nvfp4.moe_gemm(hidden_states, topk_weights, topk_ids, runner_id, hidden_size)`.

    up_data uint8 [experts, 2 · width, hidden / 2], down_data uint8 [experts, hidden, width / 2];
    scales uint8 [experts, …] as the quantisers lay out each expert's; decode float32 [experts], the
    decode scale of each. activation_global_scale float32 [2] scales what lies between the GEMMs, or
    with dynamic_activations a scale of each token and expert, by its amax, does;
    hidden_global_scale float32 [2] every input, and without it each input's own amax does. Without
    either (W4A16) neither is quantised: both stay in bf16. up_bias bfloat16 [experts, 2 ·
    width], in the order of up's rows, and down_bias [experts, hidden] are added to the GEMMs'
    results. expert_map int32 maps ids to local experts, -1 to none. SwiGLU: gate = min(gate,
    limit), up clamped to ±limit, gate · sigmoid(alpha · gate) · (up + beta).
    """

    def __init__(
        self,
        up_data: torch.Tensor,
        up_scales: torch.Tensor,
        up_decode: torch.Tensor,
        down_data: torch.Tensor,
        down_scales: torch.Tensor,
        down_decode: torch.Tensor,
        *,
        activation_global_scale: torch.Tensor | None = None,
        dynamic_activations: bool = False,
        hidden_global_scale: torch.Tensor | None = None,
        expert_map: torch.Tensor | None = None,
        up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        interleaved: bool = False,
        limit: float = math.inf,
        alpha: float = 1.0,
        beta: float = 0.0,
        max_tokens: int = 0,
        max_topk: int = 8,
    ) -> None:
        if up_data.dim() != 3:
            raise ValueError(
                f"up_data is {tuple(up_data.shape)}; expected [experts, 2 * width, hidden / 2]"
            )
        if dynamic_activations and activation_global_scale is not None:
            raise ValueError(
                "activation_global_scale and dynamic_activations are given; expected one"
            )
        experts, double_width, half_hidden = up_data.shape
        hidden, width = 2 * half_hidden, double_width // 2
        byte, real = torch.uint8, torch.float32
        kept: list[torch.Tensor] = []

        def scales(name: str, tensor: torch.Tensor, rows: int, columns: int) -> int | None:
            return _pointer(kept, name, tensor, byte, experts, *_scale_shape(rows, columns))

        ids = None if expert_map is None else expert_map.numel()
        weights: dict[str, Any] = {
            "up_data": _pointer(kept, "up_data", up_data, byte, *up_data.shape),
            "up_scales": scales("up_scales", up_scales, 2 * width, hidden),
            "up_decode": _pointer(kept, "up_decode", up_decode, real, experts),
            "down_data": _pointer(kept, "down_data", down_data, byte, experts, hidden, width // 2),
            "down_scales": scales("down_scales", down_scales, hidden, width),
            "down_decode": _pointer(kept, "down_decode", down_decode, real, experts),
            "activation_global_scale": _pointer(
                kept, "activation_global_scale", activation_global_scale, real, 2
            ),
            "hidden_global_scale": _pointer(
                kept, "hidden_global_scale", hidden_global_scale, real, 2
            ),
            "expert_map": _pointer(kept, "expert_map", expert_map, torch.int32, ids or 0),
            "up_bias": _pointer(kept, "up_bias", up_bias, torch.bfloat16, experts, 2 * width),
            "down_bias": _pointer(kept, "down_bias", down_bias, torch.bfloat16, experts, hidden),
        }
        self.hidden_size, self.width, self.experts = hidden, width, experts
        super().__init__(
            "moe",
            _native.Moe(
                device=_device(up_data),
                experts=experts,
                global_experts=ids or 0,
                hidden=hidden,
                width=width,
                interleaved=int(interleaved),
                limit=limit,
                alpha=alpha,
                beta=beta,
                max_tokens=max_tokens,
                max_topk=max_topk,
                dynamic_activations=int(dynamic_activations),
                **weights,
            ),
            kept,
        )


# ---- Runners of other backends

_ops = torch.library.Library("cukiln", "FRAGMENT")
_ops.define(
    "run_linear(Tensor x, SymInt runner_id, SymInt out_features, SymInt fingerprint=0) -> Tensor"
)
_ops.define(
    "run_moe(Tensor hidden_states, Tensor topk_weights, Tensor topk_ids, SymInt runner_id, "
    "SymInt hidden_size, SymInt fingerprint=0) -> Tensor"
)


def register_runner(runner: Any) -> int:
    """A `runner_id` for any object that has `_run_impl`: another library's kernels behind the ops.

    `nvfp4.linear_gemm(x, id, out_features)` then returns what `runner._run_impl(x)` returns, and
    `nvfp4.moe_gemm(hidden_states, topk_weights, topk_ids, id, hidden_size)` what
    `runner._run_impl(hidden_states, topk_weights, topk_ids)` does: a bfloat16 tensor
    [rows of the input, out_features or hidden_size] on the input's device, which is copied if it is
    a view of an argument or not contiguous. Compiled graphs call it as they call a LinearRunner. An
    op with a fingerprint is an error unless the object's attribute `fingerprint` is that number.
    An exception of `_run_impl`, torch.OutOfMemoryError too, is a RuntimeError of the op, with its
    type and text; Ctrl-C is a KeyboardInterrupt, in the main thread.
    The object is kept alive until unregister_runner.
    """
    if not callable(getattr(runner, "_run_impl", None)):
        raise TypeError(
            f"{type(runner).__name__} has no method _run_impl: expected an object whose "
            "_run_impl(x), or _run_impl(hidden_states, topk_weights, topk_ids), returns the result"
        )
    number = _native.create("python")
    _registered[number] = runner
    return number


def get_runner(runner_id: int) -> Any:
    """The LinearRunner, MoeRunner or registered object of this number."""
    runner = _registered.get(runner_id)
    if runner is None:
        runner = _own.get(runner_id)
    if runner is None:
        raise LookupError(
            f"there is no runner {runner_id} in this process: it was closed, or never made"
        )
    return runner


def unregister_runner(runner_id: int) -> None:
    """Ends what register_runner began. The number is not used again."""
    if runner_id not in _registered:
        raise LookupError(f"register_runner returned no number {runner_id}, or it was unregistered")
    _native.call("runner_destroy", runner_id)
    del _registered[runner_id]


class _Interrupt:
    """Ctrl-C once more when it goes. PyTorch's C interface makes a RuntimeError of an exception and
    drops it, and no code in Python runs in between that could be interrupted."""

    __del__ = staticmethod(_thread.interrupt_main)


def _run(runner_id: int, columns: int, fingerprint: int, *arguments: Tensor) -> Tensor:
    runner, x = _registered[runner_id], arguments[0]
    if fingerprint not in (0, getattr(runner, "fingerprint", 0)):
        raise RuntimeError(
            f"runner {runner_id}, a {type(runner).__name__}, has other weights than this graph was "
            "made with: make the same runners in the same order as where it was made"
        )
    try:
        result = runner._run_impl(*arguments)
    except KeyboardInterrupt as error:
        error.again = _Interrupt()  # type: ignore[attr-defined]
        raise
    expected = (x.shape[0], columns), torch.bfloat16, x.device
    given = (
        (tuple(result.shape), result.dtype, result.device)
        if isinstance(result, Tensor)
        else type(result).__name__
    )
    if given != expected:  # compiled graphs rely on it
        raise RuntimeError(
            f"runner {runner_id}, a {type(runner).__name__}, returned {given}; expected {expected}"
        )
    # As graphs take an op's result to be: laid out row by row, in memory that no argument has.
    result = result.contiguous()
    storage = result.untyped_storage().data_ptr()
    if any(each.untyped_storage().data_ptr() == storage for each in arguments):
        result = result.clone()
    return result


@torch.library.impl(_ops, "run_linear", "CompositeExplicitAutograd")
def _(x: Tensor, runner_id: int, out_features: int, fingerprint: int = 0) -> Tensor:
    return _run(runner_id, out_features, fingerprint, x)


@torch.library.impl(_ops, "run_moe", "CompositeExplicitAutograd")
def _(
    hidden_states: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    runner_id: int,
    hidden_size: int,
    fingerprint: int = 0,
) -> Tensor:
    return _run(runner_id, hidden_size, fingerprint, hidden_states, topk_weights, topk_ids)
