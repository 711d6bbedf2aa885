# SPDX-License-Identifier: Apache-2.0
"""The adapter for Inductor, with PyTorch itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import in_another_process

import cukiln

pytestmark = pytest.mark.usefixtures("own_default_loader")


def test_inductor_stores_and_finds():
    from torch._inductor import remote_cache

    from cukiln.adapters import inductor

    backend = inductor.RemoteCacheBackend("fx")
    assert isinstance(backend, remote_cache.RemoteCacheBackend)
    assert backend.get("k") is None
    backend.put("k", b"{}")
    assert backend.get("k") == b"{}"
    long_key = "k" * (1 << 20)
    backend.put(long_key, b"of a long key")
    assert backend.get(long_key) == b"of a long key"
    assert backend.get(long_key + "2") is None


COMPILE = """
import torch, cukiln.adapters.inductor
from torch._dynamo.utils import counters

cukiln.adapters.inductor.install()
f = torch.compile(lambda x: torch.sin(x) * 2 + x)
assert torch.allclose(f(torch.ones(8)), torch.full((8,), 2.6829419))
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""


def test_inductor_compiles_a_graph_once(home):
    """The second process has none of PyTorch's own files."""
    switch = {"TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    for folder, counted in (("first", "0 1"), ("second", "1 0")):
        own = str(home / folder)
        assert in_another_process(COMPILE, TORCHINDUCTOR_CACHE_DIR=own, **switch) == counted
    (blob,) = cukiln.BlobStore("inductor").list()
    assert blob.key.startswith(b"pt2:fx-graph") and blob.hits == 1


def test_the_example_stores_a_graph_once(home):
    example = Path(__file__).parents[2] / "examples/other_compilers.py"
    for folder, outcome in (("first", "1 stored, 0 were there"), ("second", "0 stored, 1 were there")):
        run = subprocess.run([sys.executable, example, "inductor"], capture_output=True, text=True, check=True,
                             env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(home / folder)})
        assert run.stdout == f"inductor: {outcome}\n"
