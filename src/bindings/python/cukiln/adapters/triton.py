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
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._blobs import BlobLease
from ._support import Blobs, bounded, import_peer

_cache = import_peer("triton.runtime.cache", "triton", "Triton", "pip install triton")

KIND = "triton"
_GROUP = "__grp__"
_MAX_NAME_BYTES = 255 - len(_GROUP)  # with which a file system takes it
_MAX_LINE_BYTES = 64 << 10  # of a group: some 20 names

_PREFIX = "cukiln-triton-"
_MEMORY = "/dev/shm"  # files there are made in microseconds
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC

Bytes = bytes | memoryview


class _Folder:
    """A private folder below `root`, which goes with this process. What processes left that were
    killed is removed: they no longer hold their folder's lock."""

    def __init__(self, root: str) -> None:
        self._sweep(Path(root))
        self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=root)  # 0700
        self._lock = os.open(f"{self.path}/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
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
        self._folders: dict[str, _Folder] = {}

    def find(self, key: str, filename: str) -> str | None:
        with self._lock:
            for root in (_MEMORY, tempfile.gettempdir()):
                if root in self._folders:
                    path = f"{self._folders[root].path}/{_folder_of(key)}/{filename}"
                    if os.path.isfile(path):  # noqa: PTH113: pathlib takes longer than the file
                        return path
            return None

    def write(self, key: str, files: Mapping[str, Bytes]) -> dict[str, str]:
        """Writes files unless they have these bytes already, and returns their paths. Errors:
        OSError."""
        folder = _folder_of(key)
        with self._lock:
            return {name: self._write(folder, name, data) for name, data in files.items()}

    def _write(self, folder: str, filename: str, data: Bytes) -> str:
        # Containers forbid code in /dev/shm, and Triton opens the libraries that it caches.
        if not filename.endswith(".so"):
            try:
                return self._create(_MEMORY, folder, filename, data)
            except OSError:
                pass  # it is full, not there, or not for this user
        return self._create(tempfile.gettempdir(), folder, filename, data)

    def _create(self, root: str, folder: str, filename: str, data: Bytes) -> str:
        if root not in self._folders:
            self._folders[root] = _Folder(root)
        path = f"{self._folders[root].path}/{folder}/{filename}"
        try:
            file = os.open(path, _NEW_FILE, 0o600)
        except FileExistsError:
            if Path(path).read_bytes() == data:
                return path
            os.unlink(path)  # noqa: PTH108: processes that have it open keep the old bytes
            file = os.open(path, _NEW_FILE, 0o600)
        except FileNotFoundError:  # the first of its key
            path = self._make_folder(root, folder) + filename
            file = os.open(path, _NEW_FILE, 0o600)
        try:
            written = os.write(file, data)
            while written < len(data):
                written += os.write(file, memoryview(data)[written:])
        except BaseException:
            os.unlink(path)  # noqa: PTH108
            raise
        finally:
            os.close(file)
        return path

    def _make_folder(self, root: str, folder: str) -> str:
        try:
            path = f"{self._folders[root].path}/{folder}/"
            os.mkdir(path, 0o700)  # noqa: PTH102
        except FileNotFoundError:  # a cleaner of temporary files was there
            self._folders[root] = _Folder(root)
            path = f"{self._folders[root].path}/{folder}/"
            os.mkdir(path, 0o700)  # noqa: PTH102
        return path


_files = _Files()


def _forget_files() -> None:
    global _files
    _files = _Files()


os.register_at_fork(after_in_child=_forget_files)


def _as_bytes(data: Any) -> bytes:
    """Triton's own rule: what is not bytes is stored as its text, IR objects among them."""
    return bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else str(data).encode()


def _folder_of(key: str) -> str:
    return hashlib.sha256(key.encode(), usedforsecurity=False).hexdigest()


def _is_file_name(name: object) -> bool:
    if not isinstance(name, str) or "/" in name or "\0" in name or name in ("", ".", ".."):
        return False
    try:
        return len(name.encode()) <= _MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def _checked(filename: str) -> str:
    if not _is_file_name(filename):
        raise ValueError(f"invalid file name {filename!r}: expected one without a folder")
    return filename


def _blob_key(key: str, filename: str) -> bytes:
    return bounded(f"{key}/{_checked(filename)}".encode())


class _Group:
    """The files of a group, and in what one blob has of them: a line of JSON with the names of all,
    and the sizes of those whose bytes follow."""

    def __init__(self, names: list[str], files: Mapping[str, Bytes]) -> None:
        self.names = names
        self.files = files

    def text(self) -> bytes:
        """As Triton's own managers write it."""
        return json.dumps({"child_paths": self.names}).encode()

    def encode(self) -> bytes:
        sizes = {name: len(data) for name, data in self.files.items()}
        line = json.dumps({"child_paths": self.names, "sizes": sizes}).encode()
        return b"".join([line, b"\n", *self.files.values()])

    @staticmethod
    def decode(blob: bytes | None) -> _Group | None:
        """None if this is no group. Whoever may write the store can put anything there."""
        if blob is None:
            return None
        end = blob.find(b"\n", 0, _MAX_LINE_BYTES)
        text = blob[:end] if end >= 0 else blob
        if len(text) > _MAX_LINE_BYTES:
            return None
        try:
            line = json.loads(text.decode())
            names, sizes = line["child_paths"], line.get("sizes", {})
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
            return None
        if not (isinstance(names, list) and all(map(_is_file_name, names))):
            return None
        if not (isinstance(sizes, dict) and sizes.keys() <= set(names)):
            return None
        rest = memoryview(blob)[len(text) + 1 :]
        if not all(type(size) is int and 0 <= size <= len(rest) for size in sizes.values()):
            return None
        files, begin = {}, 0
        for name, size in sizes.items():
            files[name] = rest[begin : begin + size]
            begin += size
        return _Group(names, files) if begin == len(rest) else None

    @staticmethod
    def of(filename: str) -> str:
        """The group in which Triton puts the files of a kernel: `add.json` has `add.cubin`."""
        return f"{filename.rpartition('.')[0] or filename}.json"


class _Stored:
    """What the store has of one key of Triton's. Each file is a blob, but those of a kernel are in
    the one of their group: it is found by one lookup. Threads: safe.

    Triton asks for a kernel's group, or for the library that it would build, and puts that as the
    last: on a miss this process has a lease meanwhile, and other processes wait. Triton drops the
    manager of a compile that fails, and the lease with it."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._blobs = Blobs(KIND)
        self._leases: dict[bytes, BlobLease] = {}

    def get(self, filename: str, *, of_group: bool = False) -> Bytes | None:
        """`of_group`: a group names it, so that nobody is going to make it."""
        name = _blob_key(self._key, filename)
        read = self._blobs.get if of_group else self._get_or_lease
        if filename.startswith(_GROUP):
            group = _Group.decode(read(name))
            return group.text() if group is not None else None
        # Always: it counts as a use.
        data = read(name) if filename.endswith(".so") else self._blobs.get(name)
        if data is not None:
            return data
        group = _Group.decode(self._blobs.get(self._group_key(_Group.of(filename))))
        return group.files.get(filename) if group is not None else None

    def put(self, filename: str, data: bytes) -> None:
        name = _blob_key(self._key, filename)
        lease = self._leases.pop(name, None)
        if lease is None:
            self._blobs.put(name, data)
        else:
            self._blobs.end(lease, data)

    def put_all(self, files: dict[str, bytes]) -> None:
        for name in list(files):
            data = files.pop(name, None)
            if data is not None:
                self.put(name, data)

    def get_group(self, filename: str) -> _Group | None:
        return _Group.decode(self._get_or_lease(self._group_key(filename)))

    def put_group(self, filename: str, names: list[str], files: dict[str, bytes]) -> _Group:
        """Stores a group. What goes into its blob is taken from `files`, or else from the store."""
        taken = {}
        for name in names:
            if _Group.of(name) == filename:
                data: Bytes | None = files.pop(name, None)
                data = self.get(name) if data is None else data
                if data is not None:
                    taken[name] = data
        group = _Group(names, taken)
        self.put(_GROUP + filename, group.encode())
        return group

    def _group_key(self, filename: str) -> bytes:
        return _blob_key(self._key, _GROUP + filename)

    def _get_or_lease(self, name: bytes) -> bytes | None:
        self._leases.pop(name, None)
        got = self._blobs.try_lease(name)
        if isinstance(got, BlobLease):
            self._leases[name] = got
            return None
        return got


class CacheManager(_cache.CacheManager):  # type: ignore[misc, name-defined]
    """A `triton.runtime.cache.CacheManager`. A file is stored with its group, or else when the
    manager that put it goes. Of processes that miss one kernel at the same time one compiles it.
    The folders for dumps and overrides, which are for people, stay Triton's own. Threads: safe."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self._files = _cache.FileCacheManager(key, override, dump) if override or dump else None
        self._stored = _Stored(key)
        self._waiting: dict[str, bytes] = {}  # what was put and is not stored yet
        if self._files is None:
            weakref.finalize(self, self._stored.put_all, self._waiting)

    def get_file(self, filename: str) -> str | None:
        if self._files is not None:
            return self._files.get_file(filename)
        return self._find(filename)

    def _find(self, filename: str, *, of_group: bool = False) -> str | None:
        data: Bytes | None = self._waiting.get(filename)
        if data is None:
            data = self._stored.get(filename, of_group=of_group)
        if data is None:
            return _files.find(self.key, filename)  # of a put that could not be stored
        return _files.write(self.key, {filename: data})[filename]

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        if self._files is not None:
            return self._files.put(data, filename, binary)
        whole = _as_bytes(data)
        self._waiting[_checked(filename)] = whole
        return _files.write(self.key, {filename: whole})[filename]

    def get_group(self, filename: str) -> dict[str, str] | None:
        if self._files is not None:
            return self._files.get_group(filename)
        group = self._stored.get_group(filename)
        if group is None:
            return None
        paths = _files.write(self.key, group.files)
        for name in group.names:
            if name not in paths:
                path = self._find(name, of_group=True)
                if path is None:
                    return None  # it was evicted: compile again
                paths[name] = path
        return paths

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        if self._files is not None:
            return self._files.put_group(filename, group)
        stored = self._stored.put_group(filename, sorted(group), self._waiting)
        self._stored.put_all(self._waiting)
        name = _GROUP + filename
        return _files.write(self.key, {name: stored.text()})[name]


class RemoteCacheBackend(_cache.RemoteCacheBackend):  # type: ignore[misc, name-defined]
    """A `triton.runtime.cache.RemoteCacheBackend`, behind Triton's RemoteCacheManager."""

    def __init__(self, key: str) -> None:
        self._stored = _Stored(key)

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        of_group = len(filenames) > 1
        found = {name: self._stored.get(name, of_group=of_group) for name in filenames}
        return {name: bytes(data) for name, data in found.items() if data is not None}

    def put(self, filename: str, data: bytes) -> None:
        self._stored.put(filename, _as_bytes(data))
