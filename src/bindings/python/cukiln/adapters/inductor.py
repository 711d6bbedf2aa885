# SPDX-License-Identifier: Apache-2.0
"""The remote caches of PyTorch's Inductor in cukiln's store.

    import cukiln.adapters.inductor
    cukiln.adapters.inductor.install()

in each process that compiles, with `TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE=1` and the like. PyTorch
has no setting for the class of these caches; `install` puts this one in the place of Redis's.
"""

from __future__ import annotations

from ._support import Blobs, bounded, import_peer

_remote = import_peer("torch._inductor.remote_cache", "inductor", "PyTorch", "pip install torch")

KIND = "inductor"


class RemoteCacheBackend(_remote.RemoteCacheBackend):  # type: ignore[misc, name-defined]
    """A `torch._inductor.remote_cache.RemoteCacheBackend[bytes]`. `cache_id` is part of the keys
    that Inductor asks for. Threads: safe."""

    def __init__(self, cache_id: str = "") -> None:
        super().__init__()
        self._blobs = Blobs(KIND)

    def _get(self, key: str) -> bytes | None:
        return self._blobs.get(bounded(key.encode()))

    def _put(self, key: str, data: bytes) -> None:
        self._blobs.put(bounded(key.encode()), data)


def install() -> None:
    """Makes the remote caches that PyTorch creates from now on, in this process, use the store."""
    if not hasattr(_remote, "RedisRemoteCacheBackend"):
        raise ImportError(
            "torch._inductor.remote_cache has no RedisRemoteCacheBackend to replace; this is known "
            "of PyTorch 2.13"
        )
    _remote.RedisRemoteCacheBackend = RemoteCacheBackend
