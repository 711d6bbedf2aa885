# SPDX-License-Identifier: Apache-2.0
"""libcukiln_nvfp4.so, and its kernels as functions: all that this package, but for cukiln.torch, knows of them."""

from __future__ import annotations

import ctypes
import functools
import importlib
import operator
import sys
from collections.abc import Iterable
from ctypes import POINTER, c_char, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from . import _errors, _library

# schema: C interface. Written by src/schema/generate.py
class Tactic(ctypes.Structure):
    _fields_ = (
        ("kernel", c_char * 64),
        ("splits", c_int),
    )


class GemmCall(_library.Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("stream", c_void_p),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("output", c_void_p),
        ("a_data", c_void_p),
        ("a_scales", c_void_p),
        ("a_global_scale", c_void_p),
        ("b_data", c_void_p),
        ("b_scales", c_void_p),
        ("b_global_scale", c_void_p),
        ("bias", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("constant_b", c_int),
        ("tactic", c_int),
        ("a_bf16", c_void_p),
    )


class MeasuredGemm(ctypes.Structure):
    _fields_ = (
        ("n", c_int64),
        ("k", c_int64),
        ("m", c_int64),
        ("nanoseconds", c_int64),
        ("tactic", Tactic),
    )


_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "cukiln_nvfp4_preload": (c_int, [c_void_p, POINTER(_library.PreloadOptions), POINTER(_library.PreloadReport)]),
    "cukiln_nvfp4_source": (c_char_p, [c_char_p, POINTER(c_size_t)]),
    "cukiln_nvfp4_gemm_create": (c_int, [c_void_p, c_int, c_void_p]),
    "cukiln_nvfp4_w4a16_gemm_create": (c_int, [c_void_p, c_int, c_void_p]),
    "cukiln_nvfp4_gemm_destroy": (None, [c_void_p]),
    "cukiln_nvfp4_gemm_workspace_bytes": (c_size_t, [c_void_p, c_int64, c_int64, c_int64]),
    "cukiln_nvfp4_gemm_tactics": (c_int, [c_void_p, c_int64, c_int64, c_int64]),
    "cukiln_nvfp4_gemm_tactic": (c_int, [c_void_p, c_int64, c_int64, c_int64, c_int, POINTER(Tactic)]),
    "cukiln_nvfp4_gemm_launch": (c_int, [c_void_p, POINTER(GemmCall)]),
    "cukiln_nvfp4_gemm_save_tactics": (c_int, [c_void_p, c_void_p, POINTER(MeasuredGemm), c_size_t]),
}
# end of schema


@functools.cache
def library() -> ctypes.CDLL:
    """Errors: as of `_library.library`."""
    _library.library()  # first: the other one needs it, and finds it by its name
    return _library.open_library("libcukiln_nvfp4.so", _PROTOTYPES)


def preload() -> Any:
    return library().cukiln_nvfp4_preload


def has(source: str) -> bool:
    """Whether a file is, to the byte, one that comes with cukiln; so is its name where there is
    no such file."""
    try:
        opened = library()
    except _errors.NotFoundError:  # the core alone was built
        return False
    text = opened.cukiln_nvfp4_source(_library.encoded(Path(source).name), None)
    if text is None:
        return False
    try:
        return Path(source).read_bytes() == text
    except FileNotFoundError:
        return True


# What a shipped kernel or function is as a PyTorch operator, where it has tensors to take and to
# return.
OPERATORS = {
    "amax_gsa": "nvfp4.amax_gsa",
    "deinterleave_quantize_from_buffer": "nvfp4.deinterleave_quantize_from_buffer",
    "fused_amax_quantize_nvfp4": "nvfp4.fused_amax_quantize_nvfp4",
    "quantize_nvfp4": "nvfp4.quantize_nvfp4",
    "quantize_nvfp4_from_buffer": "nvfp4.quantize_nvfp4_from_buffer",
    "sampler": "cukiln.sample",
    "swiglu_amax_gsa": "nvfp4.swiglu_amax_gsa",
    "swiglu_quantize_from_buffer": "nvfp4.swiglu_quantize_from_buffer",
    "top_log_probabilities": "cukiln.top_log_probabilities",
}


# Functions of shipped modules that launch several kernels.
_FUNCTIONS = {"fused_amax_quantize": ("fused_amax_quantize_nvfp4",)}


def operator_of(kernel: str, on_gpu: bool) -> Any:
    torch = importlib.import_module(".torch", __package__)  # registers them
    if on_gpu:
        torch.use_loader()  # what they launch on the GPU; does nothing from the second time on
    return operator.attrgetter(OPERATORS[kernel])(sys.modules["torch"].ops)


def _call_operator(name: str, *arguments: Any, **named: Any) -> Any:
    on_gpu = any(getattr(value, "is_cuda", False) for value in (*arguments, *named.values()))
    return operator_of(name, on_gpu)(*arguments, **named)


class _ShippedKernel:
    """A kernel that comes with cukiln: called, it takes and returns tensors."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _call_operator(self._kernel.name, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __getitem__(self, config: tuple[Any, ...]) -> Any:
        return self._kernel[config]

    def __repr__(self) -> str:
        return f"<shipped {self._kernel!r}>"


def add_operators(kernels: dict[str, Any], stems: Iterable[str]) -> dict[str, Any]:
    """Makes the kernels of shipped modules callable; returns the functions that modules with these
    files have besides."""
    for kernel in kernels.keys() & OPERATORS.keys():
        kernels[kernel] = _ShippedKernel(kernels[kernel])
    return {
        function: functools.partial(_call_operator, function)
        for stem in stems
        for function in _FUNCTIONS.get(stem, ())
    }
