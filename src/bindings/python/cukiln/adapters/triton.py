# SPDX-License-Identifier: Apache-2.0
"""Triton's cache in cukiln's store: one file instead of a folder for each kernel.

    TRITON_CACHE_MANAGER=cukiln.adapters.triton:CacheManager python serve.py

Triton reads files, so each that it asks for is written to a private folder of this process, in
memory (/dev/shm) where that is possible, which is removed at its end. Alternatively cukiln can be
the remote behind Triton's own folders:

    TRITON_CACHE_MANAGER=triton.runtime.cache:RemoteCacheManager
    TRITON_REMOTE_CACHE_BACKEND=cukiln.adapters.triton:RemoteCacheBackend
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from ._support import Blobs, bounded, import_peer

_cache = import_peer("triton.runtime.cache", "triton", "Triton", "pip install triton")

KIND = "triton"
_GROUP = "__grp__"

_PREFIX = "cukiln-triton-"
_MEMORY = Path("/dev/shm")  # files there are made in microseconds


class _Folder:
    """A private folder below `root`, which goes with this process. What processes left that were
    killed is removed: they no longer hold their folder's lock."""

    def __init__(self, root: Path) -> None:
        self._sweep(root)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))  # 0700
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        atexit.register(self._remove, os.getpid())

    def _remove(self, owner: int) -> None:
        if os.getpid() == owner:  # a forked child has a folder of its own
            shutil.rmtree(self.path, ignore_errors=True)

    @staticmethod
    def _sweep(root: Path) -> None:
        for folder in root.glob(_PREFIX + "*"):
            try:
                if folder.lstat().st_uid != os.geteuid() or folder.is_symlink():
                    continue
                with (folder / "lock").open("rb") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue  # in use, or not yet locked


class _Files:
    """Files of blobs, by the names that Triton expects. Threads: safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[Path, _Folder] = {}

    def find(self, key: str, filename: str) -> str | None:
        with self._lock:
            return self._find(key, filename)

    def write(self, key: str, filename: str, data: bytes) -> str:
        """Writes a file unless it has these bytes already. Returns its path. Errors: OSError."""
        with self._lock:
            old = self._find(key, filename)
            if old is not None:
                if Path(old).read_bytes() == data:
                    return old
                Path(old).unlink()  # who has it open keeps the old bytes
            *quick, last = self._roots(filename)
            for root in quick:
                try:
                    return self._create(root, key, filename, data)
                except OSError:
                    continue  # it is full, not there, or not for this user
            return self._create(last, key, filename, data)

    @staticmethod
    def _roots(filename: str) -> tuple[Path, ...]:
        # Containers forbid code in /dev/shm, and Triton opens the libraries that it caches.
        disk = Path(tempfile.gettempdir())
        return (disk,) if filename.endswith(".so") else (_MEMORY, disk)

    @staticmethod
    def _below(folder: _Folder, key: str) -> str:
        name = hashlib.sha256(key.encode(), usedforsecurity=False).hexdigest()
        return os.path.join(folder.path, name)  # noqa: PTH118: pathlib takes longer than the file

    def _find(self, key: str, filename: str) -> str | None:
        for root in self._roots(filename):
            if root in self._folders:
                path = f"{self._below(self._folders[root], key)}/{filename}"
                if os.path.isfile(path):  # noqa: PTH113
                    return path
        return None

    def _create(self, root: Path, key: str, filename: str, data: bytes) -> str:
        if root not in self._folders or not os.path.isdir(self._folders[root].path):  # noqa: PTH112
            self._folders[root] = _Folder(root)
        folder = self._below(self._folders[root], key)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)  # noqa: PTH102
        path = f"{folder}/{filename}"
        try:
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(data)
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise
        return path


_files = _Files()


def _forget_files() -> None:
    global _files
    _files = _Files()


os.register_at_fork(after_in_child=_forget_files)


def _as_bytes(data: Any) -> bytes:
    """Triton's own rule: what is not bytes is stored as its text, IR objects among them."""
    return bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else str(data).encode()


def _blob_key(key: str, filename: str) -> bytes:
    if "/" in filename or filename in ("", ".", ".."):
        raise ValueError(f"{filename!r} is no name of a file; expected one without a folder")
    return bounded(f"{key}/{filename}".encode())


class CacheManager(_cache.CacheManager):  # type: ignore[misc, name-defined]
    """A `triton.runtime.cache.CacheManager`. The folders for dumps and overrides, which are for
    people, stay Triton's own. Threads: safe."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self._files = _cache.FileCacheManager(key, override, dump) if override or dump else None
        self._blobs = Blobs(KIND)

    def get_file(self, filename: str) -> str | None:
        if self._files is not None:
            return self._files.get_file(filename)
        data = self._blobs.get(_blob_key(self.key, filename))  # always: it counts as a use
        if data is None:
            return _files.find(self.key, filename)  # of a put that could not be stored
        return _files.write(self.key, filename, data)

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        if self._files is not None:
            return self._files.put(data, filename, binary)
        whole = _as_bytes(data)
        self._blobs.put(_blob_key(self.key, filename), whole)
        return _files.write(self.key, filename, whole)

    def get_group(self, filename: str) -> dict[str, str] | None:
        if self._files is not None:
            return self._files.get_group(filename)
        stored = self._blobs.get(_blob_key(self.key, _GROUP + filename))
        try:
            names = json.loads(stored or b"null")["child_paths"]
        except (TypeError, ValueError, KeyError):
            return None
        if not isinstance(names, (list, dict)):
            return None
        paths: dict[str, str] = {}
        for name in names:
            path = self.get_file(name)
            if path is None:
                return None  # it was evicted: compile again
            paths[name] = path
        return paths

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        if self._files is not None:
            return self._files.put_group(filename, group)
        return self.put(json.dumps({"child_paths": sorted(group)}), _GROUP + filename, binary=False)


class RemoteCacheBackend(_cache.RemoteCacheBackend):  # type: ignore[misc, name-defined]
    """A `triton.runtime.cache.RemoteCacheBackend`, behind Triton's RemoteCacheManager."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._blobs = Blobs(KIND)

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        found = {name: self._blobs.get(_blob_key(self._key, name)) for name in filenames}
        return {name: data for name, data in found.items() if data is not None}

    def put(self, filename: str, data: bytes) -> None:
        self._blobs.put(_blob_key(self._key, filename), _as_bytes(data))
