# SPDX-License-Identifier: Apache-2.0
"""cuda.core's program cache in cukiln's store.

    from cukiln.adapters.cuda_core import ProgramCache

    with ProgramCache() as cache:
        program.compile("cubin", cache=cache)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._loader import Loader
from ._support import Blobs, bounded, import_peer

_INSTALL = "pip install 'cuda-core[cu13]>=1.2'"
_utils = import_peer("cuda.core.utils", "cuda_core", "cuda.core", _INSTALL)
_core = import_peer("cuda.core", "cuda_core", "cuda.core", _INSTALL)

KIND = "cuda.core"


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


class ProgramCache(_utils.ProgramCacheResource):  # type: ignore[misc, name-defined]
    """A `cuda.core.utils.ProgramCacheResource`. A value that cannot be stored is logged and
    dropped; a key of more than 4096 bytes is stored by its SHA-256. Threads: safe.

    `store` is the folder of another store than the default loader's.
    """

    def __init__(self, store: str | os.PathLike[str] | None = None) -> None:
        self._loader = None if store is None else Loader(store=store)
        self._blobs = Blobs(KIND, self._loader)

    def __getitem__(self, key: bytes | str) -> bytes:
        data = self._blobs.get(bounded(_key_bytes(key)))
        if data is None:
            raise KeyError(key)
        return data

    def __setitem__(self, key: bytes | str, value: Any) -> None:
        self._blobs.put(bounded(_key_bytes(key)), _value_bytes(value))

    def __delitem__(self, key: bytes | str) -> None:
        if not self._blobs.remove(bounded(_key_bytes(key))):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self._blobs.list())

    def clear(self) -> None:
        for blob in self._blobs.list():
            self._blobs.remove(blob.key)

    def close(self) -> None:
        """Closes the store that this cache opened for itself."""
        if self._loader is not None:
            self._loader.close()
