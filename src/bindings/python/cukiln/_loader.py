# SPDX-License-Identifier: Apache-2.0
"""Loader: a store, and the kernels that were made ready from it."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p, pointer
from pathlib import Path
from typing import Any, Literal, get_args

from . import _errors, _interrupts, _library, _shipped
from ._kernel import Kernel, stream_pointer
from ._spec import (
    DeviceInfo,
    Event,
    Explanation,
    Global,
    ModuleReport,
    ModuleSpec,
    PreloadPhases,
    PreloadReport,
    Stats,
    listed,
    optional,
)

_logger = logging.getLogger("cukiln")
_logger.addHandler(logging.NullHandler())  # without the host's handlers only `_say` writes
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


_MAX_SECONDS = 4294967  # 32 bits of milliseconds

_creation = threading.local()  # `warnings`: of the loader that this thread creates


def _write_log(_user: int | None, level: int, message: bytes) -> None:
    text = _library.text(message)
    _logger.log(_LEVELS[level], "%s", text)
    if _LEVELS[level] >= logging.WARNING:
        getattr(_creation, "warnings", []).append(text)


_log = _library.LOG_FUNCTION(_write_log)


def _is_heard() -> bool:
    """Whether some handler writes the logger's warnings."""
    logger: logging.Logger | None = _logger
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


_said: set[str] = set()


def _say(warnings: list[str]) -> None:
    """Writes warnings of a loader's creation to stderr, once each, if the host configures no logging."""
    if not _is_heard():
        for line in dict.fromkeys(text for text in warnings if text not in _said):
            print(f"cukiln: {line}", file=sys.stderr)
        _said.update(warnings)


def _event_function(events: Callable[[Event], object] | None) -> Any:
    """A function for C; a null pointer for None."""
    if events is None:
        return _library.EVENT_FUNCTION()

    def call(_user: int | None, event: Any) -> None:
        try:
            events(Event.from_c(event.contents))
        except Exception as error:  # it cannot pass through C
            _logger.warning("the callback of events raised %r", error)

    return _library.EVENT_FUNCTION(call)


def _cuda_wheels() -> tuple[str, ...]:
    """Folders of this Python that hold NVIDIA's wheels."""
    return tuple(folder for folder in sys.path if folder and (Path(folder) / "nvidia").is_dir())


def _destroy(handle: c_void_p, owner: int, _kept: object) -> None:
    if os.getpid() == owner:  # a forked child has no part in its parent's kernels
        _library.library().cukiln_loader_destroy(handle)


def _limit(name: str, limit: int | None, bits: int = 64) -> int:
    """For C, where 0 is the default."""
    if limit is None:
        return 0
    if not 0 < limit < 1 << bits:
        raise _errors.InvalidArgumentError(
            f"{name} is {limit}; expected 1 to 2^{bits} - 1, or None for the default"
        )
    return limit


def _milliseconds(name: str, seconds: float | None) -> int:
    """For C, where 0 is the default."""
    if seconds is None:
        return 0
    if not 0 < seconds <= _MAX_SECONDS:
        raise _errors.InvalidArgumentError(
            f"{name} is {seconds}; expected more than 0 and at most {_MAX_SECONDS} seconds, or None "
            "for the default"
        )
    return max(1, round(seconds * 1000))


DaemonUse = Literal["auto", "off", "require"]
_DAEMON_USES = (None, *get_args(DaemonUse))  # in the order of cukiln_daemon_use


def _daemon_use(daemon: DaemonUse | None) -> int:
    if daemon not in _DAEMON_USES:
        raise _errors.InvalidArgumentError(
            f'daemon is {daemon!r}; expected "auto", "off", "require", or None for the settings'
        )
    return _DAEMON_USES.index(daemon)


class CancelToken:
    """Cancels the calls that it was passed to, before or while they run, from any thread: they
    raise TimeoutError. It stays cancelled."""

    def __init__(self) -> None:
        self._library = _library.library()
        self._cancelled = False
        self._token = self._library.cukiln_cancel_token_create()
        if not self._token:
            raise MemoryError("no memory for a CancelToken")
        self._finalizer = weakref.finalize(
            self, self._library.cukiln_cancel_token_destroy, self._token
        )

    def cancel(self) -> None:
        self._cancelled = True
        self._library.cukiln_cancel_token_cancel(self._token)

    @property
    def cancelled(self) -> bool:
        return self._cancelled


class Watch:
    """Reloads the loader's edited modules in a thread of its own, until `end()`, the end of a
    `with`, or of the loader."""

    def __init__(self, handle: c_void_p) -> None:
        self._finalizer = weakref.finalize(self, _end_watch, handle, os.getpid())

    def end(self) -> None:
        """Ends the thread. Not to be called by the loader's `events`."""
        self._finalizer()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _end_watch(handle: c_void_p, owner: int) -> None:
    if os.getpid() == owner:  # a forked child has no such thread
        _library.library().cukiln_watch_destroy(handle)


def _request(module: ModuleSpec) -> _library.Module:
    if not isinstance(module, ModuleSpec):
        raise _errors.InvalidArgumentError(
            f"{module!r} is a {type(module).__name__}; expected a ModuleSpec"
        )
    return module.to_c()


class Loader:
    """Compiles, caches and loads modules, and finds their kernels.

    Options that are not given come from the environment and the configuration files, as for
    `cukiln` on the command line. Warnings go to the logger `cukiln`; those of an unusable store and
    of settings, once each, to stderr if the host configures no logging.

    `events` is called with an Event in the thread in which it happened (the caller's, one of a
    preload's, or a Watch's), before the call that caused it returns. It may call the loader. What it raises is
    logged. `find` has no events.
    """

    def __init__(
        self,
        *,
        # schema: parameters. Written by src/schema/generate.py
        store: str | os.PathLike[str] | None = None,
        system_store: str | os.PathLike[str] | None = None,
        max_bytes: int | None = None,
        memory_only: bool = False,
        allow_network_file_system: bool = False,
        daemon: DaemonUse | None = None,
        daemon_socket: str | os.PathLike[str] | None = None,
        revoked_keys: Iterable[str | os.PathLike[str]] = (),
        scoped_keys: Iterable[str | os.PathLike[str]] = (),
        nvrtc_library: str | os.PathLike[str] | None = None,
        cuda_library: str | os.PathLike[str] | None = None,
        worker: str | os.PathLike[str] | None = None,
        include_path: Iterable[str | os.PathLike[str]] = (),
        site_packages: Iterable[str | os.PathLike[str]] = (),
        virtual_env: str | os.PathLike[str] | None = None,
        conda_prefix: str | os.PathLike[str] | None = None,
        cuda_home: str | os.PathLike[str] | None = None,
        home: str | os.PathLike[str] | None = None,
        library_path: Iterable[str | os.PathLike[str]] = (),
        offline: bool = False,
        jobs: int | None = None,
        compile_timeout: float | None = None,
        compile_memory_bytes: int | None = None,
        memory_bytes: int | None = None,
        record: str | os.PathLike[str] | None = None,
        nvtx_library: str | os.PathLike[str] | None = None,
        events: Callable[[Event], object] | None = None,
        # end of schema
    ) -> None:
        self._handle: c_void_p | None = None
        self._cancelled = False
        self._watch: Watch | None = None
        self._modules: dict[object, Any] = {}  # what get_cuda_module made, by its arguments
        self._library = _library.library()
        if store is not None and not os.fspath(store):  # of a variable that is not set
            raise _errors.InvalidArgumentError('store is ""; expected a folder, or None')
        called = _event_function(events)
        options = _library.Options(
            from_environment=1,
            # schema: options. Written by src/schema/generate.py
            store_directory=None if store is None else _library.encoded(Path(store).absolute()),
            system_directory=optional("system_store", system_store),
            max_bytes=_limit("max_bytes", max_bytes),
            memory_only=memory_only,
            allow_network_file_system=allow_network_file_system,
            daemon=_daemon_use(daemon),
            daemon_socket=optional("daemon_socket", daemon_socket),
            **listed("revoked_keys", "revoked_key_count", revoked_keys),
            **listed("scoped_keys", "scoped_key_count", scoped_keys),
            nvrtc_library=optional("nvrtc_library", nvrtc_library),
            cuda_library=optional("cuda_library", cuda_library),
            worker=None if worker is None else _library.encoded(Path(worker).absolute()),
            **listed("include_path", "include_path_count", include_path),
            **listed("site_packages", "site_packages_count", site_packages or _cuda_wheels()),
            virtual_env=optional("virtual_env", virtual_env),
            conda_prefix=optional("conda_prefix", conda_prefix),
            cuda_home=optional("cuda_home", cuda_home),
            home=optional("home", home),
            **listed("library_path", "library_path_count", library_path),
            offline=offline,
            jobs=_limit("jobs", jobs, 32),
            compile_timeout_ms=_milliseconds("compile_timeout", compile_timeout),
            compile_memory_bytes=_limit("compile_memory_bytes", compile_memory_bytes),
            memory_bytes=_limit("memory_bytes", memory_bytes),
            record=None if record is None else _library.encoded(Path(record).absolute()),
            nvtx_library=optional("nvtx_library", nvtx_library),
            events=called,
            # end of schema
            log=_log,
        )
        handle = c_void_p()
        _creation.warnings = []
        try:
            _library.check(self._library.cukiln_loader_create(byref(options), byref(handle)))
        finally:
            warnings, _creation.warnings = _creation.warnings, []
        self._handle = handle
        self._store = None if store is None else str(Path(store).absolute())
        _say(warnings)
        # Not __del__: at exit it runs while everything is still there.
        self._finalizer = weakref.finalize(self, _destroy, handle, os.getpid(), called)

    @property
    def handle(self) -> c_void_p:
        """The cukiln_loader*, for other bindings. Errors: InvalidArgumentError, when closed."""
        if self._handle is None:
            raise _errors.InvalidArgumentError("this loader is closed; make another one")
        return self._handle

    def __repr__(self) -> str:
        store = "" if self._store is None else f" store={self._store!r}"
        state = " closed" if self._handle is None else ""
        return f"<cukiln.Loader{store}{state}>"

    def close(self) -> None:
        """Closes the loader and invalidates its kernels. No call of it may be in progress."""
        self._handle = None
        self._modules.clear()
        self._finalizer()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def preload(
        self,
        manifest: str | os.PathLike[str] | Iterable[ModuleSpec] | None = None,
        *,
        modules: Iterable[str] = (),
        targets: Iterable[str] = (),
        devices: Iterable[int] = (),
        load: bool = True,
        keep_going: bool = False,
        capture_guard: object = None,
        progress: Callable[[int, int, ModuleReport], object] | None = None,
        cancel: CancelToken | None = None,
    ) -> PreloadReport:
        """Compiles the modules that are not in the store, in parallel, and loads all of them on the
        chosen devices (default: all).

        `manifest` is a file, a list of modules, or None for the kernels that come with cukiln;
        `modules` selects some by name. `load=False` only compiles and needs no driver. With
        `keep_going` failures are in the report; else the first is raised, after all others are
        done. While the stream `capture_guard` captures, the call is refused with
        InvalidArgumentError, since a load would invalidate the capture; the legacy stream is checked
        always, captures of other streams are not noticed. `progress(done, total, report)` is called
        when a module is done. `cancel` cancels this call; modules that are done stay.
        """
        reports: dict[int, ModuleReport] = {}  # by their place, which is not the order they end in
        raised: list[BaseException] = []

        def report_one(_user: int | None, done: int, total: int, last: Any) -> None:
            try:
                report = ModuleReport.from_c(last.contents)
                reports[last.contents.index] = report
                if progress is not None and not raised:
                    progress(done, total, report)
            except BaseException as error:  # it cannot pass through C
                raised.append(error)

        ordinals = tuple(devices)
        options = _library.PreloadOptions(
            devices=(c_int * len(ordinals))(*ordinals) if ordinals else None,
            device_count=len(ordinals),
            **listed("targets", "target_count", targets),
            no_load=not load,
            keep_going=keep_going,
            capture_guard=None if capture_guard is None else stream_pointer(capture_guard),
            progress=_library.PROGRESS_FUNCTION(report_one),
            **listed("modules", "module_count", modules),
            cancel=None if cancel is None else cancel._token,
        )
        report = _library.PreloadReport()
        if manifest is None:
            code = self._wait_for(
                _shipped.preload(), byref(options), byref(report)
            )
        elif isinstance(manifest, (str, os.PathLike)):
            code = self._wait_for(
                self._library.cukiln_loader_preload,
                _library.encoded(manifest),
                byref(options),
                byref(report),
            )
        else:
            specs = tuple(manifest)
            pointers = (ctypes.POINTER(_library.Module) * len(specs))(
                *(pointer(_request(spec)) for spec in specs)
            )
            code = self._wait_for(
                self._library.cukiln_loader_preload_modules,
                pointers,
                len(specs),
                byref(options),
                byref(report),
            )
        if raised:
            raise raised[0]
        _library.check(code)
        return PreloadReport(
            tuple(reports[index] for index in sorted(reports)),
            report.hits,
            report.compiled,
            report.failed,
            report.milliseconds / 1e3,
            PreloadPhases(
                *(getattr(report, f"{phase}_milliseconds") / 1e3 for phase in PreloadPhases._fields)
            ),
        )

    def compile(
        self, module: ModuleSpec, *, cancel: CancelToken | None = None
    ) -> tuple[ModuleReport, ...]:
        """Finds or compiles a module for each of its targets; loads nothing."""
        return self.preload([module], load=False, cancel=cancel).modules

    def get(
        self, module: ModuleSpec, kernel: str | None = None, *, cancel: CancelToken | None = None
    ) -> Kernel:
        """Returns a kernel of a module, which is compiled and loaded if it is not yet. `kernel` may
        be None if the module has one kernel. `cancel` cancels this call."""
        return Kernel(self, self._get(_request(module), kernel, cancel))

    def _get(
        self, module: _library.Module, kernel: str | None, cancel: CancelToken | None = None
    ) -> int:
        kernel_handle = c_void_p()
        name = None if kernel is None else _library.encoded(kernel)
        token = None if cancel is None else cancel._token
        get = self._library.cukiln_loader_get
        _library.check(self._wait_for(get, byref(module), name, token, byref(kernel_handle)))
        return kernel_handle.value or 0  # never null when it succeeded

    def get_global(self, module: ModuleSpec, name: str, device: int = 0) -> Global:
        """Returns a variable of a module on a device; the module is compiled and loaded if it is
        not yet. `name` is a name expression in any spelling among the module's names, or the symbol
        of a variable that a kernel uses. Errors: NotFoundError (no such variable),
        InvalidArgumentError (not loaded on that device)."""
        return self._get_global(_request(module), name, device)

    def _get_global(self, module: _library.Module, name: str, device: int) -> Global:
        address, size = c_uint64(), c_size_t()
        get = self._library.cukiln_loader_get_global
        _library.check(
            self._wait_for(
                get,
                byref(module),
                _library.encoded(name),
                _library.ordinal(device),
                byref(address),
                byref(size),
            )
        )
        return Global(address.value, size.value)

    def unload(self, key: str) -> None:
        """Unloads the module with a key that a report named from every device, and empties its ids
        and names; other ids do not change. Its Kernel objects must not be used afterwards, and no
        stream or graph may use one. Errors: NotFoundError (no loaded module has this key)."""
        _library.check(self._library.cukiln_loader_unload(self.handle, _library.encoded(key)))
        self._modules = {
            arguments: loaded
            for arguments, loaded in self._modules.items()
            if key not in loaded.keys()  # noqa: SIM118: of modules, not of a dict
        }

    def _wait_for(self, function: Callable[..., int], *arguments: object) -> int:
        """A call that may compile: Ctrl-C ends it, and the loader can be used afterwards."""
        handle = self.handle
        return _interrupts.run(
            lambda: self._library.cukiln_loader_cancel(handle),
            self._resume,
            lambda: function(handle, *arguments),
        )

    def _resume(self) -> None:
        if not self._cancelled and self._handle is not None:
            self._library.cukiln_loader_resume(self._handle)

    def find(self, name: str | int) -> Kernel | None:
        """Finds a loaded kernel by name (`kernel`, `module/kernel`, each also with `@sm_90a`) or by
        id, its index in the preloaded manifests. None if there is none."""
        if isinstance(name, int):
            handle = self._library.cukiln_loader_at(self.handle, name) if name >= 0 else None
        else:
            handle = self._library.cukiln_loader_find(self.handle, _library.encoded(name))
        return Kernel(self, handle) if handle else None

    def __getitem__(self, name: str | int) -> Kernel:
        kernel = self.find(name)
        if kernel is None:
            raise _errors.NotFoundError(
                f"no kernel {name!r} is ready; preload or get its module first"
            )
        return kernel

    def __len__(self) -> int:
        return self._library.cukiln_loader_kernel_count(self.handle)

    def __bool__(self) -> bool:  # an empty loader is still a loader
        return True

    def watch(self, *, after_seal: bool = False) -> Watch:
        """Reloads edited modules, for development: each Kernel runs its new function from its next
        launch on. Each reload is an Event `reload`, and logged. It fails, and the kernels stay, if
        the edit does not compile, if a kernel is gone or has other parameters, if `get_global` gave
        the address of a variable, after `seal()` unless `after_seal`, and after 64 reloads.
        Modules with a text in memory are not watched. The loader keeps the Watch."""
        handle = c_void_p()
        options = _library.WatchOptions(after_seal=after_seal)
        _library.check(
            self._library.cukiln_loader_watch(self.handle, byref(options), byref(handle))
        )
        self._watch = Watch(handle)
        return self._watch

    def seal(self, *, warn: bool = False) -> None:
        """Makes every later compile or load a SealedError, or, with `warn`, logged and counted."""
        self._library.cukiln_loader_seal(self.handle, int(warn))

    @property
    def sealed(self) -> bool:
        return bool(self._library.cukiln_loader_sealed(self.handle))

    def cancel(self) -> None:
        """Makes compiles, those in progress included, raise TimeoutError until `resume()`. Ctrl-C in
        the main thread ends only those in progress, with KeyboardInterrupt."""
        self._cancelled = True
        self._library.cukiln_loader_cancel(self.handle)

    def resume(self) -> None:
        """Ends the effect of `cancel()`."""
        self._cancelled = False
        self._library.cukiln_loader_resume(self.handle)

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Returns the visible devices. The first call opens the driver and fixes the list. Errors:
        DriverError, IncompatibleError."""
        count = c_size_t()
        _library.check(self._library.cukiln_loader_device_count(self.handle, byref(count)))
        return tuple(self._device(ordinal) for ordinal in range(count.value))

    def _device(self, ordinal: int) -> DeviceInfo:
        c = _library.DeviceInfo()
        _library.check(self._library.cukiln_loader_device(self.handle, ordinal, byref(c)))
        return DeviceInfo.from_c(c)

    def explain(self, module: ModuleSpec, target: str) -> Explanation:
        """Explains why a module hits or misses for a target. Compiles nothing."""
        out = ctypes.POINTER(_library.Explanation)()
        code = self._library.cukiln_loader_explain(
            self.handle, byref(_request(module)), _library.encoded(target), byref(out)
        )
        return self._explanation(code, out)

    def explain_keys(self, was: str, now: str) -> Explanation:
        """Compares two entries, given by their keys."""
        out = ctypes.POINTER(_library.Explanation)()
        code = self._library.cukiln_loader_explain_keys(
            self.handle, _library.encoded(was), _library.encoded(now), byref(out)
        )
        return self._explanation(code, out)

    def _explanation(self, code: int, out: Any) -> Explanation:
        _library.check(code)
        try:
            return Explanation.from_c(out.contents)
        finally:
            self._library.cukiln_explanation_destroy(out)

    def cubin(self, key: str) -> bytes:
        """Returns the cubin of a key that a report named."""
        memory, size = c_void_p(), c_size_t()
        _library.check(
            self._library.cukiln_loader_cubin(
                self.handle, _library.encoded(key), byref(memory), byref(size)
            )
        )
        try:
            return ctypes.string_at(memory, size.value)
        finally:
            self._library.cukiln_free(memory)

    def stats(self) -> Stats:
        """Returns the store's entries and bytes, and this loader's counts since its creation."""
        c = _library.Stats()
        _library.check(self._library.cukiln_loader_stats(self.handle, byref(c)))
        return Stats.from_c(c)


_default: Loader | None = None
_default_lock = threading.Lock()


def default_loader() -> Loader:
    """Returns the loader of get_cuda_module and preload_all, created at its first use."""
    global _default
    with _default_lock:
        if _default is None or not _default._finalizer.alive:  # closed, or the process ends
            _default = Loader()
        return _default


def watch(*, after_seal: bool = False) -> Watch:
    """Reloads edited modules of the default loader: see `Loader.watch`."""
    return default_loader().watch(after_seal=after_seal)


def _forget_default() -> None:
    global _default, _default_lock
    _default, _default_lock = None, threading.Lock()  # another thread may have held the old one


os.register_at_fork(after_in_child=_forget_default)
