# SPDX-License-Identifier: Apache-2.0
"""NVRTC's functions in libcukiln_nvrtc, which compile through the default store, for an adapter
whose project calls NVRTC itself. The NVRTC is the one that this process has open."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import NamedTuple

from .. import _errors, _library

_logger = logging.getLogger("cukiln")
_STRINGS = POINTER(c_char_p)


class Result(NamedTuple):
    code: bytes
    lowered: dict[bytes, bytes]  #: by name expression
    log: str


class Totals(NamedTuple):
    """Of all programs of this process, and of its forks."""

    hits: int = 0
    compiled: int = 0
    saved_seconds: float = 0.0
    compile_seconds: float = 0.0


class _Opened:
    """The library, opened once, and the file to which it appends what became of each program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: tuple[ctypes.CDLL, Path] | None = None
        self._was_tried = False

    def find(self, *, opens: bool) -> tuple[ctypes.CDLL, Path] | None:
        """None: it is not open yet, or cannot be, which is logged."""
        with self._lock:
            if opens and not self._was_tried:
                self._was_tried = True
                try:
                    self._found = _open()
                except (_errors.Error, OSError) as error:
                    _logger.warning("programs are compiled without the store: %s", error)
            return self._found

    def after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread may have held the old one


_opened = _Opened()
os.register_at_fork(after_in_child=_opened.after_fork)


def _open() -> tuple[ctypes.CDLL, Path]:
    library = ctypes.CDLL(str(_library.find("libcukiln_nvrtc.so")))
    library.nvrtcCreateProgram.argtypes = (
        POINTER(c_void_p), c_char_p, c_char_p, c_int, _STRINGS, _STRINGS)  # fmt: skip
    library.nvrtcCompileProgram.argtypes = (c_void_p, c_int, _STRINGS)
    library.nvrtcAddNameExpression.argtypes = (c_void_p, c_char_p)
    library.nvrtcGetLoweredName.argtypes = (c_void_p, c_char_p, _STRINGS)
    library.nvrtcDestroyProgram.argtypes = (POINTER(c_void_p),)
    for part in ("CUBIN", "LTOIR", "ProgramLog"):
        getattr(library, f"nvrtcGet{part}Size").argtypes = (c_void_p, POINTER(c_size_t))
        getattr(library, f"nvrtcGet{part}").argtypes = (c_void_p, c_char_p)
    library.cukiln_nvrtc_open_with_report.argtypes = (c_char_p,)
    library.cukiln_nvrtc_open_with_report.restype = None
    # By its path: the process may close descriptors that are not its own.
    file, path = tempfile.mkstemp(prefix="cukiln-programs-")
    os.close(file)
    atexit.register(_remove, Path(path), os.getpid())
    library.cukiln_nvrtc_open_with_report(os.fsencode(path))
    return library, Path(path)


def _remove(report: Path, owner: int) -> None:
    if os.getpid() == owner:
        report.unlink(missing_ok=True)


class _Program:
    """A program until it is destroyed."""

    def __init__(self, library: ctypes.CDLL, text: bytes, name: bytes) -> None:
        self._library = library
        self._handle = c_void_p()
        code = library.nvrtcCreateProgram(byref(self._handle), text, name, 0, None, None)
        if code != 0:
            raise _CallError(code)

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.nvrtcDestroyProgram(byref(self._handle))

    def call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(self._handle, *arguments)
        if code != 0:
            raise _CallError(code)

    def part(self, name: str) -> bytes:
        size = c_size_t()
        self.call(f"nvrtcGet{name}Size", byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{name}", buffer)
        return buffer.raw

    def lowered(self, name: bytes) -> bytes:
        out = c_char_p()
        self.call("nvrtcGetLoweredName", name, byref(out))
        return out.value or b""


class _CallError(Exception):
    """An nvrtcResult that is no success."""


def compile_program(
    text: bytes, name: bytes, options: Sequence[bytes], names: Sequence[bytes], part: str
) -> Result | None:
    """Finds or compiles a program. `part` is CUBIN or LTOIR. None: the project has to compile it,
    if only for its error."""
    opened = _opened.find(opens=True)
    if opened is None or any(b"\0" in one for one in (text, name, *options, *names)):
        return None
    try:
        with _Program(opened[0], text, name) as program:
            for one in names:
                program.call("nvrtcAddNameExpression", one)
            given = (c_char_p * len(options))(*options)
            program.call("nvrtcCompileProgram", len(options), given)
            lowered = {one: program.lowered(one) for one in names}
            log = program.part("ProgramLog").rstrip(b"\0").decode(errors="replace")
            return Result(program.part(part), lowered, log)
    except _CallError:
        return None


def totals() -> Totals:
    opened = _opened.find(opens=False)
    seconds: dict[str, list[float]] = {"hit": [], "compiled": []}
    for what, microseconds in _lines(opened[1]) if opened is not None else ():
        if what in seconds:
            seconds[what].append(microseconds / 1e6)
    found, compiled = seconds["hit"], seconds["compiled"]
    return Totals(len(found), len(compiled), sum(found), sum(compiled))


def _lines(report: Path) -> Iterator[tuple[str, int]]:
    try:
        text = report.read_text(errors="replace")
    except FileNotFoundError:  # of a process that forked this one, and has ended
        return
    for line in text.splitlines():
        what, microseconds, _ = line.split(" ", maxsplit=2)
        yield what, int(microseconds)
