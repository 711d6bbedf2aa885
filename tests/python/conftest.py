# SPDX-License-Identifier: Apache-2.0
"""What the tests share: a user with a home and a store of their own, and no GPU."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cukiln

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in os.environ:
        if name.startswith("CUKILN_") and name not in (
            "CUKILN_INCLUDE_PATH",
            "CUKILN_LIBRARY",
            "CUKILN_NVRTC_LIBRARY",
            "CUKILN_TEST_BINARY_DIR",
            "CUKILN_TEST_PEERS",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CUKILN_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("CUKILN_SYSTEM_STORE", str(tmp_path / "no-system-store"))
    monkeypatch.setenv("CUKILN_CUDA_LIBRARY", str(BINARIES / "libcuda_fake.so"))
    return tmp_path


@pytest.fixture
def own_default_loader(home, monkeypatch):
    """A default loader for this test alone, closed at its end."""
    monkeypatch.setattr(cukiln._loader, "_default", None)
    yield
    if cukiln._loader._default is not None:
        cukiln._loader._default.close()


def in_another_process(code, **environment):
    """Runs code with the same store, and returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


class _Launch(ctypes.Structure):  # FakeLaunch of tests/support/fake_cuda.hpp
    _fields_ = (
        ("kernel", ctypes.c_char * 96),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("cluster", ctypes.c_uint32 * 3),
        ("programmatic", ctypes.c_bool),
        ("cooperative", ctypes.c_bool),
        ("balanced", ctypes.c_bool),
        ("extended", ctypes.c_bool),
        ("argument_bytes", ctypes.c_size_t),
        ("arguments", ctypes.c_ubyte * 1024),
        ("image", ctypes.c_uint64),
    )


class Launched:
    """One launch as the driver saw it."""

    def __init__(self, seen):
        self.kernel = seen.kernel.decode()
        self.grid, self.block, self.cluster = map(tuple, (seen.grid, seen.block, seen.cluster))
        self.image = seen.image
        self.shared_bytes, self.stream = seen.shared_bytes, seen.stream or 0
        self.programmatic, self.cooperative = seen.programmatic, seen.cooperative
        self.balanced = seen.balanced
        self.arguments = bytes(seen.arguments[: seen.argument_bytes])


class FakeCuda:
    """The libcuda that runs nothing, with a context that is current in this thread."""

    def __init__(self):
        self.library = ctypes.CDLL(str(BINARIES / "libcuda_fake.so"))
        self.library.fake_cuda_new_context.restype = ctypes.c_void_p
        self.library.fake_cuda_launches.restype = ctypes.c_size_t
        self.library.fake_cuda_calls.restype = ctypes.c_int64
        self.library.fake_cuda_launch.argtypes = (ctypes.c_size_t, ctypes.c_void_p)
        self.library.fake_cuda_launch.restype = ctypes.c_bool
        self.library.fake_cuda_fail.argtypes = (ctypes.c_char_p, ctypes.c_uint, ctypes.c_int)
        self.library.fake_cuda_set_capture.argtypes = (ctypes.c_void_p, ctypes.c_int)
        self.library.cuCtxPushCurrent_v2.argtypes = (ctypes.c_void_p,)
        self.library.fake_cuda_reset()
        self.library.cuCtxPushCurrent_v2(self.library.fake_cuda_new_context(0))

    def parameters(self, kernel, *sizes):
        array = (ctypes.c_size_t * len(sizes))(*sizes)
        self.library.fake_cuda_set_parameters(kernel.encode(), array, len(sizes))

    def fail(self, function, result, times=1):
        self.library.fake_cuda_fail(function.encode(), result, times)

    def launches(self):
        return self.library.fake_cuda_launches()

    def calls(self, function):
        return self.library.fake_cuda_calls(function.encode())

    def last(self):
        seen = _Launch()
        assert self.library.fake_cuda_launch(0, ctypes.byref(seen))
        return Launched(seen)


@pytest.fixture
def cuda():
    fake = FakeCuda()
    yield fake
    fake.library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    fake.library.fake_cuda_reset()


@pytest.fixture
def loader(home):
    with cukiln.Loader() as opened:
        yield opened


@pytest.fixture
def link():
    """Skips the test in a build that does not link."""
    if not (Path(__file__).parents[2] / "src" / "addons" / "link").exists():
        pytest.skip("a build without src/addons/link")
