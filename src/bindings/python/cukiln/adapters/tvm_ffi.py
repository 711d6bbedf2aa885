# SPDX-License-Identifier: Apache-2.0
"""tvm-ffi's NVRTC compile through cukiln: a cubin is compiled once, for all processes.

    import tvm_ffi.cpp.nvrtc
    from cukiln.adapters.tvm_ffi import nvrtc_compile

    tvm_ffi.cpp.nvrtc.nvrtc_compile = nvrtc_compile

Unlike the other adapters this one stores entries: headers are part of the key, and `explain` knows
them. What cukiln compiles to something else is left to tvm-ffi's own function, and not stored:
relocatable device code, LTO, and sources that name their file (`__FILE__`). A header that does has
the path by which cukiln serves it, `/cukiln/…`. All else needs neither tvm-ffi nor cuda.bindings.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from .. import _errors
from .._loader import default_loader
from .._spec import ModuleSpec, Source

try:
    _compile_by_tvm_ffi = importlib.import_module("tvm_ffi.cpp.nvrtc").nvrtc_compile
except ImportError:
    _compile_by_tvm_ffi = None

_DEVICE_CODE = "-default-device"  # functions without an annotation are device code
# cukiln links these to an executable, where NVRTC leaves an object, or nothing.
_LINKED = {
    *("rdc", "relocatable-device-code", "dc", "device-c", "dw", "device-w"),
    *("dlto", "dlink-time-opt"),
}
_FILE_NAMES = ("__FILE__", "__BASE_FILE__", "__builtin_FILE", "source_location")


def _reason_for_tvm_ffi(source: str, options: list[str]) -> str | None:
    for option in options:
        if option.strip().lstrip("-").partition("=")[0] in _LINKED:
            return option
    return next((name for name in _FILE_NAMES if name in "\n".join([source, *options])), None)


def _last_architecture(
    arch: str | None, options: list[str]
) -> tuple[str | None, list[str]]:
    """The architecture that the options name last, as with NVRTC, else `arch`; and the other options."""
    names = ("-arch", "--gpu-architecture")
    others = []
    words = iter(options)
    for word in words:
        name, equals, value = word.strip().partition("=")
        if name in names:
            arch = value if equals else next(words, "")
        else:
            others.append(word)
    return arch, others


def nvrtc_compile(
    source: str,
    *,
    name: str = "kernel.cu",
    arch: str | None = None,
    extra_opts: Sequence[str] | None = None,
) -> bytes:
    """Returns the cubin of a source. `arch` is `sm_90a`; None: the first device's. Errors:
    RuntimeError, with NVRTC's log if the source does not compile."""
    options = [
        option.decode() if isinstance(option, bytes) else option for option in extra_opts or ()
    ]
    reason = _reason_for_tvm_ffi(source, options)
    if reason is not None:
        if _compile_by_tvm_ffi is None:
            raise RuntimeError(f"{reason} is compiled by tvm-ffi itself; install apache-tvm-ffi")
        return _compile_by_tvm_ffi(source, name=name, arch=arch, extra_opts=extra_opts)
    arch, options = _last_architecture(arch, options)
    loader = default_loader()
    try:
        if arch is None:
            devices = loader.devices()
            if not devices:
                raise RuntimeError("no device is visible: name the architecture, arch='sm_90a'")
            arch = f"sm_{devices[0].capability}"
        module = ModuleSpec(
            Source(name, source), flags=[_DEVICE_CODE, *options], targets=[arch], std_shims=False
        )
        (report,) = loader.compile(module)
        return loader.cubin(report.key)
    except _errors.CompileError as error:
        raise RuntimeError(f"NVRTC compilation failed:\n{error.log}") from error
    except _errors.Error as error:
        raise RuntimeError(f"{name} was not compiled: {error}") from error
