# SPDX-License-Identifier: Apache-2.0
"""The abstract classes of triton.runtime.cache, and a manager of files."""

import abc
import json
import os
from pathlib import Path


class CacheManager(abc.ABC):
    def __init__(self, key, override=False, dump=False): ...

    @abc.abstractmethod
    def get_file(self, filename): ...

    @abc.abstractmethod
    def put(self, data, filename, binary=True): ...

    @abc.abstractmethod
    def get_group(self, filename): ...

    @abc.abstractmethod
    def put_group(self, filename, group): ...


class FileCacheManager(CacheManager):
    def __init__(self, key, override=False, dump=False):
        folder = os.environ["TRITON_DUMP_DIR" if dump else "TRITON_OVERRIDE_DIR"]
        self._folder = Path(folder) / key

    def get_file(self, filename):
        path = self._folder / filename
        return str(path) if path.exists() else None

    def put(self, data, filename, binary=True):
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / filename
        path.write_bytes(data if isinstance(data, bytes) else str(data).encode())
        return str(path)

    def get_group(self, filename):
        path = self.get_file("__grp__" + filename)
        return None if path is None else json.loads(Path(path).read_text())["child_paths"]

    def put_group(self, filename, group):
        return self.put(json.dumps({"child_paths": group}), "__grp__" + filename)


class RemoteCacheBackend:
    def __init__(self, key): ...

    @abc.abstractmethod
    def get(self, filenames): ...

    @abc.abstractmethod
    def put(self, filename, data): ...
