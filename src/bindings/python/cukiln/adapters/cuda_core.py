# SPDX-License-Identifier: Apache-2.0
"""cuda.core's program cache in cukiln's store.

    from cukiln.adapters.cuda_core import Program, ProgramCache

    with ProgramCache() as cache:
        program = Program(text, "c++", ProgramOptions(include_path="include"))
        code = program.compile("cubin", name_expressions=("k<int>",), cache=cache)
        print(cache.stats())

The cache is one for `cuda.core.Program` too. That one refuses it with header folders, whose files
its key does not cover, and with name expressions, which its bytes do not hold.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _errors, _library
from .._loader import Loader
from .._spec import BlobSummary
from . import _nvrtc
from ._support import Blobs, bounded, import_peer

_INSTALL = "pip install 'cuda-core[cu13]>=1.2'"
_utils = import_peer("cuda.core.utils", "cuda_core", "cuda.core", _INSTALL)
_core = import_peer("cuda.core", "cuda_core", "cuda.core", _INSTALL)

KIND = "cuda.core"
SECONDS_KIND = "cuda.core.seconds"  # what the compile of a key of KIND took
_MAX_MISSED = 4096

with contextlib.suppress(_errors.Error):  # a cache says so when it is used
    _library.library()  # takes as long as to open a store


def _key_bytes(key: object) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, (bytes, bytearray)):
        return bytes(key)
    raise TypeError(f"a key of a program cache is bytes or str, not {type(key).__name__}")


def _value_bytes(value: object) -> bytes:
    code = value.code if isinstance(value, _core.ObjectCode) else value
    if isinstance(code, str) and code is not value:  # an ObjectCode that names a file
        return Path(code).read_bytes()
    if isinstance(code, (bytes, bytearray, memoryview)):
        return bytes(code)
    raise TypeError(
        f"a value of a program cache is bytes or an ObjectCode, not {type(value).__name__}"
    )


@dataclass(frozen=True)
class ProgramCacheStats:
    """What a ProgramCache did since it was made. If it is of the default store: and each `Program`
    of this module in this process."""

    hits: int
    misses: int
    size_bytes: int  #: of what was found, and of what was compiled
    compile_seconds: float  #: of misses
    saved_seconds: float  #: what the compiles of the hits took


class _Telemetry:
    """Counts for ProgramCacheStats. The time of a compile is a blob beside its result, which
    only `stats` reads. Threads: safe."""

    def __init__(self, loader: Loader | None) -> None:
        self._seconds = Blobs(SECONDS_KIND, loader)
        self._has_programs = loader is None  # in the default store
        self._lock = threading.Lock()
        self._hits: dict[bytes, int] = {}  # by key
        self._missed: dict[bytes, float] = {}  # keys that may now be compiled, and since when
        self._misses = self._bytes = 0
        self._compile_seconds = 0.0

    def hit(self, key: bytes, size: int) -> None:
        with self._lock:
            self._hits[key] = self._hits.get(key, 0) + 1
            self._bytes += size

    def missed(self, key: bytes) -> None:
        with self._lock:
            self._misses += 1
            if len(self._missed) >= _MAX_MISSED:
                self._missed.clear()
            self._missed[key] = time.perf_counter()

    def stored(self, key: bytes, size: int) -> None:
        """After `missed`: what passed since then was the compile."""
        with self._lock:
            self._bytes += size
            begin = self._missed.pop(key, None)
            if begin is None:
                return
            seconds = time.perf_counter() - begin
            self._compile_seconds += seconds
        self._seconds.put(key, b"%.6f" % seconds)

    def removed(self, key: bytes) -> None:
        self._seconds.remove(key)

    def program(self, size: int) -> None:
        with self._lock:
            self._bytes += size

    def stats(self) -> ProgramCacheStats:
        with self._lock:
            hits, misses, size, took = (
                dict(self._hits),
                self._misses,
                self._bytes,
                self._compile_seconds,
            )
        saved = sum(count * float(self._seconds.get(key) or 0) for key, count in hits.items())
        programs = _nvrtc.totals() if self._has_programs else _nvrtc.Totals()
        return ProgramCacheStats(
            hits=sum(hits.values()) + programs.hits,
            misses=misses + programs.compiled,
            size_bytes=size,
            compile_seconds=took + programs.compile_seconds,
            saved_seconds=saved + programs.saved_seconds,
        )


class _Cap:
    """`max_size_bytes` of a ProgramCache. Threads: safe."""

    def __init__(self, blobs: Blobs, remove: Callable[[bytes], bool], most: int) -> None:
        self._blobs = blobs
        self._remove = remove
        self._most = most
        self._lock = threading.Lock()
        self._used: dict[bytes, float] = {}  # the store has whole seconds, and learns of uses later
        self._size: int | None = None  # at least what this process knows of

    def used(self, key: bytes) -> None:
        self._used[key] = time.time()

    def added(self, key: bytes, size: int) -> None:
        self.used(key)
        with self._lock, contextlib.suppress(_errors.Error):  # a store that fails keeps nothing
            if self._size is not None:
                self._size += size
                if self._size <= self._most:
                    return
            blobs = self._blobs.list()
            self._size = sum(blob.size_bytes for blob in blobs)
            for blob in sorted(blobs, key=self._last_use):
                if self._size <= self._most:
                    break
                self._remove(blob.key)  # False: it is the system store's, or gone
                self._used.pop(blob.key, None)
                self._size -= blob.size_bytes

    def _last_use(self, blob: BlobSummary) -> float:
        return max(self._used.get(blob.key, 0.0), float(blob.last_used_s))


class ProgramCache(_utils.ProgramCacheResource):  # type: ignore[misc, name-defined]
    """A `cuda.core.utils.ProgramCacheResource`. A value that cannot be stored is logged and
    dropped; a key of more than 4096 bytes is stored by its SHA-256. Threads: safe.

    `store` is the folder of another store than the default loader's. `max_size_bytes` is that of
    cuda.core's own caches, a soft cap on the values of all ProgramCaches in the store: a write above
    it removes those that were used least recently. The store's own cap holds besides.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        max_size_bytes: int | None = None,
    ) -> None:
        if max_size_bytes is not None and max_size_bytes <= 0:
            raise ValueError(
                f"max_size_bytes is {max_size_bytes}; expected a positive number, or None for no cap"
            )
        self._loader = None if store is None else Loader(store=store)
        self._blobs = Blobs(KIND, self._loader)
        self._telemetry = _Telemetry(self._loader)
        self._cap = None if max_size_bytes is None else _Cap(self._blobs, self._remove, max_size_bytes)

    def __getitem__(self, key: bytes | str) -> bytes:
        name = bounded(_key_bytes(key))
        data = self._blobs.get(name)
        if data is None:
            self._telemetry.missed(name)
            raise KeyError(key)
        self._telemetry.hit(name, len(data))
        if self._cap is not None:
            self._cap.used(name)
        return data

    def __setitem__(self, key: bytes | str, value: Any) -> None:
        name, data = bounded(_key_bytes(key)), _value_bytes(value)
        self._blobs.put(name, data)
        self._telemetry.stored(name, len(data))
        if self._cap is not None:
            self._cap.added(name, len(data))

    def __delitem__(self, key: bytes | str) -> None:
        if not self._remove(bounded(_key_bytes(key))):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self._blobs.list())

    def clear(self) -> None:
        for blob in self._blobs.list():
            self._remove(blob.key)

    def _remove(self, name: bytes) -> bool:
        removed = self._blobs.remove(name)
        if removed:
            self._telemetry.removed(name)
        return removed

    @property
    def has_default_store(self) -> bool:
        return self._loader is None

    def stats(self) -> ProgramCacheStats:
        return self._telemetry.stats()

    def close(self) -> None:
        """Closes the store that this cache opened for itself."""
        if self._loader is not None:
            self._loader.close()


# Options with which a result is not all that a compile is for.
_MORE_THAN_A_RESULT = (
    "debug",
    "time",
    "fdevice_time_trace",
    "pch",
    "create_pch",
    "use_pch",
    "pch_dir",
)
_PARTS = {"cubin": "CUBIN", "ltoir": "LTOIR"}  # cuda.core asks the driver about PTX


class Program(_core.Program):  # type: ignore[misc, name-defined]
    """A `cuda.core.Program`. With a ProgramCache of the default store, its cubins and LTO-IR are
    entries: each header that the text reaches is part of the key, and `symbol_mapping` of the
    result has the name expressions, compiled or found. Everything else is cuda.core's, its errors
    too."""

    def __init__(self, code: Any, code_type: str, options: Any = None) -> None:
        if not isinstance(options, _core.ProgramOptions):
            options = _core.ProgramOptions(**(options or {}))
        super().__init__(code, code_type, options)
        self._given = (code, code_type, options)

    def compile(
        self,
        target_type: str,
        name_expressions: Sequence[str | bytes] = (),
        logs: Any = None,
        *,
        cache: Any = None,
    ) -> Any:
        code, code_type, options = self._given
        kind = str(target_type).lower()
        if (
            not (isinstance(cache, ProgramCache) and cache.has_default_store)
            or str(code_type).lower() != "c++"
            or kind not in _PARTS
            or any(getattr(options, name, None) for name in _MORE_THAN_A_RESULT)
        ):
            return super().compile(target_type, name_expressions, logs, cache=cache)
        names = {name: os.fsencode(name) for name in name_expressions}
        found = _nvrtc.compile_program(
            code.encode(),
            (options.name or "default_program").encode(),
            options.as_bytes("nvrtc", kind),
            list(names.values()),
            _PARTS[kind],
        )
        if found is None:
            return super().compile(target_type, name_expressions, logs)
        cache._telemetry.program(len(found.code))
        if logs is not None and found.log:
            logs.write(found.log)
        mapping = {name: found.lowered[given] for name, given in names.items()}
        make = getattr(_core.ObjectCode, f"from_{kind}")
        return make(found.code, name=options.name or "", symbol_mapping=mapping)
