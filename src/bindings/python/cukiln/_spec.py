# SPDX-License-Identifier: Apache-2.0
"""Requests and reports, as plain values."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from . import _errors, _library

Path = str | os.PathLike[str]
text = _library.text

LinkMode = Literal["rdc", "lto"]
_LINK_MODES = (None, *get_args(LinkMode))  # in the order of cukiln_link_mode


class Source(NamedTuple):
    """Text in memory."""

    name: str
    text: str | bytes


@dataclass(frozen=True)
class ModuleSpec:
    """Sources that are compiled as one module.

    `-D`, `-U`, `-I` and `-include` act as on NVRTC's command line, which is `include`, `define`,
    `flags`, each in its own order. To get another order, write all options in `flags`.
    """

    # schema: ModuleSpec. Written by src/schema/generate.py
    sources: Path | Source | Sequence[Path | Source]
    name: str | None = None  #: for logs and lookups; None: the first source's base name
    headers: Mapping[str, str | bytes] = field(default_factory=dict)  #: in memory, by path
    include: Iterable[Path] = ()  #: folders, searched in order
    define: Mapping[str, object] = field(default_factory=dict)  #: None and True define it as 1
    flags: Iterable[str] = ()  #: NVRTC's, or nvcc's spellings
    names: Iterable[str] = ()  #: kernels or name expressions; none: every extern "C" kernel
    targets: Iterable[str] = ()  #: sm_100a; none: from the flags, else the devices', else sm_100a
    #: of relative paths in `flags`; None: the process's at the call
    working_folder: Path | None = None
    std_shims: bool = True  #: serve <cstdint>, <type_traits>, ... in versions for device code
    #: in memory, by the name by which #include and -include find them before any folder
    named_headers: Mapping[str, str | bytes] = field(default_factory=dict)
    #: each source is compiled by itself, and all are linked; None: one translation unit, unless the
    #: flags have -rdc=true, -dc or -dlto
    link: LinkMode | None = None
    objects: Iterable[Path] = ()  #: files to link with the sources: cubins, fatbins, .o, .a, PTX
    # end of schema

    def to_c(self) -> _library.Module:
        """Keeps alive what it points to."""
        flags = (*map(_macro, self.define.items()), *several("flags", self.flags))
        return _library.Module(
            # schema: module to C. Written by src/schema/generate.py
            name=optional("name", self.name),
            **_sources("sources", "source_count", self.sources),
            **_sources("headers", "header_count", self.headers),
            **listed("include", "include_count", self.include),
            **listed("flags", "flag_count", flags),
            **listed("names", "name_count", self.names),
            **listed("targets", "target_count", self.targets),
            working_folder=optional("working_folder", self.working_folder),
            **_sources("named_headers", "named_header_count", self.named_headers),
            no_std_shims=not self.std_shims,
            link=_link_mode(self.link),
            **listed("objects", "object_count", self.objects),
            # end of schema
        )


def _link_mode(link: LinkMode | None) -> int:
    if link not in _LINK_MODES:
        raise _errors.InvalidArgumentError(
            f'link is {link!r}; expected "rdc", "lto", or None for what the flags say'
        )
    return _LINK_MODES.index(link)


def optional(what: str, path: Any) -> bytes | None:
    """A text or path for C; NULL for None."""
    return None if path is None else _library.encoded(path_of(what, path))


def path_of(what: str, path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        kind = type(path).__name__
        raise TypeError(f"{what} has {path!r} ({kind}); expected a str or a path") from None


def several(what: str, elements: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(elements, (str, bytes, os.PathLike)):  # a str would be taken letter by letter
        raise _errors.InvalidArgumentError(f"{what} is {elements!r}; expected a list of them")
    return tuple(elements)


def _macro(item: tuple[str, object]) -> str:
    name, value = item
    return f"-D{name}" if value is None or value is True else f"-D{name}={value}"


def listed(name: str, count: str, elements: Iterable[Any]) -> dict[str, Any]:
    """The two members that C has for a list of texts or paths."""
    texts = [path_of(name, element) for element in several(name, elements)]
    return {name: _library.strings(texts), count: len(texts)}


def _sources(name: str, count: str, sources: Any) -> dict[str, Any]:
    """The two members that C has for sources, or headers by name."""
    if isinstance(sources, Mapping):
        sources = (Source(path, text) for path, text in sources.items())
    single = isinstance(sources, (str, os.PathLike, Source))
    elements = (sources,) if single else tuple(sources)
    array = (_library.Source * len(elements))()
    for entry, source in zip(array, elements, strict=True):
        if isinstance(source, Source):
            text = source.text.encode() if isinstance(source.text, str) else bytes(source.text)
            entry.path, entry.text, entry.text_bytes = _library.encoded(source.name), text, len(text)
        else:
            entry.path = _library.encoded(path_of(name, source))
    return {name: array if elements else None, count: len(elements)}


@dataclass(frozen=True)
class VariableInfo:
    """A __device__ or __constant__ variable among a module's names."""

    # schema: VariableInfo. Written by src/schema/generate.py
    name: str  #: in the canonical spelling: `ns::table<float>`, without `&`
    lowered: str  #: the symbol in the cubin
    size_bytes: int
    is_constant: bool  #: `__constant__`

    @staticmethod
    def from_c(c: _library.VariableInfo) -> VariableInfo:
        return VariableInfo(
            name=text(c.name),
            lowered=text(c.lowered),
            size_bytes=c.size_bytes,
            is_constant=bool(c.is_constant),
        )
    # end of schema


class Global(NamedTuple):
    """A variable on one device."""

    address: int  #: a CUdeviceptr
    size_bytes: int


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a cubin and what it uses, as the assembler reported it."""

    # schema: KernelInfo. Written by src/schema/generate.py
    name: str  #: `amax_gsa`, or a name expression in the canonical spelling
    lowered: str  #: the symbol in the cubin
    registers: int  #: per thread
    shared_bytes: int  #: static shared memory per block
    local_bytes: int  #: stack frame per thread
    spill_bytes: int  #: spill stores and loads per thread

    @staticmethod
    def from_c(c: _library.KernelInfo) -> KernelInfo:
        return KernelInfo(
            name=text(c.name),
            lowered=text(c.lowered),
            registers=c.registers,
            shared_bytes=c.shared_bytes,
            local_bytes=c.local_bytes,
            spill_bytes=c.spill_bytes,
        )
    # end of schema


Outcome = Literal["hit", "compiled", "failed", "missing"]
_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True)
class ModuleReport:
    """What one module cost for one target, and why."""

    # schema: ModuleReport. Written by src/schema/generate.py
    name: str
    source: str  #: the first source's path as given
    target: str  #: `sm_100a`
    key: str  #: 64 hex digits; empty when there is none (failed, missing)
    outcome: Outcome  #: how it went; `error` is set if it is failed or missing, else not
    reason: str  #: `in the store`, `not in the store`, `header changed: inc/0/tile.cuh`, …
    error: _errors.Error | None  #: None unless the outcome is failed or missing
    #: why a compiled result is not stored: an IoError if the store should have kept it, else an
    #: IncompatibleError
    not_stored: _errors.Error | None
    dropped_flags: tuple[str, ...]  #: nvcc flags for host code, which had no effect
    seconds: float  #: wall time of the lookup or compile, waits included
    load_seconds: float  #: part of `seconds` that was spent in the driver
    cubin_bytes: int
    kernels: tuple[KernelInfo, ...]
    log: str  #: the compiler's log: of the error, else its warnings
    #: the most memory that its compile used; 0: this process has not compiled it, or could not
    #: measure it
    peak_bytes: int
    variables: tuple[VariableInfo, ...] = ()  #: those among the names; no part of `kernels`

    @staticmethod
    def from_c(c: _library.ModuleReport) -> ModuleReport:
        return ModuleReport(
            name=text(c.name),
            source=text(c.source),
            target=text(c.target),
            key=text(c.key),
            outcome=_OUTCOMES[c.outcome],
            reason=text(c.reason),
            error=_errors.of(c.error_code, text(c.error), text(c.log)) if c.error_code else None,
            not_stored=_errors.of(c.not_stored_code, text(c.not_stored)) if c.not_stored_code else None,
            dropped_flags=tuple(map(text, c.dropped_flags[: c.dropped_flag_count])),
            seconds=c.milliseconds / 1e3,
            load_seconds=c.load_milliseconds / 1e3,
            cubin_bytes=c.cubin_bytes,
            kernels=tuple(map(KernelInfo.from_c, c.kernels[: c.kernel_count])),
            log=text(c.log),
            peak_bytes=c.peak_bytes,
            variables=tuple(map(VariableInfo.from_c, c.variables[: c.variable_count])),
        )
    # end of schema


class PreloadPhases(NamedTuple):
    """Where the time of a preload went: wall times in seconds, one after the other."""

    find: float  #: NVRTC, its identity, and the devices
    hash: float  #: reading sources and making requests
    look_up: float  #: checking dependencies and reading entries
    fetch: float  #: asking remote stores, while nothing is compiled
    compile: float  #: compiling here, or waiting for another process that does
    load: float  #: loading on the devices


@dataclass(frozen=True)
class PreloadReport:
    modules: tuple[ModuleReport, ...]  #: in the manifest's order; one for each target
    hits: int
    compiled: int
    failed: int  #: failed and missing
    seconds: float
    phases: PreloadPhases


EventKind = Literal["hit", "miss", "compile", "load", "evict", "corrupt", "sealed", "reload", "unknown"]


def _event_kind(kind: int) -> EventKind:
    """`unknown` for one that a newer library has."""
    kinds: tuple[EventKind, ...] = get_args(EventKind)
    return kinds[kind] if kind < len(kinds) else "unknown"


class Event(NamedTuple):
    """What happened to a module, or to an entry of the store."""

    # schema: Event. Written by src/schema/generate.py
    kind: EventKind
    module: str  #: its name; empty for `corrupt`
    target: str  #: `sm_100a`; empty for CORRUPT
    key: str  #: 64 hex digits; empty when there is none, or it is not known
    reason: str  #: as in ModuleReport; the error's message if `failed`
    failed: bool  #: the compile, the load, or the reload failed
    seconds: float  #: of a compile, waits included, of a load, and of a reload

    @staticmethod
    def from_c(c: _library.Event) -> Event:
        return Event(
            kind=_event_kind(c.kind),
            module=text(c.module),
            target=text(c.target),
            key=text(c.key),
            reason=text(c.reason),
            failed=bool(c.failed),
            seconds=c.milliseconds / 1e3,
        )
    # end of schema


class Difference(NamedTuple):
    # schema: Difference. Written by src/schema/generate.py
    field: str
    was: str  #: the entry's; empty if it has none
    now: str  #: the request's; empty if it has none

    @staticmethod
    def from_c(c: _library.Difference) -> Difference:
        return Difference(
            field=text(c.field),
            was=text(c.was),
            now=text(c.now),
        )
    # end of schema


@dataclass(frozen=True)
class Explanation:
    """Why a module hits or misses."""

    # schema: Explanation. Written by src/schema/generate.py
    hit: bool
    key: str | None  #: of the entry that is the hit
    nearest: str | None  #: on a miss: the stored entry with the fewest differences
    differences: tuple[Difference, ...]
    target: str  #: of the request: the wanted one, or the family that is taken for it

    @staticmethod
    def from_c(c: _library.Explanation) -> Explanation:
        return Explanation(
            hit=bool(c.hit),
            key=text(c.key) or None,
            nearest=text(c.nearest) or None,
            differences=tuple(map(Difference.from_c, c.differences[: c.difference_count])),
            target=text(c.target),
        )
    # end of schema


@dataclass(frozen=True)
class DeviceInfo:
    """A device that is visible to this process (`CUDA_VISIBLE_DEVICES`)."""

    # schema: DeviceInfo. Written by src/schema/generate.py
    ordinal: int
    name: str  #: NUL-terminated
    capability: int  #: 90, 100
    memory_bytes: int
    num_sms: int

    @staticmethod
    def from_c(c: _library.DeviceInfo) -> DeviceInfo:
        return DeviceInfo(
            ordinal=c.ordinal,
            name=text(c.name),
            capability=c.capability,
            memory_bytes=c.memory_bytes,
            num_sms=c.num_sms,
        )
    # end of schema


@dataclass(frozen=True)
class KernelAttributes:
    """The resources that a kernel uses, or may use, on one device."""

    # schema: KernelAttributes. Written by src/schema/generate.py
    registers: int  #: per thread
    max_block_threads: int  #: with these registers; a launch above it fails
    static_shared_bytes: int  #: per block
    dynamic_shared_bytes: int  #: per block, the present limit: see Kernel.reserve_shared
    constant_bytes: int  #: of the kernel's own constants
    local_bytes: int  #: stack frame per thread

    @staticmethod
    def from_c(c: _library.KernelAttributes) -> KernelAttributes:
        return KernelAttributes(
            registers=c.registers,
            max_block_threads=c.max_block_threads,
            static_shared_bytes=c.static_shared_bytes,
            dynamic_shared_bytes=c.dynamic_shared_bytes,
            constant_bytes=c.constant_bytes,
            local_bytes=c.local_bytes,
        )
    # end of schema


@dataclass(frozen=True)
class Stats:
    # schema: Stats. Written by src/schema/generate.py
    entries: int  #: in the store now
    store_bytes: int  #: of the store's files now
    hits: int
    misses: int  #: the sum of all misses_…
    misses_new: int  #: the store had nothing for the request
    misses_header_changed: int  #: or its file identity
    misses_header_appeared: int
    misses_header_vanished: int
    misses_damaged: int  #: the entry failed its check
    compiles: int  #: compiles that succeeded
    failed: int  #: compiles that failed
    stored: int
    not_stored: int  #: results that were used but not stored, for any reason
    evicted: int
    corrupt: int  #: damaged entries that were found and removed
    singleflight_waits: int  #: requests that waited for a compile of another caller
    saved_seconds: float  #: compile time that hits saved
    store_errors: int  #: failed store operations, which are not fatal
    sealed_violations: int  #: compiles or loads after sealing with a warning
    daemon_asked: int  #: requests to cukilnd
    daemon_absent: int  #: of these: no daemon was running
    daemon_failed: int  #: it hung, died, or was of another version or user
    daemon_declined: int  #: it was busy or shutting down: compiled in this process
    misses_revoked: int  #: the entry was signed by a revoked key
    misses_evicted: int  #: the entry was recorded, and evicted or removed since

    @staticmethod
    def from_c(c: _library.Stats) -> Stats:
        return Stats(
            entries=c.entries,
            store_bytes=c.store_bytes,
            hits=c.hits,
            misses=c.misses,
            misses_new=c.misses_new,
            misses_header_changed=c.misses_header_changed,
            misses_header_appeared=c.misses_header_appeared,
            misses_header_vanished=c.misses_header_vanished,
            misses_damaged=c.misses_damaged,
            compiles=c.compiles,
            failed=c.failed,
            stored=c.stored,
            not_stored=c.not_stored,
            evicted=c.evicted,
            corrupt=c.corrupt,
            singleflight_waits=c.singleflight_waits,
            saved_seconds=c.saved_us / 1e6,
            store_errors=c.store_errors,
            sealed_violations=c.sealed_violations,
            daemon_asked=c.daemon_asked,
            daemon_absent=c.daemon_absent,
            daemon_failed=c.daemon_failed,
            daemon_declined=c.daemon_declined,
            misses_revoked=c.misses_revoked,
            misses_evicted=c.misses_evicted,
        )
    # end of schema


@dataclass(frozen=True)
class BlobSummary:
    """A blob without its bytes, for inventories."""

    # schema: BlobSummary. Written by src/schema/generate.py
    id: str  #: 64 hex digits, of which commands take a prefix
    kind: str
    key: bytes
    size_bytes: int
    created_s: int  #: since 1970
    last_used_s: int  #: since 1970
    hits: int
    #: the keys that signed it on its way here, `name:base64` or `unsigned`, separated by spaces,
    #: the last one last; empty if it was made here
    signer: str

    @staticmethod
    def from_c(c: _library.Blob) -> BlobSummary:
        return BlobSummary(
            id=text(c.id),
            kind=text(c.kind),
            key=ctypes.string_at(c.key, c.key_bytes),
            size_bytes=c.size_bytes,
            created_s=c.created_s,
            last_used_s=c.last_used_s,
            hits=c.hits,
            signer=text(c.signer),
        )
    # end of schema
