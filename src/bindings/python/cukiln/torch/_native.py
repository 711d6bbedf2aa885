# SPDX-License-Identifier: Apache-2.0
"""<cukiln/nvfp4/torch.h> in ctypes' words."""

from __future__ import annotations

import ctypes
import functools
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_void_p,
)

from .. import _library, _shipped


class Linear(_library.Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("device", c_int),
        ("in_features", c_int64),
        ("out_features", c_int64),
        ("data", c_void_p),
        ("scales", c_void_p),
        ("global_scale", c_void_p),
        ("bias", c_void_p),
        ("input_global_scale", c_void_p),
        ("max_tokens", c_int64),
        ("fingerprint", c_int64),
        ("w4a16", c_int64),
    )


class Moe(_library.Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("device", c_int),
        ("experts", c_int64),
        ("global_experts", c_int64),
        ("hidden", c_int64),
        ("width", c_int64),
        ("up_data", c_void_p),
        ("up_scales", c_void_p),
        ("up_decode", c_void_p),
        ("down_data", c_void_p),
        ("down_scales", c_void_p),
        ("down_decode", c_void_p),
        ("hidden_global_scale", c_void_p),
        ("activation_global_scale", c_void_p),
        ("expert_map", c_void_p),
        ("interleaved", c_int),
        ("limit", c_float),
        ("alpha", c_float),
        ("beta", c_float),
        ("max_tokens", c_int64),
        ("max_topk", c_int64),
        ("fingerprint", c_int64),
        ("up_bias", c_void_p),
        ("down_bias", c_void_p),
        ("dynamic_activations", c_int64),
    )


_PROTOTYPES: dict[str, tuple[object, ...]] = {
    "cukiln_torch_register": (),
    "cukiln_torch_set_loader": (c_void_p,),
    "cukiln_torch_linear_create": (POINTER(Linear), POINTER(c_int64)),
    "cukiln_torch_moe_create": (POINTER(Moe), POINTER(c_int64)),
    "cukiln_torch_modules": (
        POINTER(Linear),
        POINTER(Moe),
        c_int,
        POINTER(c_char_p),
        c_size_t,
        POINTER(c_size_t),
    ),
    "cukiln_torch_python_create": (POINTER(c_int64),),
    "cukiln_torch_runner_reserve": (c_int64, c_int64),
    "cukiln_torch_runner_destroy": (c_int64,),
}


@functools.cache
def _functions() -> ctypes.CDLL:
    opened = _shipped.library()
    for name, arguments in _PROTOTYPES.items():
        function = getattr(opened, name)
        function.restype = c_int
        function.argtypes = arguments
    return opened


def call(name: str, *arguments: object) -> None:
    """`cukiln_torch_NAME`, whose failure is an exception."""
    _library.check(getattr(_functions(), f"cukiln_torch_{name}")(*arguments))


def create(kind: str, *weights: ctypes.Structure) -> int:
    """A runner's number."""
    number = c_int64()
    call(f"{kind}_create", *map(byref, weights), byref(number))
    return number.value


def preload(loader: c_void_p) -> None:
    """The shipped kernels, in parallel. What fails is an error of the op that needs it."""
    options = _library.PreloadOptions(keep_going=1)
    _library.check(_shipped.library().cukiln_nvfp4_preload(loader, options, None))
