# SPDX-License-Identifier: Apache-2.0
"""What the adapters share."""

from __future__ import annotations

import hashlib
import importlib
import logging
from typing import Any

from .. import _errors
from .._blobs import BlobLease, BlobStore

_logger = logging.getLogger("cukiln")
_warned: dict[str, object] = {}  # by kind: its first error
_MAX_KEY_BYTES = 4096  # kMaxBlobKeyBytes
LEASE_S = 60.0  # a project that never puts what it asked for delays others for no longer


def import_peer(module: str, adapter: str, project: str, install: str) -> Any:
    """Imports a module of the project that an adapter is for."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise  # it is there, and lacks something of its own
        raise ModuleNotFoundError(
            f"cukiln.adapters.{adapter} needs {project}, which has no module {error.name} here: "
            f"{install}",
            name=error.name,
        ) from error


class Blobs(BlobStore):
    """Blobs for a cache that must not fail because its store does: a read is then a miss. Warns
    once in a process for each kind. Threads: safe."""

    def get(self, key: str | bytes) -> bytes | None:
        try:
            return super().get(key)
        except _errors.Error as error:
            self._warn("is read from the store", error)
            return None

    def put(self, key: str | bytes, data: bytes | bytearray | memoryview) -> None:
        try:
            super().put(key, data)
        except _errors.Error as error:
            self._warn("is stored", error)

    def try_lease(self, key: str | bytes, wait: float = LEASE_S) -> bytes | BlobLease | None:
        """As get_or_lease; None: there is neither."""
        try:
            return self.get_or_lease(key, wait)
        except _errors.Error as error:
            self._warn("is read from the store", error)
            return None

    def end(self, lease: BlobLease, data: bytes) -> None:
        """Stores what a lease was for, and ends it."""
        try:
            lease.put(data)
        except _errors.Error as error:
            self._warn("is stored", error)

    def _warn(self, what: str, error: _errors.Error) -> None:
        if _warned.setdefault(self.kind, error) is error:
            _logger.warning("nothing of %s %s: %s", self.kind, what, error)


def bounded(key: bytes) -> bytes:
    """A key that a blob may have, for a project whose keys have any length."""
    if 0 < len(key) <= _MAX_KEY_BYTES and not key.startswith(b"sha256:"):
        return key
    return b"sha256:" + hashlib.sha256(key, usedforsecurity=False).digest()
