# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C during a call of the library.

Python's handler runs between two steps of the main thread: after the library has returned, or in
a callback, from which no exception can pass through C. But the signal's number is written to a
pipe immediately (signal.set_wakeup_fd). A thread reads the pipe and cancels the main thread's call.
"""

from __future__ import annotations

# What `signal` wraps to make enumerators, which costs more than a hit.
import _signal as signal  # type: ignore[import-not-found]
import contextlib
import os
import select
import threading
from collections.abc import Callable


class _Watch:
    """Watches one call of the main thread at a time, with a thread that cancels it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None  # of the watched call
        self._interrupted = False
        self._before = -1  # the wakeup descriptor set before, such as asyncio's
        self._numbers, self._wakeup = os.pipe()
        os.set_blocking(self._numbers, False)
        os.set_blocking(self._wakeup, False)
        threading.Thread(target=self._wait, name="cukiln interrupts", daemon=True).start()

    def _wait(self) -> None:
        while True:
            select.select([self._numbers], [], [])
            with self._lock:
                self._read()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other thread has read it
            numbers = os.read(self._numbers, 1 << 12)
            if self._before >= 0:
                os.write(self._before, numbers)
            if signal.SIGINT in numbers and self._cancel is not None:
                self._interrupted = True
                self._cancel()

    def _note(self, *_: object) -> None:
        self._interrupted = True

    def run(
        self, cancel: Callable[[], None], resume: Callable[[], None], work: Callable[[], int]
    ) -> int:
        if self._cancel is not None:  # in a callback of the watched call
            return work()
        self._interrupted = False
        try:
            self._before = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        except ValueError:  # an interpreter without signals
            return work()
        signal.signal(signal.SIGINT, self._note)
        self._cancel = cancel
        try:
            code = work()
        finally:
            with self._lock:
                if self._interrupted or self._before >= 0:
                    self._read()  # so that the other thread reads nothing in a later call
                self._cancel = None
            signal.set_wakeup_fd(self._before)
            if self._interrupted:
                resume()
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._interrupted:
            raise KeyboardInterrupt
        return code


_watch: _Watch | None = None


def run(cancel: Callable[[], None], resume: Callable[[], None], work: Callable[[], int]) -> int:
    """Returns `work()`. Where Ctrl-C would raise KeyboardInterrupt, it calls `cancel()` from another
    thread, and then `resume()`."""
    global _watch
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        return work()
    if _watch is None:
        _watch = _Watch()
    return _watch.run(cancel, resume, work)


def _forget() -> None:
    global _watch
    _watch = None  # threads do not survive a fork, and the pipe is the parent's


os.register_at_fork(after_in_child=_forget)
