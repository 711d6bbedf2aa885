# SPDX-License-Identifier: Apache-2.0
# The public names with their types; tests/python/stubs_test.py holds them to the code.
import builtins
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias, overload

__version__: str
__all__ = [
    "BlobLease",
    "BlobStore",
    "BlobSummary",
    "CancelToken",
    "CompileError",
    "CorruptError",
    "CudaModule",
    "DeviceInfo",
    "Difference",
    "DriverError",
    "Error",
    "Event",
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
    "Loader",
    "ModuleReport",
    "ModuleSpec",
    "NotFoundError",
    "PreloadPhases",
    "PreloadReport",
    "SealedError",
    "Source",
    "Stats",
    "TimeoutError",
    "VariableInfo",
    "default_loader",
    "get_cuda_module",
    "preload_all",
]

_Path: TypeAlias = str | os.PathLike[str]
_Size: TypeAlias = int | Sequence[int]  # up to three
_Stream: TypeAlias = object  # an int, a torch or CuPy stream, or one with __cuda_stream__

class Error(Exception):
    code: str
    log: str
    def __init__(self, message: str, *, log: str = "") -> None: ...

class InvalidArgumentError(Error, ValueError): ...
class NotFoundError(Error, LookupError): ...
class CompileError(Error): ...
class IncompatibleError(Error): ...
class CorruptError(Error): ...
class IoError(Error, OSError): ...
class TimeoutError(Error, builtins.TimeoutError): ...
class SealedError(Error): ...
class DriverError(Error): ...
class InternalError(Error): ...

class Source(NamedTuple):
    name: str
    text: str | bytes

@dataclass(frozen=True)
class ModuleSpec:
    sources: _Path | Source | Sequence[_Path | Source]
    name: str = ""
    headers: Mapping[str, str | bytes] = ...
    include: Iterable[_Path] = ()
    define: Mapping[str, object] = ...
    flags: Iterable[str] = ()
    names: Iterable[str] = ()
    targets: Iterable[str] = ()
    working_folder: _Path = ""
    std_shims: bool = True
    named_headers: Mapping[str, str | bytes] = ...
    link: str = "none"
    objects: Iterable[_Path] = ()
    def to_c(self) -> ctypes.Structure: ...

@dataclass(frozen=True)
class VariableInfo:
    name: str
    lowered: str
    bytes: int
    is_constant: bool

class Global(NamedTuple):
    address: int
    bytes: int

@dataclass(frozen=True)
class KernelInfo:
    name: str
    lowered: str
    registers: int
    shared_bytes: int
    local_bytes: int
    spill_bytes: int

@dataclass(frozen=True)
class ModuleReport:
    name: str
    source: str
    target: str
    key: str
    outcome: str
    reason: str
    not_stored: str
    store_refused: bool
    dropped_flags: tuple[str, ...]
    milliseconds: float
    load_milliseconds: float
    cubin_bytes: int
    kernels: tuple[KernelInfo, ...]
    log: str
    error: Error | None
    peak_bytes: int
    variables: tuple[VariableInfo, ...] = ()
    @staticmethod
    def from_c(c: ctypes.Structure) -> ModuleReport: ...

class PreloadPhases(NamedTuple):
    find: float
    hash: float
    look_up: float
    fetch: float
    compile: float
    load: float

@dataclass(frozen=True)
class PreloadReport:
    modules: tuple[ModuleReport, ...]
    hits: int
    compiled: int
    failed: int
    milliseconds: float
    phases: PreloadPhases

class Event(NamedTuple):
    kind: str
    module: str
    target: str
    key: str
    reason: str
    failed: bool
    milliseconds: float
    @staticmethod
    def from_c(c: ctypes.Structure) -> Event: ...

class Difference(NamedTuple):
    field: str
    was: str
    now: str

@dataclass(frozen=True)
class Explanation:
    hit: bool
    key: str
    nearest: str
    differences: tuple[Difference, ...]
    target: str
    @staticmethod
    def from_c(c: ctypes.Structure) -> Explanation: ...

@dataclass(frozen=True)
class DeviceInfo:
    ordinal: int
    name: str
    capability: int
    memory_bytes: int
    num_sms: int

@dataclass(frozen=True)
class KernelAttributes:
    registers: int
    max_block_threads: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    constant_bytes: int
    local_bytes: int

@dataclass(frozen=True)
class Stats:
    entries: int
    bytes: int
    hits: int
    misses: int
    misses_new: int
    misses_header_changed: int
    misses_header_appeared: int
    misses_header_vanished: int
    misses_damaged: int
    compiles: int
    failed: int
    stored: int
    not_stored: int
    evicted: int
    corrupt: int
    singleflight_waits: int
    saved_us: int
    store_errors: int
    sealed_violations: int
    daemon_asked: int
    daemon_absent: int
    daemon_failed: int
    daemon_declined: int
    misses_revoked: int
    misses_evicted: int

class Launch:
    def __init__(
        self,
        kernel: Kernel,
        grid: _Size,
        block: _Size,
        stream: _Stream | None = None,
        shared_bytes: int = 0,
        *,
        cluster: _Size | None = None,
        programmatic_launch: bool = False,
        cooperative: bool = False,
    ) -> None: ...
    def __call__(self, *arguments: object) -> None: ...

class Kernel:
    name: str
    parameter_bytes: tuple[int, ...]
    def __init__(self, loader: Loader, handle: int) -> None: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def native(self) -> int: ...
    def reserve_shared(self, bytes: int) -> None: ...
    def attributes(self, ordinal: int) -> KernelAttributes: ...
    def max_blocks_per_sm(
        self, ordinal: int, block_threads: int, shared_bytes: int = 0
    ) -> int: ...
    def __call__(self, *_: object) -> NoReturn: ...
    @overload
    def __getitem__(self, config: tuple[_Size, _Size]) -> Launch: ...
    @overload
    def __getitem__(self, config: tuple[_Size, _Size, _Stream | None]) -> Launch: ...
    @overload
    def __getitem__(self, config: tuple[_Size, _Size, _Stream | None, int]) -> Launch: ...
    def launch(
        self,
        *arguments: object,
        grid: _Size,
        block: _Size,
        stream: _Stream | None = None,
        shared_bytes: int = 0,
        cluster: _Size | None = None,
        programmatic_launch: bool = False,
        cooperative: bool = False,
    ) -> None: ...
    def configure(
        self,
        grid: _Size,
        block: _Size,
        *,
        stream: _Stream | None = None,
        shared_bytes: int = 0,
        cluster: _Size | None = None,
        programmatic_launch: bool = False,
        cooperative: bool = False,
    ) -> Launch: ...

class CancelToken:
    def __init__(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def cancelled(self) -> bool: ...

class Loader:
    def __init__(
        self,
        *,
        store: _Path | None = None,
        system_store: _Path | None = None,
        max_bytes: int = 0,
        memory_only: bool = False,
        offline: bool = False,
        include_path: Iterable[_Path] = (),
        nvrtc_library: _Path | None = None,
        cuda_library: _Path | None = None,
        jobs: int = 0,
        compile_timeout_ms: int = 0,
        compile_memory_bytes: int = 0,
        daemon: str | None = None,
        daemon_socket: _Path | None = None,
        revoked_keys: Iterable[str] = (),
        record: _Path | None = None,
        memory_bytes: int = 0,
        events: Callable[[Event], object] | None = None,
    ) -> None: ...
    @property
    def handle(self) -> ctypes.c_void_p: ...
    def close(self) -> None: ...
    def __enter__(self) -> Loader: ...
    def __exit__(self, *_: object) -> None: ...
    def preload(
        self,
        manifest: _Path | Iterable[ModuleSpec] | None = None,
        *,
        modules: Iterable[str] = (),
        targets: Iterable[str] = (),
        devices: Iterable[int] = (),
        load: bool = True,
        keep_going: bool = False,
        capture_guard: _Stream | None = None,
        progress: Callable[[int, int, ModuleReport], object] | None = None,
        cancel: CancelToken | None = None,
    ) -> PreloadReport: ...
    def compile(
        self, module: ModuleSpec, *, cancel: CancelToken | None = None
    ) -> tuple[ModuleReport, ...]: ...
    def get(
        self, module: ModuleSpec, kernel: str | None = None, *, cancel: CancelToken | None = None
    ) -> Kernel: ...
    def get_global(self, module: ModuleSpec, name: str, device: int = 0) -> Global: ...
    def unload(self, key: str) -> None: ...
    def find(self, name: str | int) -> Kernel | None: ...
    def __getitem__(self, name: str | int) -> Kernel: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def seal(self, *, warn: bool = False) -> None: ...
    @property
    def sealed(self) -> bool: ...
    def cancel(self) -> None: ...
    def resume(self) -> None: ...
    def devices(self) -> tuple[DeviceInfo, ...]: ...
    def explain(self, module: ModuleSpec, target: str) -> Explanation: ...
    def explain_keys(self, was: str, now: str) -> Explanation: ...
    def cubin(self, key: str) -> bytes: ...
    def stats(self) -> Stats: ...

class CudaModule:
    def __init__(
        self,
        name: str,
        kernels: dict[str, Any],
        reports: tuple[ModuleReport, ...],
        functions: dict[str, Any] | None = None,
    ) -> None: ...
    # A Kernel; of a shipped module also callable on tensors, or a function of tensors.
    def __getattr__(self, name: str) -> Any: ...
    def __getitem__(self, name: str) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __dir__(self) -> Iterable[str]: ...

def default_loader() -> Loader: ...
def get_cuda_module(
    name: str,
    sources: _Path | Sequence[_Path] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    *,
    extra_include_paths: Sequence[_Path] | _Path | None = None,
    names: Sequence[str] = (),
    targets: Sequence[str] = (),
    loader: Loader | None = None,
    verbose: bool = False,
    extra_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    build_directory: _Path | None = None,
    with_cuda: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> CudaModule: ...
def preload_all(
    *,
    loader: Loader | None = None,
    modules: Iterable[str] = (),
    targets: Iterable[str] = (),
    devices: Iterable[int] = (),
    load: bool = True,
    keep_going: bool = False,
    capture_guard: _Stream | None = None,
    progress: Callable[[int, int, ModuleReport], object] | None = None,
    cancel: CancelToken | None = None,
) -> PreloadReport: ...

@dataclass(frozen=True)
class BlobSummary:
    id: str
    kind: str
    key: builtins.bytes
    bytes: int
    created: int
    last_used: int
    hits: int

class BlobLease:
    def __init__(self, loader: Loader, lease: ctypes.c_void_p) -> None: ...
    @property
    def exclusive(self) -> bool: ...
    def put(self, data: builtins.bytes | bytearray | memoryview) -> None: ...
    def drop(self) -> None: ...
    def __enter__(self) -> BlobLease: ...
    def __exit__(self, *_: object) -> None: ...

class BlobStore:
    kind: str
    def __init__(self, kind: str, loader: Loader | None = None) -> None: ...
    def get(self, key: str | builtins.bytes) -> builtins.bytes | None: ...
    def get_or_lease(
        self, key: str | builtins.bytes, wait: float = 60.0
    ) -> builtins.bytes | BlobLease: ...
    def get_or_make(
        self,
        key: str | builtins.bytes,
        make: Callable[[], builtins.bytes],
        wait: float = 60.0,
    ) -> builtins.bytes: ...
    def __contains__(self, key: str | builtins.bytes) -> bool: ...
    def put(
        self, key: str | builtins.bytes, data: builtins.bytes | bytearray | memoryview
    ) -> None: ...
    def remove(self, key: str | builtins.bytes) -> bool: ...
    def list(self) -> tuple[BlobSummary, ...]: ...
