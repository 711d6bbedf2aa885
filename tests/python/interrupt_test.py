# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the library works: in a process of its own, with an NVRTC that never ends."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import BINARIES

BEGIN = """
import os, signal, sys, threading
import cukiln

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where tests run behind a shell
began = sys.argv[1]
KERNEL = 'extern "C" __global__ void k() {}'
loader = cukiln.Loader(nvrtc_library=sys.argv[2], jobs=2)

def spec(name, text):
    return cukiln.ModuleSpec(cukiln.Source(name + ".cu", text + KERNEL), targets=["sm_90a"])

def endless(name="endless"):
    return spec(name, "// fake: count " + began + "\\n// fake: spin\\n")

def quick():
    return spec("quick", "")
"""


def interrupted(script, tmp_path, expected="interrupted\n"):
    """Runs it, and sends a SIGINT when NVRTC is at work."""
    began = tmp_path / "began"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            BEGIN + textwrap.dedent(script),
            began,
            BINARIES / "libnvrtc_fake.so",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 60
        while not began.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)  # before the compile's own limit
    finally:
        process.kill()
    assert (out, err, process.returncode) == (expected, "", 0)


@pytest.mark.parametrize(
    "call",
    [
        "loader.preload([endless('a'), endless('b'), endless('c')], load=False)",
        "loader.preload([endless(), quick()], load=False, keep_going=True, progress=print)",
        "loader.compile(endless())",
        "loader.get(endless())",
        "cukiln.get_cuda_module('m', [write(endless())], targets=['sm_90a'], loader=loader)",
    ],
)
def test_it_ends_what_compiles_and_the_loader_goes_on(call, tmp_path, home):
    script = f"""
    def write(spec):
        path = began + ".cu"
        with open(path, "w") as file:
            file.write(spec.sources.text)
        return path

    def print(*_):
        pass

    try:
        {call}
    except KeyboardInterrupt:
        sys.stdout.write("interrupted\\n")
    assert loader.compile(quick())[0].outcome in ("compiled", "hit")
    assert signal.set_wakeup_fd(-1) == -1
    """
    interrupted(script, tmp_path)


def test_a_loader_that_was_cancelled_stays_so(tmp_path, home):
    script = """
    try:
        loader.compile(endless())
    except KeyboardInterrupt:
        loader.cancel()
    other = cukiln.Loader(nvrtc_library=sys.argv[2])
    other.compile(quick())
    try:
        loader.compile(spec("new", "//"))
    except cukiln.TimeoutError as error:
        print("cancelled" in str(error))
    """
    interrupted(script, tmp_path, "True\n")


def test_a_handler_of_the_hosts_own_decides_itself(tmp_path, home):
    script = """
    heard = []
    def handler(*_):
        heard.append(1)
    signal.signal(signal.SIGINT, handler)
    threading.Timer(1, loader.cancel).start()
    try:
        loader.compile(endless())
    except cukiln.TimeoutError:
        print(heard)
    """
    interrupted(script, tmp_path, "[1]\n")


def test_who_else_waits_for_signals_hears_of_them(tmp_path, home):
    script = """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    try:
        loader.compile(endless())
    except KeyboardInterrupt:
        print(list(os.read(reader, 10)) == [signal.SIGINT], signal.set_wakeup_fd(-1) == writer)
    """
    interrupted(script, tmp_path, "True True\n")


def test_another_thread_and_a_forked_child_compile_as_ever(tmp_path, home):
    script = """
    compiled = []
    worker = threading.Thread(target=lambda: compiled.extend(loader.compile(quick())))
    worker.start()
    worker.join()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            cukiln.Loader(nvrtc_library=sys.argv[2]).compile(endless())
        except KeyboardInterrupt:
            code = 0
        os._exit(code)
    try:
        os.waitpid(child, 0)
    except KeyboardInterrupt:
        os.kill(child, signal.SIGINT)
        print(len(compiled), os.waitpid(child, 0)[1])
    """
    interrupted(script, tmp_path, "1 0\n")
