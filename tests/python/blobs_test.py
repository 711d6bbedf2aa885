# SPDX-License-Identifier: Apache-2.0
"""Blobs by the Python package."""

import json
import multiprocessing
import os
import subprocess
import threading
import time

import pytest
from conftest import BINARIES, in_another_process

import cukiln

pytestmark = pytest.mark.usefixtures("own_default_loader")


def test_blobs_round_trip():
    blobs = cukiln.BlobStore("triton")
    assert blobs.get("k") is None and "k" not in blobs
    blobs.put("k", b"\0\x01")
    blobs.put(b"\0\xff", bytearray())
    blobs.put("k", memoryview(b"new\0"))
    cukiln.BlobStore("other").put("k", b"of another kind")
    assert "k" in blobs
    with cukiln.Loader() as loader:  # another connection
        again = cukiln.BlobStore("triton", loader)
        assert again.get(b"k") == b"new\0"
        assert again.get(b"\0\xff") == b""
        first, second = again.list()
        assert (first.kind, first.key, first.size_bytes) == ("triton", b"\0\xff", 0)
        assert (second.key, second.size_bytes) == (b"k", 4)
        assert len(first.id) == 64 and first.created_s > 1_700_000_000 and first.signer == ""
    assert blobs.remove("k") and not blobs.remove("k")
    assert blobs.get("k") is None
    assert cukiln.BlobStore("other").get("k") == b"of another kind"


def test_a_blob_names_the_keys_that_signed_it(home):  # fault 428
    def command(*arguments):
        done = subprocess.run([BINARIES / "cukiln", *arguments], cwd=home, capture_output=True, check=True)
        return json.loads(done.stdout)

    cukiln.BlobStore("triton").put("k", b"x")
    key = command("keygen", "--json", "-o", "fleet.key")["public_key"]
    command("export", "--json", "-o", "all.ckb", "--sign", "fleet.key")
    command("--store", "other", "import", "--json", "all.ckb", "--trust", "fleet.key.pub")
    with cukiln.Loader(store=home / "other") as loader:
        assert [blob.signer for blob in cukiln.BlobStore("triton", loader).list()] == [key]


def test_what_no_blob_may_be_is_refused():  # fault 240
    blobs = cukiln.BlobStore("k")
    with pytest.raises(cukiln.InvalidArgumentError, match="1048576 bytes; expected 1 to 4096"):
        blobs.put("k" * (1 << 20), b"x")
    with pytest.raises(cukiln.InvalidArgumentError, match="0 bytes"):
        blobs.get("")
    with pytest.raises(cukiln.InvalidArgumentError, match="the kind of a blob is"):
        cukiln.BlobStore("a/b").get("key")
    with pytest.raises(cukiln.InvalidArgumentError, match="at most 268435456 are stored"):
        blobs.put("key", bytes((256 << 20) + 1))
    for wrong in (3, [1, 2], None, "text"):
        with pytest.raises(TypeError, match="is no blob; expected bytes"):
            blobs.put("key", wrong)
        with pytest.raises(TypeError, match="is no blob; expected bytes"):
            blobs.get_or_make("key", lambda made=wrong: made)
    assert blobs.get_or_make("key", lambda: bytearray(b"ab")) == blobs.get("key") == b"ab"
    with (
        cukiln.Loader(max_bytes=1 << 20) as small,
        pytest.raises(cukiln.InvalidArgumentError, match="max_size"),
    ):
        cukiln.BlobStore("k", small).put("key", bytes(2 << 20))


def test_without_a_store_on_disk_a_put_says_why():  # fault 245
    with cukiln.Loader(memory_only=True) as loader:
        blobs = cukiln.BlobStore("k", loader)
        assert blobs.get("key") is None and blobs.list() == ()
        with pytest.raises(cukiln.IoError, match="memory only"):
            blobs.put("key", b"x")


def _put_and_get(store, number):
    with cukiln.Loader(store=store) as loader:
        blobs = cukiln.BlobStore("k", loader)
        for _ in range(10):
            blobs.put("shared", bytes([number]) * 10_000)
            blobs.put(f"own {number}", bytes([number]))
            found = blobs.get("shared")
            assert found is not None and len(set(found)) == 1 and len(found) == 10_000


def test_processes_write_one_key_concurrently(home):  # fault 393
    """No reader sees bytes of two writers, and no blob of another key is lost."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_put_and_get, args=(home / "store", n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    blobs = cukiln.BlobStore("k")
    assert [blobs.get(f"own {n}") for n in range(3)] == [bytes([n]) for n in range(3)]


def _make_once(store, start, results):
    with cukiln.Loader(store=store) as loader:

        def make():
            time.sleep(0.3)
            return b"made by %d" % os.getpid()

        start.wait()
        results.put(cukiln.BlobStore("k", loader).get_or_make("key", make))


def test_of_processes_that_miss_a_blob_one_makes_it(home):  # fault 246
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(4), context.Queue()
    workers = [
        context.Process(target=_make_once, args=(home / "store", start, results)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    made = {results.get(timeout=120) for _ in workers}
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(made) == 1
    assert cukiln.BlobStore("k").get("key") in made


def test_a_lease_ends_with_its_block_or_its_last_reference():  # fault 249
    blobs = cukiln.BlobStore("k")
    with blobs.get_or_lease("key") as lease:
        assert isinstance(lease, cukiln.BlobLease) and lease.exclusive
        with blobs.get_or_lease("key", wait=1000) as again:  # at once
            assert not again.exclusive
    assert not lease.exclusive
    with pytest.raises(cukiln.InvalidArgumentError, match="has ended"):
        lease.put(b"late")
    forgotten = blobs.get_or_lease("key")
    assert forgotten.exclusive
    del forgotten
    with pytest.raises(ZeroDivisionError):
        blobs.get_or_make("key", lambda: b"%d" % (1 // 0))
    lease = blobs.get_or_lease("key")
    assert lease.exclusive
    lease.put(memoryview(b"bytes"))
    assert not lease.exclusive
    assert blobs.get_or_lease("key") == b"bytes" == blobs.get_or_make("key", lambda: b"other")


def test_a_lease_outlives_its_loader():
    with cukiln.Loader() as loader:
        lease = cukiln.BlobStore("k", loader).get_or_lease("key")
    with pytest.raises(cukiln.InvalidArgumentError, match="closed"):
        lease.put(b"x")
    assert cukiln.BlobStore("k").get_or_lease("key").exclusive


def test_what_is_made_without_a_store_is_returned():  # fault 245
    with cukiln.Loader(memory_only=True) as loader:
        assert cukiln.BlobStore("k", loader).get_or_make("key", lambda: b"made") == b"made"


def test_ctrl_c_ends_the_wait_for_another_process(home):
    code = """
import signal, sys, threading
import cukiln
signal.signal(signal.SIGINT, signal.default_int_handler)
blobs = cukiln.BlobStore("k")
threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()
try:
    blobs.get_or_lease("key")
except KeyboardInterrupt:
    print("interrupted")
"""
    with cukiln.BlobStore("k").get_or_lease("key") as lease:
        assert in_another_process(code) == "interrupted"
        assert lease.exclusive


def test_threads_share_a_blob_store():  # fault 393
    blobs = cukiln.BlobStore("k")
    failed = []

    def use(number):
        try:
            for i in range(20):
                blobs.put(f"{number}.{i}", b"%d" % i)
                assert blobs.get(f"{number}.{i}") == b"%d" % i
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and len(blobs.list()) == 80
