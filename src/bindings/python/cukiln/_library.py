# SPDX-License-Identifier: Apache-2.0
"""libcukiln.so: where it is, and its C interface (<cukiln/cukiln.h>) in ctypes' words.

A library is opened by path at its first use, once in a process. Calls release the GIL.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

from . import _errors

_FOLDER = "lib"  # in the package, as the wheel lays it down


def find(name: str) -> Path:
    """A file that came with the package, or lies beside the library that CUKILN_LIBRARY names."""
    setting = os.environ.get("CUKILN_LIBRARY")
    if setting:
        library = Path(setting)
        candidates = [library if name == "libcukiln.so" else library.resolve().parent / name]
    else:  # an editable install has them elsewhere than this file
        from . import __path__ as folders

        candidates = [Path(folder) / _FOLDER / name for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    tried = "".join(f"\n  {candidate}" for candidate in candidates)
    raise _errors.NotFoundError(
        f"{name} is not there; looked for:{tried}\n"
        "Install the package (pip install .), or set CUKILN_LIBRARY to a built libcukiln.so."
    )


class Sized(ctypes.Structure):
    """A struct that the caller fills: it starts with its own size."""

    def __init__(self, **members: object) -> None:
        super().__init__(struct_bytes=ctypes.sizeof(type(self)), **members)


# schema: C interface. Written by src/schema/generate.py
LOG_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class Event(ctypes.Structure):
    _fields_ = (
        ("kind", c_int),
        ("module", c_char_p),
        ("target", c_char_p),
        ("key", c_char_p),
        ("reason", c_char_p),
        ("failed", c_int),
        ("milliseconds", c_double),
    )


EVENT_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Event))


class Options(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("from_environment", c_int),
        ("store_directory", c_char_p),
        ("system_directory", c_char_p),
        ("max_bytes", c_uint64),
        ("memory_only", c_int),
        ("allow_network_file_system", c_int),
        ("daemon", c_int),
        ("daemon_socket", c_char_p),
        ("revoked_keys", POINTER(c_char_p)),
        ("revoked_key_count", c_size_t),
        ("scoped_keys", POINTER(c_char_p)),
        ("scoped_key_count", c_size_t),
        ("nvrtc_library", c_char_p),
        ("cuda_library", c_char_p),
        ("worker", c_char_p),
        ("include_path", POINTER(c_char_p)),
        ("include_path_count", c_size_t),
        ("site_packages", POINTER(c_char_p)),
        ("site_packages_count", c_size_t),
        ("virtual_env", c_char_p),
        ("conda_prefix", c_char_p),
        ("cuda_home", c_char_p),
        ("home", c_char_p),
        ("library_path", POINTER(c_char_p)),
        ("library_path_count", c_size_t),
        ("offline", c_int),
        ("jobs", c_uint32),
        ("compile_timeout_ms", c_uint32),
        ("compile_memory_bytes", c_uint64),
        ("memory_bytes", c_uint64),
        ("record", c_char_p),
        ("log", LOG_FUNCTION),
        ("log_user", c_void_p),
        ("nvtx_library", c_char_p),
        ("events", EVENT_FUNCTION),
        ("events_user", c_void_p),
    )


class KernelInfo(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("lowered", c_char_p),
        ("registers", c_uint32),
        ("shared_bytes", c_uint32),
        ("local_bytes", c_uint32),
        ("spill_bytes", c_uint32),
    )


class VariableInfo(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("lowered", c_char_p),
        ("size_bytes", c_uint64),
        ("is_constant", c_int),
    )


class ModuleReport(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("source", c_char_p),
        ("target", c_char_p),
        ("key", c_char_p),
        ("outcome", c_int),
        ("reason", c_char_p),
        ("error", c_char_p),
        ("error_code", c_int),
        ("not_stored", c_char_p),
        ("not_stored_code", c_int),
        ("dropped_flags", POINTER(c_char_p)),
        ("dropped_flag_count", c_size_t),
        ("milliseconds", c_double),
        ("load_milliseconds", c_double),
        ("cubin_bytes", c_uint64),
        ("kernels", POINTER(KernelInfo)),
        ("kernel_count", c_size_t),
        ("log", c_char_p),
        ("index", c_size_t),
        ("peak_bytes", c_uint64),
        ("variables", POINTER(VariableInfo)),
        ("variable_count", c_size_t),
    )


PROGRESS_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_size_t, POINTER(ModuleReport))


class PreloadOptions(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("devices", POINTER(c_int)),
        ("device_count", c_size_t),
        ("targets", POINTER(c_char_p)),
        ("target_count", c_size_t),
        ("no_load", c_int),
        ("keep_going", c_int),
        ("capture_guard", c_void_p),
        ("progress", PROGRESS_FUNCTION),
        ("progress_user", c_void_p),
        ("modules", POINTER(c_char_p)),
        ("module_count", c_size_t),
        ("cancel", c_void_p),
    )


class PreloadReport(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("hits", c_size_t),
        ("compiled", c_size_t),
        ("failed", c_size_t),
        ("milliseconds", c_double),
        ("find_milliseconds", c_double),
        ("hash_milliseconds", c_double),
        ("look_up_milliseconds", c_double),
        ("fetch_milliseconds", c_double),
        ("compile_milliseconds", c_double),
        ("load_milliseconds", c_double),
    )


class Source(ctypes.Structure):
    _fields_ = (
        ("path", c_char_p),
        ("text", c_char_p),
        ("text_bytes", c_size_t),
    )


class Module(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("sources", POINTER(Source)),
        ("source_count", c_size_t),
        ("headers", POINTER(Source)),
        ("header_count", c_size_t),
        ("include", POINTER(c_char_p)),
        ("include_count", c_size_t),
        ("flags", POINTER(c_char_p)),
        ("flag_count", c_size_t),
        ("names", POINTER(c_char_p)),
        ("name_count", c_size_t),
        ("targets", POINTER(c_char_p)),
        ("target_count", c_size_t),
        ("working_folder", c_char_p),
        ("named_headers", POINTER(Source)),
        ("named_header_count", c_size_t),
        ("no_std_shims", c_int),
        ("link", c_int),
        ("objects", POINTER(c_char_p)),
        ("object_count", c_size_t),
    )


class WatchOptions(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("after_seal", c_int),
    )


class DeviceInfo(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("ordinal", c_int),
        ("capability", c_int),
        ("memory_bytes", c_uint64),
        ("num_sms", c_uint32),
        ("name", c_char * 256),
    )


class LaunchConfig(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint32),
        ("cluster", c_uint32 * 3),
        ("programmatic_launch", c_int),
        ("cooperative", c_int),
        ("balance_clusters", c_int),
    )


class KernelAttributes(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("registers", c_uint32),
        ("max_block_threads", c_uint32),
        ("static_shared_bytes", c_uint32),
        ("dynamic_shared_bytes", c_uint32),
        ("constant_bytes", c_uint32),
        ("local_bytes", c_uint32),
    )


class Difference(ctypes.Structure):
    _fields_ = (
        ("field", c_char_p),
        ("was", c_char_p),
        ("now", c_char_p),
    )


class Explanation(ctypes.Structure):
    _fields_ = (
        ("hit", c_int),
        ("key", c_char_p),
        ("nearest", c_char_p),
        ("differences", POINTER(Difference)),
        ("difference_count", c_size_t),
        ("target", c_char_p),
    )


class Blob(ctypes.Structure):
    _fields_ = (
        ("id", c_char_p),
        ("kind", c_char_p),
        ("key", c_void_p),
        ("key_bytes", c_size_t),
        ("size_bytes", c_uint64),
        ("created_s", c_int64),
        ("last_used_s", c_int64),
        ("hits", c_int64),
        ("signer", c_char_p),
    )


class Stats(Sized):
    _fields_ = (
        ("struct_bytes", c_size_t),
        ("entries", c_uint64),
        ("store_bytes", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("misses_new", c_uint64),
        ("misses_header_changed", c_uint64),
        ("misses_header_appeared", c_uint64),
        ("misses_header_vanished", c_uint64),
        ("misses_damaged", c_uint64),
        ("compiles", c_uint64),
        ("failed", c_uint64),
        ("stored", c_uint64),
        ("not_stored", c_uint64),
        ("evicted", c_uint64),
        ("corrupt", c_uint64),
        ("singleflight_waits", c_uint64),
        ("saved_us", c_uint64),
        ("store_errors", c_uint64),
        ("sealed_violations", c_uint64),
        ("daemon_asked", c_uint64),
        ("daemon_absent", c_uint64),
        ("daemon_failed", c_uint64),
        ("daemon_declined", c_uint64),
        ("misses_revoked", c_uint64),
        ("misses_evicted", c_uint64),
    )


_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "cukiln_code_name": (c_char_p, [c_int]),
    "cukiln_last_error_code": (c_int, []),
    "cukiln_last_error": (c_char_p, []),
    "cukiln_last_error_log": (c_char_p, []),
    "cukiln_version": (c_char_p, []),
    "cukiln_loader_create": (c_int, [POINTER(Options), c_void_p]),
    "cukiln_loader_destroy": (None, [c_void_p]),
    "cukiln_cancel_token_create": (c_void_p, []),
    "cukiln_cancel_token_cancel": (None, [c_void_p]),
    "cukiln_cancel_token_destroy": (None, [c_void_p]),
    "cukiln_loader_preload": (c_int, [c_void_p, c_char_p, POINTER(PreloadOptions), POINTER(PreloadReport)]),
    "cukiln_loader_preload_modules": (c_int, [c_void_p, POINTER(POINTER(Module)), c_size_t, POINTER(PreloadOptions), POINTER(PreloadReport)]),
    "cukiln_loader_get": (c_int, [c_void_p, POINTER(Module), c_char_p, c_void_p, c_void_p]),
    "cukiln_loader_get_global": (c_int, [c_void_p, POINTER(Module), c_char_p, c_int, POINTER(c_uint64), POINTER(c_size_t)]),
    "cukiln_loader_get_cuda_module": (c_int, [c_void_p, c_char_p, POINTER(c_char_p), c_size_t, POINTER(c_char_p), c_size_t]),
    "cukiln_loader_unload": (c_int, [c_void_p, c_char_p]),
    "cukiln_loader_watch": (c_int, [c_void_p, POINTER(WatchOptions), c_void_p]),
    "cukiln_watch_destroy": (None, [c_void_p]),
    "cukiln_loader_seal": (None, [c_void_p, c_int]),
    "cukiln_loader_sealed": (c_int, [c_void_p]),
    "cukiln_loader_cancel": (None, [c_void_p]),
    "cukiln_loader_resume": (None, [c_void_p]),
    "cukiln_loader_find": (c_void_p, [c_void_p, c_char_p]),
    "cukiln_loader_at": (c_void_p, [c_void_p, c_size_t]),
    "cukiln_loader_kernel_count": (c_size_t, [c_void_p]),
    "cukiln_canonical_name": (c_size_t, [c_char_p, c_char_p, c_size_t]),
    "cukiln_loader_device_count": (c_int, [c_void_p, POINTER(c_size_t)]),
    "cukiln_loader_device": (c_int, [c_void_p, c_int, POINTER(DeviceInfo)]),
    "cukiln_kernel_launch": (c_int, [c_void_p, c_void_p, POINTER(LaunchConfig), c_void_p]),
    "cukiln_kernel_check_parameters": (c_int, [c_void_p, POINTER(c_size_t), c_size_t]),
    "cukiln_kernel_reserve_shared": (c_int, [c_void_p, c_uint32]),
    "cukiln_kernel_get_attributes": (c_int, [c_void_p, c_int, POINTER(KernelAttributes)]),
    "cukiln_kernel_max_blocks_per_sm": (c_int, [c_void_p, c_int, c_uint32, c_uint32, POINTER(c_uint32)]),
    "cukiln_kernel_name": (c_size_t, [c_void_p, c_char_p, c_size_t]),
    "cukiln_kernel_parameter_count": (c_size_t, [c_void_p]),
    "cukiln_kernel_parameter_bytes": (c_size_t, [c_void_p, c_size_t]),
    "cukiln_kernel_native": (c_void_p, [c_void_p]),
    "cukiln_loader_explain": (c_int, [c_void_p, POINTER(Module), c_char_p, POINTER(POINTER(Explanation))]),
    "cukiln_loader_explain_keys": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(POINTER(Explanation))]),
    "cukiln_explanation_destroy": (None, [POINTER(Explanation)]),
    "cukiln_loader_cubin": (c_int, [c_void_p, c_char_p, c_void_p, POINTER(c_size_t)]),
    "cukiln_free": (None, [c_void_p]),
    "cukiln_blob_get": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, POINTER(c_size_t)]),
    "cukiln_blob_contains": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_int)]),
    "cukiln_blob_put": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t]),
    "cukiln_blob_remove": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_int)]),
    "cukiln_blob_get_or_lease": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_uint64, c_void_p, c_void_p, POINTER(c_size_t), c_void_p]),
    "cukiln_blob_lease_is_exclusive": (c_int, [c_void_p]),
    "cukiln_blob_lease_put": (c_int, [c_void_p, c_void_p, c_size_t]),
    "cukiln_blob_lease_destroy": (None, [c_void_p]),
    "cukiln_blob_list": (c_int, [c_void_p, c_char_p, POINTER(POINTER(Blob)), POINTER(c_size_t)]),
    "cukiln_loader_stats": (c_int, [c_void_p, POINTER(Stats)]),
}
# end of schema


@functools.cache
def library() -> ctypes.CDLL:
    """Errors: NotFoundError; IncompatibleError, when it cannot be opened."""
    return open_library("libcukiln.so", _PROTOTYPES)


def open_library(
    name: str, prototypes: dict[str, tuple[Any, list[Any]]]
) -> ctypes.CDLL:
    path = find(name)
    try:
        opened = ctypes.CDLL(str(path))  # RTLD_LOCAL: its symbols are visible to no other library
        for function_name, (result, arguments) in prototypes.items():
            function = getattr(opened, function_name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise _errors.IncompatibleError(f"{path} cannot be used: {error}") from error
    return opened


def check(code: int) -> None:
    """Raises what a call in this thread left behind unless `code` says that it succeeded."""
    if code != 0:
        opened = library()
        raise _errors.of(
            code, text(opened.cukiln_last_error()), text(opened.cukiln_last_error_log())
        )


def text(data: bytes | None) -> str:
    """Paths are bytes, and so are messages with paths in them."""
    return os.fsdecode(data or b"")


def ordinal(number: int) -> int:
    """A device's ordinal for C, where ctypes would cut off what does not fit."""
    if not 0 <= number < 1 << 31:
        raise _errors.InvalidArgumentError(f"there is no device {number}; expected an ordinal from 0")
    return number


def encoded(value: str | bytes | os.PathLike[str]) -> bytes:
    """For C, where a text ends at its first NUL byte."""
    out = os.fsencode(value)
    if b"\0" in out:
        raise _errors.InvalidArgumentError(f"{value!r} has a NUL byte; expected none")
    return out


def canonical_name(expression: str) -> str:
    """The spelling of a name expression that the library's lists have."""
    name = encoded(expression)
    length = library().cukiln_canonical_name(name, None, 0)
    buffer = ctypes.create_string_buffer(length + 1)
    library().cukiln_canonical_name(name, buffer, len(buffer))
    return text(buffer.value)


def strings(texts: Sequence[str | os.PathLike[str]]) -> ctypes.Array[c_char_p] | None:
    """NULL for none."""
    return (c_char_p * len(texts))(*map(encoded, texts)) if texts else None
