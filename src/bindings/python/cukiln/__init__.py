# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels, compiled once with NVRTC, kept in a store, ready before the hot path.

Threads: everything may be called from any thread; calls into the library release the GIL.
Forks: a child process makes a loader of its own; kernels that were loaded before the fork are the
parent's, because a CUDA context does not survive one.
"""

from typing import TYPE_CHECKING

from . import _library
from ._blobs import BlobLease, BlobStore
from ._errors import (
    CompileError,
    CorruptError,
    DriverError,
    Error,
    ErrorCode,
    IncompatibleError,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    SealedError,
    TimeoutError,
)
from ._kernel import Kernel, Launch
from ._loader import CancelToken, DaemonUse, Loader, Watch, default_loader, watch
from ._modules import CudaModule, get_cuda_module, preload_all
from ._spec import (
    BlobSummary,
    DeviceInfo,
    Difference,
    Event,
    EventKind,
    Explanation,
    Global,
    KernelAttributes,
    KernelInfo,
    LinkMode,
    ModuleReport,
    ModuleSpec,
    Outcome,
    PreloadPhases,
    PreloadReport,
    Source,
    Stats,
    VariableInfo,
)

__all__ = [
    "BlobLease",
    "BlobStore",
    "BlobSummary",
    "CancelToken",
    "CompileError",
    "CorruptError",
    "CudaModule",
    "DaemonUse",
    "DeviceInfo",
    "Difference",
    "DriverError",
    "Error",
    "ErrorCode",
    "Event",
    "EventKind",
    "Explanation",
    "Global",
    "IncompatibleError",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "Kernel",
    "KernelAttributes",
    "KernelInfo",
    "Launch",
    "LinkMode",
    "Loader",
    "ModuleReport",
    "ModuleSpec",
    "NotFoundError",
    "Outcome",
    "PreloadPhases",
    "PreloadReport",
    "SealedError",
    "Source",
    "Stats",
    "TimeoutError",
    "VariableInfo",
    "Watch",
    "default_loader",
    "get_cuda_module",
    "preload_all",
    "watch",
]


if TYPE_CHECKING:  # which would take every name for one of __getattr__
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name == "__version__":  # the library's, which is opened at its first use
            return _library.text(_library.library().cukiln_version())
        raise AttributeError(f"module 'cukiln' has no attribute {name!r}")
