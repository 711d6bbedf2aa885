# SPDX-License-Identifier: Apache-2.0
"""tvm-ffi's NVRTC compile through cukiln: a cubin is compiled once, for all processes.

    import tvm_ffi.cpp.nvrtc
    from cukiln.adapters.tvm_ffi import nvrtc_compile

    tvm_ffi.cpp.nvrtc.nvrtc_compile = nvrtc_compile

Unlike the other adapters this one stores entries: headers are part of the key, and `explain` knows
them. It needs neither tvm-ffi nor cuda.bindings.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import _errors
from .._loader import default_loader
from .._spec import ModuleSpec, Source

_DEVICE_CODE = "-default-device"  # functions without an annotation are device code


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
