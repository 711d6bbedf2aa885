# SPDX-License-Identifier: Apache-2.0
"""Adapters, held to the contracts of the projects that they are for.

The projects are stand-ins of their protocols (the folder peers), or with CUKILN_TEST_PEERS=FOLDER
the packages in that folder: then adapters_with_peers.py compiles with them too.
"""

import errno
import inspect
import json
import os
import select
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from conftest import in_another_process

import cukiln

FOLDER = os.environ.get("CUKILN_TEST_PEERS") or str(Path(__file__).parent / "peers")
sys.path.insert(0, FOLDER)

from cuda.core import ObjectCode  # noqa: E402
from cuda.core.utils import ProgramCacheResource  # noqa: E402
from triton.runtime import cache as triton_cache  # noqa: E402

from cukiln.adapters import _support, cuda_core, triton, tvm_ffi  # noqa: E402

if "CUKILN_TEST_PEERS" not in os.environ:  # PyTorch would take the stand-in for Triton
    sys.path.remove(FOLDER)
    for name in list(sys.modules):
        if name.split(".")[0] in ("triton", "cuda"):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def own_state(own_default_loader, monkeypatch):
    monkeypatch.setattr(_support, "_warned", {})
    monkeypatch.setattr(triton, "_files", triton._Files())


def beside_the_projects(code, **environment):
    """Runs code in another process that can import the projects, and returns what it prints."""
    path = os.pathsep.join([FOLDER, *sys.path])
    return in_another_process(code, **environment, PYTHONPATH=path)


class Module:
    """As an IR object of Triton: its text is what is stored."""

    def __str__(self):
        return "module { é }"


# Triton: what FileCacheManager promises, and RemoteCacheManager expects of a backend.


def test_triton_gets_files_of_what_was_put():
    manager = triton.CacheManager("KEY")
    assert isinstance(manager, triton_cache.CacheManager)
    assert manager.get_file("add.cubin") is None
    path = Path(manager.put(b"\x7fELF\0", "add.cubin"))
    assert path.name == "add.cubin" and path.read_bytes() == b"\x7fELF\0"
    assert Path(manager.put(Module(), "add.ttir")).read_text() == "module { é }"
    assert Path(manager.put("{}", "add.json", binary=False)).read_text() == "{}"
    assert Path(manager.put(b"", "empty")).read_bytes() == b""
    assert triton.CacheManager("OTHER").get_file("add.cubin") is None
    manager.put(b"newer", "add.cubin")
    assert Path(manager.get_file("add.cubin")).read_bytes() == b"newer"


def test_triton_gets_a_group_whole_or_not_at_all():  # fault 401
    manager = triton.CacheManager("KEY")
    assert manager.get_group("add.json") is None
    names = ("add.ttir", "add.cubin", "add.json")
    group = {name: manager.put(name.encode(), name) for name in names}
    manager.put_group("add.json", group)
    assert manager.get_group("add.json") == group
    read = ("from cukiln.adapters.triton import CacheManager; from pathlib import Path\n"
            "group = CacheManager('KEY').get_group('add.json')\n"
            "print(group and {n: Path(p).read_text() for n, p in sorted(group.items())})")
    whole = {name: name for name in sorted(group)}
    assert beside_the_projects(read) == str(whole)
    group["of_others"] = manager.put(b"of_others", "of_others")
    group["add.ttir"] = manager.put(b"newer", "add.ttir")
    manager.put_group("add.json", group)
    assert beside_the_projects(read) == str(whole | {"add.ttir": "newer", "of_others": "of_others"})
    assert cukiln.BlobStore("triton").remove("KEY/of_others")  # as an eviction does
    assert beside_the_projects(read) == "None"


def hostile_groups():
    """What another may put under a group's key. None is a group, or whole."""
    def line(names, sizes=None, rest=b""):
        return json.dumps({"child_paths": names} | ({} if sizes is None else {"sizes": sizes})).encode() + b"\n" + rest

    yield from (b"", b"\n", b"no JSON", b"\xff", b"5", b"null", b"[]", b"{}", b'"child_paths"', b"[" * 200_000,
                b'{"child_paths": ' + b'{"a":' * 60_000, b" " * (1 << 20) + line(["a"], {"a": 0}))  # fmt: skip
    for names in (5, None, "abc", {"a": "/etc/passwd"}, [5], [None], [["a"]], [{}], ["add.cubin", 5], ["x"] * 20_000):
        yield line(names)
    for name in ("../a", "/a", "a/b", "", ".", "..", "a\0b", "\ud800", "n" * 249, "\u20ac" * 90):
        yield from (line([name]), line([name], {name: 1}, b"x"), line(["add.json", name], {"add.json": 1, name: 1}, b"xy"))
    for size in (-1, 2, 10**400, 1.0, float("nan"), float("inf"), True, None, "1", [], {}):
        yield line(["add.json"], {"add.json": size}, b"x")
    for sizes in (5, [], "add.json", [["add.json", 1]], {"of no name": 1}, {"add.json": 0}, {}):
        yield line(["add.json"], sizes, b"x")
    yield line(["add.json", "add.cubin"], {"add.json": 3, "add.cubin": -2}, b"x")
    # Of members that are nowhere, and of itself.
    yield from (line(["gone"]), line(["gone.so"]), line(["__grp__gone.json"]), line(["__grp__add.json", "gone"]))


def test_triton_does_not_take_what_is_no_group(home):  # fault 401, fault 453
    stored = cukiln.BlobStore("triton")
    before = {path for path in home.rglob("*") if "store" not in path.parts}
    for text in hostile_groups():
        stored.put("KEY/__grp__add.json", text)
        manager, backend = triton.CacheManager("KEY"), triton.RemoteCacheBackend("KEY")
        assert not manager.get_group("add.json"), text[:200]
        manager.get_file("__grp__add.json")
        for name in ("add.json", "add.cubin", "a", "gone"):
            assert manager.get_file(name) is None, text[:200]
        assert not backend.get(["add.json", "add.cubin"]), text[:200]
        for shown in backend.get(["__grp__add.json"]).values():
            names = json.loads(shown)["child_paths"]
            assert len(backend.get(names)) < len(names), text[:200]
        # Nobody is going to make what a group names: no other process waits for it.
        assert set(manager._stored._leases) <= {b"KEY/__grp__add.json"}, text[:200]
    assert {path for path in home.rglob("*") if "store" not in path.parts} == before
    files = [path for folder in triton._files._folders.values() for path in Path(folder.path).rglob("*")]
    assert all(path.name == "lock" or path.name.startswith("__grp__") or path.is_dir() for path in files), files


def test_a_remote_manager_of_triton_does_not_take_what_is_no_group(home):  # fault 453
    if not hasattr(triton_cache, "RemoteCacheManager"):
        pytest.skip("a stand-in of Triton")
    code = """
import os, pathlib
import cukiln
from triton.runtime.cache import get_cache_manager, _base32
folder = pathlib.Path(os.environ["HOME"])
stored, key = cukiln.BlobStore("triton"), _base32("00" * 32)
for text in pathlib.Path(os.environ["GROUPS"]).read_bytes().split(b"\\0\\n\\0"):
    stored.put(f"{key}/__grp__add.json", text)
    assert not get_cache_manager("00" * 32).get_group("add.json"), text[:200]
print(sorted({path.name for path in (folder / "triton" / key).iterdir()}))
"""
    (home / "groups").write_bytes(b"\0\n\0".join(hostile_groups()))
    said = beside_the_projects(code, GROUPS=str(home / "groups"), TRITON_CACHE_DIR=str(home / "triton"),
                               TRITON_CACHE_MANAGER="triton.runtime.cache:RemoteCacheManager",
                               TRITON_REMOTE_CACHE_BACKEND="cukiln.adapters.triton:RemoteCacheBackend")
    assert said == "['__grp__add.json']"


def test_triton_gets_a_group_whose_files_are_blobs():
    """As Triton's RemoteCacheManager does."""
    stored = cukiln.BlobStore("triton")
    for name in ("add.cubin", "add.json"):
        stored.put(f"KEY/{name}", name.encode())
    stored.put("KEY/__grp__add.json", b'{"child_paths": ["add.cubin", "add.json"]}')
    group = triton.CacheManager("KEY").get_group("add.json")
    assert {name: Path(path).read_text() for name, path in group.items()} == {
        "add.cubin": "add.cubin", "add.json": "add.json"}  # fmt: skip


def test_triton_stores_a_kernel_as_one_blob():
    names = ("add.ttir", "add.cubin", "add.json")
    manager = triton.CacheManager("KEY")
    manager.put_group("add.json", {name: manager.put(name.encode(), name) for name in names})
    manager.put(b"x", "launcher.so")
    del manager
    (group, library) = cukiln.BlobStore("triton").list()
    assert (group.key, library.key) == (b"KEY/__grp__add.json", b"KEY/launcher.so")
    read = "from cukiln.adapters.triton import CacheManager as C; print(open(C('KEY').get_file(%r)).read())"
    assert beside_the_projects(read % "add.cubin") == "add.cubin"
    assert beside_the_projects(read % "launcher.so") == "x"
    assert json.loads(beside_the_projects(read % "__grp__add.json")) == {"child_paths": sorted(names)}
    before = cukiln.BlobStore("triton").list()[0].hits
    triton.CacheManager("KEY").get_group("add.json")
    cukiln.default_loader().close()  # which writes what hit
    assert cukiln.BlobStore("triton").list()[0].hits == before + 1


def test_triton_stores_at_the_end_what_has_no_group():
    """Of managers that live as long as the process, one of which is older than the store's loader."""
    beside_the_projects("""
import os, sys
from cukiln.adapters.triton import CacheManager
first, second = CacheManager('FIRST'), CacheManager('SECOND')
second.put_group('g', {'a': second.put(b'of second', 'a')})
first.put(b'of first', 'a')
third = CacheManager('THIRD'); third.put(b'of third', 'a')
if os.fork() == 0:
    CacheManager('FORK').get_file('a')
    third.put(b'of a fork', 'b')
    sys.exit()
assert os.wait()[1] == 0""")
    stored = cukiln.BlobStore("triton")
    assert [stored.get(f"{name}/a") for name in ("FIRST", "SECOND", "THIRD")] == [
        b"of first", b"of second", b"of third"]  # fmt: skip
    assert stored.get("THIRD/b") == b"of a fork"


def test_triton_files_are_private_and_go_with_the_process():
    path = beside_the_projects("from cukiln.adapters.triton import CacheManager; import os, stat\n"
                               "path = CacheManager('KEY').put(b'x', 'a')\n"
                               "folder = os.path.dirname(os.path.dirname(path))\n"
                               "print(oct(stat.S_IMODE(os.stat(folder).st_mode)), folder)")
    mode, folder = path.split()
    assert mode == "0o700" and not Path(folder).exists()
    cukiln.BlobStore("triton").put("KEY/a", b"of another process")
    here = Path(triton.CacheManager("KEY").get_file("a"))
    assert here.read_bytes() == b"of another process"
    cukiln.BlobStore("triton").put("KEY/a", b"x")
    assert triton.CacheManager("KEY").get_file("a") == str(here)
    assert here.read_bytes() == b"x"
    here.unlink()  # a cleaner of temporary files
    assert Path(triton.CacheManager("KEY").get_file("a")).read_bytes() == b"x"
    assert stat.S_IMODE(here.stat().st_mode) == 0o600


def test_triton_files_of_a_killed_process_are_removed_by_the_next():
    left = beside_the_projects(
        "from cukiln.adapters.triton import CacheManager; import os\n"
        "print(*(CacheManager('KEY').put(b'x', name) for name in ('a', 'a.so')), flush=True)\n"
        "os._exit(0)"  # as a signal ends it
    )
    paths = [Path(path) for path in left.split()]
    assert all(path.is_file() for path in paths)
    here = [Path(triton.CacheManager("KEY").get_file(path.name)) for path in paths]
    assert not any(path.exists() for path in paths)
    # Those of a process that lives stay.
    beside_the_projects("from cukiln.adapters.triton import CacheManager as C; C('K').put(b'x', 'a')")
    assert all(path.is_file() for path in here)


def test_triton_files_are_on_disk_where_memory_is_full_or_code_is_loaded(monkeypatch, home):
    manager = triton.CacheManager("KEY")
    assert Path(manager.put(b"x", "a.so")).parents[2] == Path(tempfile.gettempdir())
    monkeypatch.setattr(triton, "_MEMORY", str(home / "no such folder"))
    assert Path(manager.put(b"x", "a.cubin")).parents[2] == Path(tempfile.gettempdir())
    memory = home / "memory"
    memory.mkdir()
    monkeypatch.setattr(triton, "_MEMORY", str(memory))
    assert Path(manager.put(b"x", "b.cubin")).parents[2] == memory
    create = triton._Files._create

    def full(self, root, *rest):
        if root == str(memory):
            raise OSError(errno.ENOSPC, "full")
        return create(self, root, *rest)

    monkeypatch.setattr(triton._Files, "_create", full)
    path = Path(manager.put(b"new", "b.cubin"))
    assert path.parents[2] == Path(tempfile.gettempdir()) and path.read_bytes() == b"new"
    assert manager.get_file("b.cubin") == str(path)


def test_triton_names_are_no_paths():
    manager = triton.CacheManager("KEY")
    for name in ("../a", "/a", "a/b", "", ".."):
        with pytest.raises(ValueError, match="invalid file name"):
            manager.put(b"x", name)
        with pytest.raises(ValueError, match="invalid file name"):
            manager.get_file(name)


def test_triton_dumps_and_overrides_stay_in_its_folders(home, monkeypatch):  # fault 402
    monkeypatch.setenv("TRITON_DUMP_DIR", str(home / "dump"))
    monkeypatch.setenv("TRITON_OVERRIDE_DIR", str(home / "override"))
    dump = triton.CacheManager("KEY", dump=True)
    assert Path(dump.put(b"x", "a.ttir")) == home / "dump" / "KEY" / "a.ttir"
    assert triton.CacheManager("KEY", override=True).get_file("a.ttir") is None
    (home / "override" / "KEY").mkdir(parents=True)
    (home / "override" / "KEY" / "a.ttir").write_bytes(b"mine")
    found = triton.CacheManager("KEY", override=True).get_file("a.ttir")
    assert Path(found) == home / "override" / "KEY" / "a.ttir"
    assert cukiln.BlobStore("triton").list() == ()


def test_a_remote_backend_of_triton_has_what_was_put():
    backend = triton.RemoteCacheBackend("KEY")
    assert isinstance(backend, triton_cache.RemoteCacheBackend)
    assert backend.get(["a", "b"]) == {}
    backend.put("a", b"1")
    backend.put("b", b"")
    assert backend.get(["a", "b", "c"]) == {"a": b"1", "b": b""}
    assert triton.RemoteCacheBackend("OTHER").get(["a"]) == {}
    # Both adapters have one layout: a host may change from one to the other.
    assert Path(triton.CacheManager("KEY").get_file("a")).read_bytes() == b"1"
    manager = triton.CacheManager("GROUP")
    manager.put_group("a.json", {name: manager.put(b"1", name) for name in ("a.json", "a.cubin")})
    backend = triton.RemoteCacheBackend("GROUP")
    assert json.loads(backend.get(["__grp__a.json"])["__grp__a.json"]) == {"child_paths": ["a.cubin", "a.json"]}
    assert backend.get(["a.json", "a.cubin", "a.ptx"]) == {"a.json": b"1", "a.cubin": b"1"}


COMPILES = """
import os, sys, time
from cukiln.adapters.triton import CacheManager

def compile():  # in the order of triton.compiler.compile
    manager = CacheManager("KEY")
    print("asks", flush=True)
    if manager.get_group("add.json") is not None:
        return "hit"
    print("compiles", flush=True)
    sys.stdin.readline()  # until the test says so
    if os.environ.get("FAILS"):
        raise RuntimeError("does not compile")
    group = {name: manager.put(b"x", name) for name in ("add.cubin", "add.json")}
    manager.put_group("add.json", group)
    return "compiled"
try:
    said = compile()
except RuntimeError as error:
    said = str(error)
print(said, flush=True)
sys.stdin.readline()
"""


class Compiles:
    """A process that compiles as Triton does."""

    def __init__(self, **environment):
        path = os.pathsep.join([FOLDER, *sys.path])
        self._process = subprocess.Popen([sys.executable, "-c", COMPILES], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True,
                                         env={**os.environ, **environment, "PYTHONPATH": path})

    def says(self):
        return self._process.stdout.readline().strip()

    def is_waiting(self):
        assert self.says() == "asks"
        return not select.select([self._process.stdout], [], [], 1)[0]

    def compiles(self):
        return self.says() == "asks" and self.says() == "compiles"

    def goes_on(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self):
        self._process.kill()
        self._process.wait()


@pytest.fixture
def compiles():
    """Starts processes that compile as Triton does, and ends them with the test."""
    started = []

    def start(**environment):
        started.append(Compiles(**environment))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def test_of_processes_that_miss_a_kernel_one_compiles_it(compiles):  # fault 246
    first = compiles()
    assert first.compiles()
    others = [compiles(), compiles()]
    assert all(other.is_waiting() for other in others)
    first.goes_on()
    assert [first.says()] + [other.says() for other in others] == ["compiled", "hit", "hit"]


def test_a_compile_of_triton_that_fails_or_is_killed_keeps_no_process_waiting(compiles):
    # fault 247, fault 249
    fails = compiles(FAILS="1")
    assert fails.compiles()
    second, third = compiles(), compiles()
    assert second.is_waiting() and third.is_waiting()
    fails.goes_on()
    assert fails.says() == "does not compile"  # and the process lives on
    assert second.says() == third.says() == "compiles"  # neither waits for the other
    fourth = compiles()
    assert fourth.compiles()
    fifth = compiles()
    assert fifth.is_waiting()
    fourth.kill()
    assert fifth.says() == "compiles"
    fifth.goes_on()
    assert fifth.says() == "compiled"


def test_triton_with_its_own_folders_compiles_once(monkeypatch):  # fault 246, fault 248
    monkeypatch.setattr(_support.Blobs.try_lease, "__defaults__", (0.5,))
    backend, group = triton.RemoteCacheBackend("KEY"), "__grp__add.json"
    assert backend.get([group]) == {}
    ask = ("from cukiln.adapters import _support, triton\n_support.Blobs.try_lease.__defaults__ = (LIMIT,)\n"
           "print(triton.RemoteCacheBackend('KEY').get(['__grp__add.json']))")  # fmt: skip
    assert beside_the_projects(ask.replace("LIMIT", "0.5")) == "{}"  # and none waits for ever
    content = b'{"child_paths": []}'
    writer = threading.Timer(1.5, backend.put, (group, content))
    writer.start()
    assert beside_the_projects(ask.replace("LIMIT", "60")) == f"{{'__grp__add.json': {content!r}}}"
    writer.join()


def test_triton_works_without_a_store(home, monkeypatch, caplog):  # fault 245
    monkeypatch.setenv("CUKILN_DISABLE_STORE", "1")
    manager = triton.CacheManager("KEY")
    path = manager.put(b"x", "a")
    manager.put(b"x", "b")
    assert Path(path).read_bytes() == b"x"
    manager.put_group("a", {"a": path})
    assert manager.get_file("a") == path
    (warned,) = [line for line in caplog.messages if "nothing of triton is stored" in line]
    assert "memory only" in warned  # once
    assert triton.RemoteCacheBackend("KEY").get(["a"]) == {}


# cuda.core: what its own caches promise.


def test_cuda_core_keeps_bytes_under_bytes_and_str():  # fault 387
    cache = cuda_core.ProgramCache()
    assert isinstance(cache, ProgramCacheResource)
    with pytest.raises(KeyError):
        cache["k"]
    assert cache.get(b"k") is None and cache.get("k", b"else") == b"else" and len(cache) == 0
    cache["k"] = b"\0cubin"
    assert cache[b"k"] == b"\0cubin" and len(cache) == 1
    cache.update({"k": bytearray(b"2"), b"\xff": memoryview(b"3")})
    cache.update([("empty", b"")])
    assert (cache["k"], cache[b"\xff"], cache["empty"], len(cache)) == (b"2", b"3", b"", 3)
    del cache["k"]
    with pytest.raises(KeyError):
        del cache["k"]
    cache.clear()
    assert len(cache) == 0 and cache.get(b"\xff") is None


def test_cuda_core_keeps_object_code(home):  # fault 388
    cache = cuda_core.ProgramCache()
    cache["memory"] = ObjectCode.from_cubin(b"in memory")
    file = home / "a.cubin"
    file.write_bytes(b"in a file")
    cache["file"] = ObjectCode.from_cubin(str(file))
    assert (cache["memory"], cache["file"]) == (b"in memory", b"in a file")
    file.unlink()
    with pytest.raises(FileNotFoundError):
        cache["file"] = ObjectCode.from_cubin(str(file))
    for value in ("text", None, 5):
        with pytest.raises(TypeError):
            cache["k"] = value
    for key in (None, 5, memoryview(b"k")):
        with pytest.raises(TypeError):
            cache[key]


def test_cuda_core_keys_have_any_length():  # fault 240, fault 387
    cache = cuda_core.ProgramCache()
    mebibyte = b"k" * (1 << 20)
    keys = [mebibyte, mebibyte + b"2", b"", b"k" * 4096, b"k" * 4097, b"sha256:" + b"x"]
    for number, key in enumerate(keys):
        cache[key] = b"%d" % number
    assert [cache[key] for key in keys] == [b"%d" % number for number in range(len(keys))]
    assert len(cache) == len(keys)
    del cache[mebibyte]
    assert cache.get(mebibyte) is None and cache[mebibyte + b"2"] == b"1"
    cache.clear()
    assert len(cache) == 0


def test_cuda_core_drops_what_is_too_large(caplog):  # fault 240
    cache = cuda_core.ProgramCache()
    cache["k"] = bytes((256 << 20) + 1)
    assert "at most 268435456 are stored" in caplog.text
    assert cache.get("k") is None
    cache["k"] = b"small"
    assert cache["k"] == b"small"


def test_cuda_core_keeps_to_a_cap():  # fault 452
    for cap in (0, -1):
        with pytest.raises(ValueError, match="max_size_bytes"):
            cuda_core.ProgramCache(max_size_bytes=cap)
    cukiln.BlobStore("triton").put("of others", bytes(1000))
    cache = cuda_core.ProgramCache(max_size_bytes=100)
    for number in range(10):
        assert cache.get(str(number)) is None
        cache[str(number)] = bytes(10)
    assert len(cache) == 10 and cache["0"]
    cache["10"] = bytes(15)
    kept = [number for number in range(11) if cache.get(str(number)) is not None]
    assert kept == [0, *range(3, 11)]
    assert len(cukiln.BlobStore(cuda_core.SECONDS_KIND).list()) == 8
    for _ in range(20):
        cache["again"] = bytes(60)
    assert cache["again"] and len(cache) == 4
    cuda_core.ProgramCache()["without a cap"] = bytes(200)
    cache["k"] = bytes(90)
    assert len(cache) == 1 and cache["k"]
    cache["larger than the cap"] = bytes(101)  # as in cuda.core's own caches
    assert len(cache) == 0 and len(cukiln.BlobStore("triton").list()) == 1


def test_cuda_core_counts_what_it_finds(home):
    cache = cuda_core.ProgramCache()
    assert cache.stats() == cuda_core.ProgramCacheStats(0, 0, 0, 0.0, 0.0)
    assert cache.get("k") is None
    time.sleep(0.02)  # as a compile takes
    cache["k"] = b"12345"
    cache["not asked for"] = b"1"
    assert cache["k"] == cache["k"] == b"12345"
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.size_bytes) == (2, 1, 16)
    assert stats.compile_seconds >= 0.02
    assert stats.saved_seconds == pytest.approx(2 * stats.compile_seconds, abs=1e-5)
    other = cuda_core.ProgramCache()  # as in another process
    assert other["k"] and other["not asked for"]
    assert other.stats().saved_seconds == pytest.approx(stats.compile_seconds, abs=1e-5)
    del cache["k"]
    cache["k"] = b"of nobody knows what time"
    assert cache["k"] and cuda_core.ProgramCache().stats().saved_seconds == 0
    assert cukiln.BlobStore(cuda_core.SECONDS_KIND).list() == ()


def test_cuda_core_may_have_a_store_of_its_own(home):
    with cuda_core.ProgramCache(store=home / "own") as cache:
        cache["k"] = b"own"
        assert cuda_core.ProgramCache().get("k") is None
    with cuda_core.ProgramCache(store=home / "own") as cache:
        assert cache["k"] == b"own"


# tvm-ffi


SOURCE = """
#include "scale.cuh"
extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= factor(); }
"""


def test_tvm_ffi_compiles_once(home):
    (home / "scale.cuh").write_text("float factor() { return 3; }\n")
    options = [f"-I{home}", b"--fmad=false"]
    cubin = tvm_ffi.nvrtc_compile(SOURCE, name="scale.cu", arch="sm_90", extra_opts=options)
    assert cubin[:4] == b"\x7fELF"
    before = cukiln.default_loader().stats()
    assert tvm_ffi.nvrtc_compile(SOURCE, name="scale.cu", arch="sm_90", extra_opts=options) == cubin
    after = cukiln.default_loader().stats()
    assert (after.compiles - before.compiles, after.hits - before.hits) == (0, 1)
    (home / "scale.cuh").write_text("float factor() { return 4; }\n")
    assert tvm_ffi.nvrtc_compile(SOURCE, name="scale.cu", arch="sm_90", extra_opts=options) != cubin


def test_tvm_ffi_takes_the_architecture_that_the_options_name_last():
    source = 'extern "C" __global__ void k(int* x) { *x = __CUDA_ARCH__; }'
    cubin = tvm_ffi.nvrtc_compile(source, arch="sm_80")
    for options in (["-arch=sm_80"], ["-arch", "sm_75", b"--gpu-architecture=sm_80"]):
        assert tvm_ffi.nvrtc_compile(source, arch="sm_90", extra_opts=options) == cubin
    assert tvm_ffi.nvrtc_compile(source, arch="sm_90") != cubin


def test_tvm_ffi_leaves_to_tvm_ffi_what_would_differ(monkeypatch):  # fault 332
    calls = []
    monkeypatch.setattr(tvm_ffi, "_compile_by_tvm_ffi", lambda *given, **named: calls.append((given, named)) or b"own")
    source = 'extern "C" __global__ void k(int* x) { *x = 1; }'
    names_file = source.replace("1", "sizeof(__FILE__)")
    for text, options in ((source, ["-rdc=true"]), (source, [b" --relocatable-device-code", b"true"]),
                          (source, ["-dc"]), (source, ["-dlto"]), (source, ["-DX=__FILE__"]), (names_file, None)):
        assert tvm_ffi.nvrtc_compile(text, name="k.cu", arch="sm_90", extra_opts=options) == b"own"
        assert calls.pop() == ((text,), {"name": "k.cu", "arch": "sm_90", "extra_opts": options})
    assert tvm_ffi.nvrtc_compile(source, arch="sm_90") != b"own"
    assert not calls
    monkeypatch.setattr(tvm_ffi, "_compile_by_tvm_ffi", None)
    with pytest.raises(RuntimeError, match="-dlto is compiled by tvm-ffi itself; install"):
        tvm_ffi.nvrtc_compile(source, arch="sm_90", extra_opts=["-dlto"])


def test_tvm_ffi_fails_as_tvm_ffi_does():
    with pytest.raises(RuntimeError, match="(?s)NVRTC compilation failed.*nothing"):
        tvm_ffi.nvrtc_compile("extern \"C\" __global__ void k() { nothing(); }", arch="sm_90")
    with pytest.raises(RuntimeError, match="sm_1"):
        tvm_ffi.nvrtc_compile("", arch="sm_1")
    signature = inspect.signature(tvm_ffi.nvrtc_compile)
    assert [(p.name, p.kind.name, p.default) for p in signature.parameters.values()] == [
        ("source", "POSITIONAL_OR_KEYWORD", inspect.Parameter.empty),
        ("name", "KEYWORD_ONLY", "kernel.cu"),
        ("arch", "KEYWORD_ONLY", None),
        ("extra_opts", "KEYWORD_ONLY", None),
    ]


# All of them


@pytest.mark.parametrize(
    ("adapter", "module", "install"),
    [("triton", "triton", "pip install triton"), ("cuda_core", "cuda.core", "cuda-core"),
     ("inductor", "torch", "pip install torch")],
)  # fmt: skip
def test_a_project_that_is_not_installed_is_named(adapter, module, install):
    code = f"""
import sys
import cukiln, cukiln.adapters
assert not {{"triton", "torch", "cuda"}} & set(sys.modules)
class Missing:
    def find_spec(name, *_):
        if (name + ".").startswith({module + "."!r}):
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Missing)
try:
    import cukiln.adapters.{adapter}
except ModuleNotFoundError as error:
    print(error)
"""
    said = beside_the_projects(code)
    assert f"cukiln.adapters.{adapter} needs" in said and install in said
