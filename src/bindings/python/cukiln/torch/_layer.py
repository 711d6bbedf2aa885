# SPDX-License-Identifier: Apache-2.0
"""What NVFP4 layers have in common: weights in the form of checkpoints and of the kernels, a
runner, and its number in graphs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ._checkpoints import blocks_of_16, rename
from ._runners import Runner
from ._weights import (
    BLOCK,
    E4M3,
    K_MULTIPLE,
    N_MULTIPLE,
    apply_keeping_dtypes,
    blank,
    is_blank,
    pad_data,
    pad_scales,
    swizzle,
    unswizzle,
    up,
)

Activations = Literal["bf16", "nvfp4"] | None
ACTIVATIONS = ("bf16", "nvfp4", None)
MOST_DECODE = 16.0  # no weight is as large as 43,008
MOST_INPUT_DECODE = 100.0  # and no input as 268,800
WORKABLE = {torch.bfloat16, torch.float16, torch.float32, torch.float64}


class Layer(nn.Module):
    """Buffers in the form of checkpoints, until `process_weights_after_loading` brings them, in
    place, into that of the kernels, and makes the runner."""

    matrices: tuple[tuple[str, str], ...]  # names of packed data and of block scales
    decodes: tuple[str, ...]  # names of the decode scales of weights
    optional: tuple[str, ...]  # and of inputs; a checkpoint may lack these: 0 stands for them
    copied: tuple[str, ...] = ()  # other buffers that a runner shares no memory with
    settings: tuple[str, ...] = ("activations",)  # what a runner has from its layer besides

    def __init__(self, activations: Activations = None) -> None:
        super().__init__()
        check_activations(activations)
        self.activations = activations
        self._ready = False
        self._max_tokens = 0
        self._group = 0  # tokens of a call, if it is always the same
        self._runner: Runner | None = None
        self._loaded: set[str] = set()  # buffers that a state dict wrote, or that were replaced
        self._prefix = ""  # of the state dict seen last
        self._bound: list[int] = []
        self._copied: list[tuple[str, Tensor]] = []  # those buffers, and what the runner has
        self.runner_id = -1
        self.fingerprint = 0

    def shape(self, data: str) -> tuple[int, int]:
        """Rows and columns of a matrix in a checkpoint."""
        raise NotImplementedError

    def make_runner(self) -> Runner:
        raise NotImplementedError

    def keeps_bf16(self) -> bool:
        """Whether activations stay in bf16 (W4A16): as `activations` says; if it is None, on
        devices of compute capability 9.0, whose tensor cores multiply no NVFP4."""
        if self.activations is not None:
            return self.activations == "bf16"
        device = next(self.buffers()).device
        return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)

    def process_weights_after_loading(self) -> None:
        """Pads weights and lays out their scales, once: a second call does nothing. For loaders
        that copy into the buffers; `load_state_dict` calls it itself."""
        if self._ready:
            return
        device = getattr(self, self.matrices[0][0]).device
        for name in self.optional:
            if getattr(self, name).is_meta:
                self._buffers[name] = torch.zeros((), device=device)
        if any(buffer.is_meta for buffer in self.buffers()):
            raise RuntimeError(
                f"this {type(self).__name__} is on meta, where there is no memory to load into: "
                "use load_state_dict(…, assign=True), or to_empty(device=…) before"
            )
        missing = [name for name in self._unloaded() if is_blank(getattr(self, name))]
        if missing:
            raise RuntimeError(self._without(missing))
        for data, scales in self.matrices:
            rows, columns = self.shape(data)
            setattr(self, scales, blocks_of_16(getattr(self, data), getattr(self, scales)))
            check(data, getattr(self, data), torch.uint8, rows, columns // 2)
            check(scales, getattr(self, scales), E4M3, rows, columns // BLOCK)
            check_block_scales(scales, getattr(self, scales))
        for name in self.decodes:
            if (getattr(self, name) >= MOST_DECODE).any():
                raise ValueError(
                    f"{name} is {getattr(self, name).tolist()}; expected a decode scale, amax / "
                    "2688: this looks like its inverse, which compressed-tensors calls "
                    "weight_global_scale"
                )
        if self._group:
            self._require_fixed_scales()  # before anything is changed
        for data, scales in self.matrices:
            rows, columns = self.shape(data)
            rows, columns = up(rows, N_MULTIPLE), up(columns, K_MULTIPLE)
            setattr(self, data, pad_data(getattr(self, data), rows, columns))
            setattr(self, scales, swizzle(pad_scales(getattr(self, scales), rows, columns)))
        self.bind()

    def bind(self) -> None:
        """A runner for the buffers as they are."""
        for name in (*self.decodes, *self.optional):
            decode = getattr(self, name)
            bad = ~((decode >= 0) & decode.isfinite())
            if bad.any():
                which = f" of expert {bad.nonzero()[0].item()}" if decode.dim() else ""
                raise ValueError(
                    f"{name}{which} is {decode[bad][0].item()}; expected 0 or more, and finite"
                )
        for name in self.optional:
            if getattr(self, name) >= MOST_INPUT_DECODE:
                raise ValueError(
                    f"{name} is {getattr(self, name).item()}; expected a decode scale, amax / "
                    "2688: this looks like its inverse, which compressed-tensors calls "
                    "input_global_scale"
                )
        if self._group:
            self._require_fixed_scales()
        self._runner = self.make_runner()
        if self._max_tokens:
            self._runner.reserve(self._max_tokens)
        self.runner_id = self._runner.runner_id
        self.fingerprint = self._runner.fingerprint
        self._ready = True
        for name, buffer in list(self._buffers.items()):
            if buffer is None:  # behind the others: torch.export counts them as if none was missing
                self._buffers[name] = self._buffers.pop(name)
        self._copied = []
        for name in (*self.optional, *self.copied):
            buffer = self._buffers.get(name)
            if buffer is not None:
                with torch.inference_mode(False):
                    if buffer.is_inference():  # which counts no writes
                        self._buffers[name] = buffer.clone()
                    self._copied.append((name, buffer.clone()))
        self._bound = self._state()

    def _checkpoint_form(self, data: str, scales: str) -> tuple[Tensor, Tensor]:
        rows, columns = self.shape(data)
        return (
            getattr(self, data)[..., :rows, : columns // 2].contiguous(),
            unswizzle(getattr(self, scales), rows, columns // BLOCK),
        )

    def reserve(self, max_tokens: int) -> None:
        """Has PyTorch's allocator get the scratch of so many tokens or fewer, for the current stream:
        a first call then does not wait for it. All layers share it; captures need none."""
        if max_tokens <= 0:
            raise ValueError(f"max_tokens is {max_tokens}; expected a positive number")
        self._max_tokens = max(self._max_tokens, max_tokens)
        if self._runner is not None:
            self._runner.reserve(self._max_tokens)

    def _take_groups(self, tokens: int) -> None:
        """Has every call of the kernels have so many rows, some of which may be padding."""
        if self._ready:
            self._require_fixed_scales()
        self.reserve(tokens)
        self._group = tokens
        if self._ready:
            self.bind()

    def _require_fixed_scales(self) -> None:
        """Raises a ValueError if a token's result depends on others in a group."""

    def compile_unsupported_reason(self) -> str | None:
        """Why torch.compile cannot have this layer in a graph; None where it can."""
        return None if self._ready else self._without(self._unloaded())

    def _unloaded(self) -> list[str]:
        """Buffers that a layer needs, and that no state dict has written."""
        return [
            name
            for name, buffer in self._buffers.items()
            if buffer is not None and name not in self.optional and name not in self._loaded
        ]

    def _without(self, missing: list[str]) -> str:
        names = ", ".join([self._prefix + name for name in missing])
        return (
            f"this {type(self).__name__} has no weights yet, nothing was loaded into {names}: "
            "load_state_dict loads them; who writes them in place then calls "
            "process_weights_after_loading()"
        )

    def require_ready(self) -> None:
        if not self._ready:
            raise RuntimeError(self.compile_unsupported_reason())

    # ---- A runner's memory and scales are those of its layer, or it is an error.

    def __setattr__(self, name: str, value: Any) -> None:
        ready = self.__dict__.get("_ready")
        if ready and name in self._buffers and value is not self._buffers[name]:
            raise RuntimeError(_replaced(type(self).__name__, name))
        if ready and name in self.settings and value != self.__dict__[name]:
            raise RuntimeError(
                f"{name} of this {type(self).__name__} is set to {value!r}, and its runner computes "
                f"with {self.__dict__[name]!r}: make a layer with {name}={value!r}"
            )
        super().__setattr__(name, value)
        if name in self.__dict__.get("_buffers", ()):
            self._loaded.add(name)

    def _state(self) -> list[int]:
        """Where buffers are, and how often those were written of which the runner has a copy."""
        buffers = self._buffers
        state = [buffer.data_ptr() for buffer in buffers.values() if buffer is not None]
        for name, _ in self._copied:
            state.append(buffers[name]._version)
        return state

    def _require_bound(self) -> None:
        try:
            state = self._state()
            if state == self._bound:
                return
            there = len(state) - len(self._copied)
            if state[:there] == self._bound[:there] and all(
                torch.equal(self._buffers[name], value) for name, value in self._copied
            ):  # written with what it was, as DDP does before each forward
                self._bound = state
                return
        except RuntimeError:
            pass  # a buffer without memory, such as a batch of vmap
        from torch._subclasses.fake_tensor import FakeTensor

        if not any(isinstance(buffer, FakeTensor) for buffer in self.buffers()):  # or it is traced
            raise RuntimeError(_replaced(type(self).__name__, "a buffer"))

    # ---- Moves, copies and state dicts.

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Layer:
        before = [buffer.data_ptr() for buffer in self.buffers()] if self._ready else []
        kept = all(keeps_values(fn, device) for device in {each.device for each in self.buffers()})
        apply_keeping_dtypes(self, super()._apply, fn, recurse)
        if not kept:
            self._become_empty()
        elif self._ready and before != [buffer.data_ptr() for buffer in self.buffers()]:
            self.bind()
        return self

    def _become_empty(self) -> None:
        """On meta, or in memory that to_empty did not fill: as before weights were loaded."""
        for data, scales in self.matrices if self._ready else ():
            self._buffers[data], self._buffers[scales] = self._checkpoint_form(data, scales)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                form = {"dtype": buffer.dtype, "device": buffer.device}
                make = torch.zeros if name in self.optional else blank
                self._buffers[name] = make(buffer.shape, **form)
        self._loaded.clear()
        self._runner, self.runner_id, self.fingerprint, self._ready = None, -1, 0, False

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {"_runner": None, "runner_id": -1, "fingerprint": 0, "_copied": []}
        return {**self.__dict__, **fresh}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._ready:
            self.bind()

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for data, scales in self.matrices if self._ready else ():
            form = self._checkpoint_form(data, scales)
            destination[prefix + data], destination[prefix + scales] = form
        for name in self.optional if self.activations == "bf16" else ():
            if prefix + name in destination and not destination[prefix + name]:
                del destination[prefix + name]  # as in checkpoints of weights alone

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        rename(state_dict, prefix)
        for data, scales in self.matrices:
            if prefix + data in state_dict and prefix + scales in state_dict:
                pair = state_dict[prefix + data], state_dict[prefix + scales]
                state_dict[prefix + scales] = blocks_of_16(*pair)
        errors = [
            f"{prefix}{name} is {given.dtype}; expected {dtype}"
            for names in self.matrices
            for name, dtype in zip(names, (torch.uint8, E4M3), strict=True)
            if (given := state_dict.get(prefix + name)) is not None and given.dtype != dtype
        ]
        if errors:  # copying would convert them, number by number
            arguments[-1].extend(errors)
            return
        given = {name for name in self._buffers if prefix + name in state_dict}
        of_matrices = [name for pair in self.matrices for name in pair]
        if given.issuperset(of_matrices):
            for name in set(self.optional) - given:
                device = state_dict[prefix + of_matrices[0]].device  # this layer's may be meta
                state_dict[prefix + name] = torch.zeros_like(getattr(self, name), device=device)
        reloads = not given.isdisjoint(of_matrices)
        if self._ready and reloads:
            for data, scales in self.matrices:
                form = self._checkpoint_form(data, scales)
                self._buffers[data], self._buffers[scales] = form
        was_ready, failed = self._ready, len(arguments[-1])
        self._prefix, self._ready = prefix, was_ready and not given
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        if len(arguments[-1]) > failed and (reloads or not was_ready):
            self._loaded -= given  # what there is now may be of two checkpoints
            return
        self._loaded |= given
        if was_ready and given and not reloads:
            self.bind()
        elif given and not any(is_blank(getattr(self, name)) for name in self._unloaded()):
            self.process_weights_after_loading()

    def _shown(self) -> str:
        """What it computes with, for extra_repr."""
        kept = "bf16" if self.keeps_bf16() else "nvfp4"
        return f"activations={kept}, runner_id={self.runner_id}"

    def without_gradient(self, y: Tensor) -> Tensor:
        return _NoGradient.apply(y, type(self).__name__) if y.requires_grad else y

    # ---- Runners' numbers in graphs.

    def call(self, op: Any, *tensors: Tensor, size: int) -> Tensor:
        refuse_tangents(self, *tensors)
        if not torch.compiler.is_dynamo_compiling():
            compiling = torch.compiler.is_compiling()
            if not compiling:
                self._require_bound()
            y = op(*tensors, self.runner_id, size, self.fingerprint)
            return y if compiling else self.without_gradient(y)
        # A module's integers are constants of a graph, so that layers of one kind, each compiled by
        # itself, would each be another graph. These two may be variables.
        with torch._dynamo.patch_dynamo_config(allow_unspec_int_on_nn_module=True):
            return op(*tensors, self.runner_id, size, self.fingerprint)


def _replaced(layer: str, what: str) -> str:
    return (
        f"{what} of this {layer} was replaced, or a scale written, and its runner computes with what "
        "was there before: load_state_dict takes other weights and scales; weights, block scales "
        "and a bias may be written in place"
    )


def keeps_values(fn: Callable[[Tensor], Tensor], device: torch.device) -> bool:
    """Whether what `_apply` is called with moves values, which to_empty does not."""
    if device.type == "meta":
        return False
    probe = torch.tensor(list(os.urandom(16)), dtype=torch.uint8, device="cpu")
    if type(probe) is not Tensor:  # a mode traces, without values
        return True
    after = fn(probe.to(device))
    return not after.is_meta and torch.equal(after.cpu(), probe)


def refuse_tangents(layer: nn.Module, *tensors: Tensor) -> None:
    """The ops have no forward-mode derivative, of which PyTorch makes one of zeros."""
    if forward_ad._current_level >= 0 and (
        torch.compiler.is_dynamo_compiling()
        or any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)
    ):
        raise RuntimeError(
            f"{type(layer).__name__} has no derivative in forward mode (torch.func.jvp, jacfwd, "
            "dual numbers)"
        )


class _NoGradient(torch.autograd.Function):
    """PyTorch itself only warns, and leaves gradients out."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, layer: str) -> Tensor:
        ctx.layer = layer
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[None, None]:
        raise RuntimeError(
            f"{ctx.layer} has no gradient: use it under torch.no_grad(), or NVFP4TrainableLinear"
        )


def check_activations(activations: str | None) -> None:
    if activations not in ACTIVATIONS:
        raise ValueError(f"activations is {activations!r}; expected 'bf16', 'nvfp4' or None")


def check(name: str, tensor: Tensor, dtype: torch.dtype, rows: int, columns: int) -> None:
    if tensor.dtype != dtype or tuple(tensor.shape[-2:]) != (rows, columns):
        raise ValueError(
            f"{name} is {tuple(tensor.shape)} {tensor.dtype}; expected [..., {rows}, {columns}] "
            f"{dtype}"
        )


def check_block_scales(name: str, scales: Tensor) -> None:
    """Of one matrix, or of each expert's."""
    bad = scales.view(torch.uint8) >= 0x7F
    if bad.any():
        *expert, row, block = bad.nonzero()[0].tolist()
        which = f" of expert {expert[0]}" if expert else ""
        raise ValueError(
            f"{name}{which} has NaN or a negative number, in row {row} and block {block}; a block "
            "scale is neither"
        )


def check_weight(name: str, weight: Tensor, *shape: int) -> None:
    """Of what is to be quantised: numbers, as nn.Linear has them."""
    wrapped = is_traceable_wrapper_subclass(weight)
    if wrapped or weight.dtype not in WORKABLE or tuple(weight.shape) != shape:
        within = f" in a {type(weight).__name__}" if wrapped else ""
        raise ValueError(
            f"{name} is {tuple(weight.shape)} {weight.dtype}{within}; expected {shape} bfloat16, "
            "float16, float32 or float64. What is quantised already loads by "
            "from_checkpoint, or stays as it is: see quantize_'s filter"
        )


def check_input(x: Tensor, columns: int) -> None:
    if x.shape[-1:] != (columns,) or x.dtype not in WORKABLE:
        cast = (
            ". A model that casts its input to weight.dtype keeps nn.Linear there: quantize_'s "
            "filter leaves it out"
        )
        raise ValueError(
            f"x is {tuple(x.shape)} {x.dtype}; expected [..., {columns}] bfloat16, float16, "
            f"float32 or float64{cast if x.dtype == torch.uint8 else ''}"
        )


def result_dtype(x: Tensor) -> torch.dtype:
    """As of nn.Linear: x's, and in a region of autocast the region's."""
    device = x.device.type
    if device != "meta" and torch.is_autocast_enabled(device) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return x.dtype


def as_rows(x: Tensor, columns: int) -> Tensor:
    check_input(x, columns)
    # A call of PyTorch's costs as much as half an op, also where it has nothing to do.
    if x.dim() != 2:
        x = x.reshape(-1, columns)
    if x.dtype != torch.bfloat16:
        x = x.to(torch.bfloat16)
    return x if x.is_contiguous() else x.contiguous()


def like(y: Tensor, x: Tensor) -> Tensor:
    """[tokens, features] with the leading shape of x, in the dtype that nn.Linear would return."""
    dtype = result_dtype(x)
    if dtype != torch.bfloat16:
        y = y.to(dtype)
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], y.shape[-1])


def one_scale(decode: Tensor) -> Tensor:
    """Of parts that share a runner's one scale."""
    decode = decode.detach().float().reshape(-1)
    if (decode[1:] != decode[0]).any():
        raise ValueError(
            f"the parts of a weight have different weight_scale_2, {decode.tolist()}; calibrate "
            "them together, so that one scale holds for all"
        )
    return decode[0].clone()


def largest(scale: float | Tensor | list[Tensor] | None) -> Tensor:
    """Of decode scales of one input, each of which some part saw; 0 for none."""
    if scale is None or (isinstance(scale, list) and not scale):
        return torch.zeros(())
    if isinstance(scale, list):
        scale = torch.stack([one.detach().float().max() for one in scale])
    return torch.as_tensor(scale).detach().float().max().clone()
