# SPDX-License-Identifier: Apache-2.0
"""Errors of the library as exceptions, one class a code."""

from __future__ import annotations

import builtins
from typing import ClassVar, Literal

ErrorCode = Literal[
    "invalid_argument",
    "not_found",
    "compile_failed",
    "incompatible",
    "corrupt",
    "io",
    "timeout",
    "sealed",
    "driver",
    "internal",
]


class Error(Exception):
    """What was given, what was expected, what to do. `code` is for programs."""

    code: ClassVar[ErrorCode] = "internal"

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log  #: the compiler's log; empty for other errors


class InvalidArgumentError(Error, ValueError):
    """The caller gave something that cannot work; nothing was changed."""

    code: ClassVar[ErrorCode] = "invalid_argument"


class NotFoundError(Error, LookupError):
    """A file, kernel, entry or library is not there."""

    code: ClassVar[ErrorCode] = "not_found"


class CompileError(Error):
    """The compiler refused the source: `log` is what it printed, and is shown with the message."""

    code: ClassVar[ErrorCode] = "compile_failed"

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n{self.log}" if self.log else message


class IncompatibleError(Error):
    """Versions or architectures do not fit together."""

    code: ClassVar[ErrorCode] = "incompatible"


class CorruptError(Error):
    """Stored bytes are not what was written."""

    code: ClassVar[ErrorCode] = "corrupt"


class IoError(Error, OSError):
    """The operating system refused a read, a write or a lock."""

    code: ClassVar[ErrorCode] = "io"


class TimeoutError(Error, builtins.TimeoutError):
    """A limit in time or memory was reached, or it was cancelled."""

    code: ClassVar[ErrorCode] = "timeout"


class SealedError(Error):
    """A compile or a load was needed after sealing."""

    code: ClassVar[ErrorCode] = "sealed"


class DriverError(Error):
    """The CUDA driver is missing or returned an error."""

    code: ClassVar[ErrorCode] = "driver"


class InternalError(Error):
    """A defect of cukiln, or no memory."""


# In the order of cukiln_code, from 1.
BY_CODE: tuple[type[Error], ...] = (
    InvalidArgumentError,
    NotFoundError,
    CompileError,
    IncompatibleError,
    CorruptError,
    IoError,
    TimeoutError,
    SealedError,
    DriverError,
    InternalError,
)


# What the library's messages name, and what it is in Python.
_IN_PYTHON = (
    ("SealPolicy::warn", "seal(warn=True)"),
    (
        "can be compiled but not loaded",
        "can be compiled but not loaded: preload_all(targets=[…], load=False), and so Loader.preload",
    ),
)


def of(code: int, message: str, log: str = "") -> Error:
    """The exception of a cukiln_code."""
    kind = BY_CODE[code - 1] if 0 < code <= len(BY_CODE) else InternalError
    for words, here in _IN_PYTHON:
        message = message.replace(words, here)
    return kind(message, log=log)
