# SPDX-License-Identifier: Apache-2.0
"""BlobStore: what other compilers and caches keep in a loader's store."""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Callable
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p

from . import _errors, _interrupts, _library
from ._loader import CancelToken, Loader, default_loader
from ._spec import BlobSummary

_WAIT_S = 60.0  # kBlobWait


def _bytes_of(data: object) -> bytes:
    """Copies bytes, or a buffer of them. `bytes(3)` would be three zeros, and no error."""
    if isinstance(data, bytes):
        return data
    try:
        return memoryview(data).tobytes()  # type: ignore[arg-type]  # what is none is the error
    except TypeError:
        raise TypeError(f"{type(data).__name__} is no blob; expected bytes") from None


class BlobLease:
    """The right to produce a blob that the store lacks: until it ends, other callers of
    `get_or_lease` wait, in all threads and processes. Ended by `put`, `drop`, the end of a `with`
    or of the process, and when it is no longer referenced."""

    def __init__(self, loader: Loader, lease: c_void_p) -> None:
        self._loader = loader
        self._lease: c_void_p | None = lease
        self._free = weakref.finalize(self, _library.library().cukiln_blob_lease_destroy, lease)

    @property
    def exclusive(self) -> bool:
        """False if this caller is one of several that may produce the blob: it waited too long, has
        a lease already, or locks do not work; and after the end."""
        return _library.library().cukiln_blob_lease_is_exclusive(self._lease) != 0

    def put(self, data: bytes | bytearray | memoryview) -> None:
        """Stores the bytes, if that is possible, and ends the lease. Errors: those of
        BlobStore.put; InvalidArgumentError (the lease has ended, or the loader is closed)."""
        whole = _bytes_of(data)
        if self._lease is None:
            raise _errors.InvalidArgumentError("the lease of this blob has ended; use BlobStore.put")
        try:
            self._loader.handle  # noqa: B018: raises if it is closed
            _library.check(_library.library().cukiln_blob_lease_put(self._lease, whole, len(whole)))
        finally:
            self.drop()

    def drop(self) -> None:
        """Ends the lease without bytes. Those that wait now produce the blob themselves."""
        self._lease = None
        self._free()

    def __enter__(self) -> BlobLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()


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

    def get(self, key: str | bytes) -> bytes | None:
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

    def get_or_lease(
        self, key: str | bytes, wait: float = _WAIT_S
    ) -> bytes | BlobLease:
        """The bytes, or the caller's lease to produce them. Waits while another caller has a lease,
        at most `wait` seconds from the beginning of that: what is never put delays no other caller
        for longer. A thread that has a lease does not wait. Ctrl-C ends the wait."""
        data, size, lease = c_void_p(), c_size_t(), c_void_p()
        library, name = self._arguments(key)
        loader, token = self._loader_in_use(), CancelToken()
        wait_ms = max(0, int(min(wait, 86400.0) * 1000))
        try:
            code = _interrupts.run(
                token.cancel,
                lambda: None,
                lambda: library.cukiln_blob_get_or_lease(
                    *name, wait_ms, token._token, byref(data), byref(size), byref(lease)
                ),
            )
            _library.check(code)
            if data.value is not None:
                return ctypes.string_at(data, size.value)
            granted, lease = lease, c_void_p()
            return BlobLease(loader, granted)
        finally:
            library.cukiln_free(data)
            library.cukiln_blob_lease_destroy(lease)  # of an interrupted call

    def get_or_make(
        self,
        key: str | bytes,
        make: Callable[[], bytes],
        wait: float = _WAIT_S,
    ) -> bytes:
        """The bytes; if there are none, those of `make()`, which are then stored if that is
        possible. Of all callers one runs `make`, see `get_or_lease`; what it raises is raised."""
        result = self.get_or_lease(key, wait)
        if not isinstance(result, BlobLease):
            return result
        with result:
            data = _bytes_of(make())
            with contextlib.suppress(_errors.Error):
                result.put(data)
        return data

    def __contains__(self, key: str | bytes) -> bool:
        there = c_int()
        library, name = self._arguments(key)
        _library.check(library.cukiln_blob_contains(*name, byref(there)))
        return there.value != 0

    def put(self, key: str | bytes, data: bytes | bytearray | memoryview) -> None:
        """Stores bytes, and replaces those that the key has. Errors: IoError (no store on disk, or
        one that cannot be written), TimeoutError."""
        library, name = self._arguments(key)
        whole = _bytes_of(data)
        _library.check(library.cukiln_blob_put(*name, whole, len(whole)))

    def remove(self, key: str | bytes) -> bool:
        """False if there was no such blob."""
        removed = c_int()
        library, name = self._arguments(key)
        _library.check(library.cukiln_blob_remove(*name, byref(removed)))
        return removed.value != 0

    def list(self) -> tuple[BlobSummary, ...]:
        """The blobs of this kind."""
        loader = self._loader_in_use()
        library = _library.library()
        rows, count = POINTER(_library.Blob)(), c_size_t()
        code = library.cukiln_blob_list(loader.handle, self._kind, byref(rows), byref(count))
        _library.check(code)
        try:
            return tuple(map(BlobSummary.from_c, rows[: count.value]))
        finally:
            library.cukiln_free(rows)

    def _arguments(self, key: str | bytes) -> tuple[ctypes.CDLL, tuple[object, ...]]:
        """The library, and the arguments with which each of its functions for a blob begins."""
        whole = key.encode() if isinstance(key, str) else key
        return _library.library(), (self._loader_in_use().handle, self._kind, whole, len(whole))

    def _loader_in_use(self) -> Loader:
        return self._loader if self._loader is not None else default_loader()
