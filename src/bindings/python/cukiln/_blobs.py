# SPDX-License-Identifier: Apache-2.0
"""BlobStore: what other compilers and caches keep in a loader's store."""

from __future__ import annotations

import builtins
import ctypes
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p
from dataclasses import dataclass

from . import _library
from ._loader import Loader, default_loader


@dataclass(frozen=True)
class BlobSummary:
    id: str  #: 64 hex digits, of which commands take a prefix
    kind: str
    key: builtins.bytes
    bytes: int
    created: int  #: seconds since 1970
    last_used: int  #: seconds since 1970
    hits: int


class BlobStore:
    """Bytes under keys of one kind, in the store of a loader (default: the default loader's).

    A kind is 1 to 64 letters, digits, `.`, `_` or `-`; a key 1 to 4096 bytes, or a text, which
    counts as its UTF-8. At most 256 MiB are stored under a key. Errors: InvalidArgumentError (kind,
    key, size).
    """

    def __init__(self, kind: str, loader: Loader | None = None) -> None:
        self.kind = kind
        self._kind = _library.encoded(kind)
        self._loader = loader

    def get(self, key: str | builtins.bytes) -> builtins.bytes | None:
        """None if there is no such blob, or no store on disk can be read."""
        data, size = c_void_p(), c_size_t()
        library, name = self._arguments(key)
        _library.check(library.cukiln_blob_get(*name, byref(data), byref(size)))
        if data.value is None:
            return None
        try:
            return ctypes.string_at(data, size.value)
        finally:
            library.cukiln_free(data)

    def __contains__(self, key: str | builtins.bytes) -> bool:
        there = c_int()
        library, name = self._arguments(key)
        _library.check(library.cukiln_blob_contains(*name, byref(there)))
        return there.value != 0

    def put(self, key: str | builtins.bytes, data: builtins.bytes | bytearray | memoryview) -> None:
        """Stores bytes, and replaces those that the key has. Errors: IoError (no store on disk, or
        one that cannot be written), TimeoutError."""
        library, name = self._arguments(key)
        whole = data if isinstance(data, bytes) else bytes(data)
        _library.check(library.cukiln_blob_put(*name, whole, len(whole)))

    def remove(self, key: str | builtins.bytes) -> bool:
        """False if there was no such blob."""
        removed = c_int()
        library, name = self._arguments(key)
        _library.check(library.cukiln_blob_remove(*name, byref(removed)))
        return removed.value != 0

    def list(self) -> tuple[BlobSummary, ...]:
        """The blobs of this kind."""
        loader = self._loader or default_loader()
        library = _library.library()
        rows, count = POINTER(_library.Blob)(), c_size_t()
        code = library.cukiln_blob_list(loader.handle, self._kind, byref(rows), byref(count))
        _library.check(code)
        try:
            return tuple(
                BlobSummary(
                    id=_library.text(row.id),
                    kind=_library.text(row.kind),
                    key=ctypes.string_at(row.key, row.key_bytes),
                    bytes=row.bytes,
                    created=row.created,
                    last_used=row.last_used,
                    hits=row.hits,
                )
                for row in rows[: count.value]
            )
        finally:
            library.cukiln_free(rows)

    def _arguments(self, key: str | builtins.bytes) -> tuple[ctypes.CDLL, tuple[object, ...]]:
        """The library, and the arguments with which each of its functions for a blob begins."""
        whole = key.encode() if isinstance(key, str) else key
        loader = self._loader if self._loader is not None else default_loader()
        return _library.library(), (loader.handle, self._kind, whole, len(whole))
