# SPDX-License-Identifier: Apache-2.0
"""get_cuda_module: the shape of torch.utils.cpp_extension.load, over a Loader."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _errors, _library, _shipped
from ._kernel import Kernel
from ._loader import CancelToken, Loader, default_loader
from ._spec import ModuleReport, ModuleSpec, PreloadReport, path_of, several


class CudaModule:
    """Kernels of one module: `module.saxpy[grid, block](…)`, `module["axpy<float>"]`. Functions of
    several launches, which some shipped modules have besides, are attributes alone."""

    def __init__(
        self,
        name: str,
        kernels: dict[str, Any],
        reports: tuple[ModuleReport, ...],
        functions: dict[str, Any] | None = None,
    ) -> None:
        self.__name__ = name
        self._kernels = kernels
        self._reports = reports
        self._functions = functions or {}

    def __getattr__(self, name: str) -> Any:
        for members in ("_kernels", "_functions"):
            if name in self.__dict__.get(members, ()):
                return self.__dict__[members][name]
        raise AttributeError(self._unknown(name))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._kernels[name]
        except KeyError:
            kernel = self._kernels.get(_library.canonical_name(name))
            if kernel is not None:
                return kernel
            raise _errors.NotFoundError(self._unknown(name)) from None

    def _unknown(self, name: str) -> str:
        names = ", ".join(self.__dict__.get("_kernels", ())) or "none; a template is compiled only for name expressions (names)"
        return f"module {self.__dict__.get('__name__')} has no kernel {name!r}; it has: {names}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self._kernels, *self._functions]

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{report.target}: {report.outcome}" for report in self._reports)
        return f"<cukiln module {self.__name__!r} ({outcomes}): {', '.join(self._kernels)}>"


class _NotLoaded:
    """A kernel that is compiled and cannot run here: using it says why."""

    def __init__(self, name: str, error: _errors.Error) -> None:
        self.name = name
        self._error = error

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise _errors.DriverError(f"{self.name} is compiled and not loaded: {self._error}")

    __getitem__ = launch = configure = reserve_shared = _fail

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"{self.name} is launched with a grid and a block: {self.name}[grid, block](…); and it "
            f"is compiled and not loaded: {self._error}"
        )

    def __repr__(self) -> str:
        return f"<cukiln kernel {self.name!r}, not loaded>"


_Path = str | os.PathLike[str]


_HOST_CODE = (".c", ".cc", ".cpp", ".cxx")


def _paths(what: str, paths: Sequence[_Path] | _Path | None) -> tuple[str, ...]:
    if paths is None:
        return ()
    several = (paths,) if isinstance(paths, (str, os.PathLike)) else paths
    return tuple(path_of(what, path) for path in several)


class _Loaded:
    """A module as it was loaded, and how to notice that it is another one now."""

    def __init__(self, module: CudaModule, request: Any = None, first: Kernel | None = None):
        self.module = module
        self._request = request  # the ModuleSpec in C; None: text that cannot change
        self._first = first  # one of its kernels; None: nothing is loaded

    def keys(self) -> tuple[str, ...]:
        return tuple(report.key for report in self.module._reports)

    def is_current(self, owner: Loader) -> bool:
        if self._first is None:
            return False
        if self._request is None:
            return True
        try:
            handle = owner._get(self._request, self._first.name)
        except _errors.NotFoundError:  # a kernel or a file has gone: loading says which
            return False
        return handle == self._first._handle

    @staticmethod
    def make(
        owner: Loader,
        name: str,
        sources: tuple[str, ...],
        flags: tuple[str, ...],
        include: tuple[str, ...],
        names: tuple[str, ...],
        targets: tuple[str, ...],
    ) -> _Loaded:
        for source in sources:
            if source.endswith(_HOST_CODE):
                raise _errors.InvalidArgumentError(
                    f"{source} is host code; expected .cu files alone: kernels are launched from "
                    "Python, without a binding in C++"
                )
        shipped = all(map(_shipped.has, sources))
        if shipped and not any(Path(source).exists() for source in sources):
            module = Path(sources[0]).stem if sources else name
            arguments: dict[str, Any] = {"modules": [module], "targets": targets}
            request = None
        else:
            spec = ModuleSpec(
                sources, name=name, include=include, flags=flags, names=names, targets=targets
            )
            request = spec.to_c()
            arguments = {"manifest": [spec]}
        try:
            reports = owner.preload(**arguments).modules
            missing = None
        except (_errors.DriverError, _errors.NotFoundError) as error:
            if _has_gpu(owner):
                raise
            reports = owner.preload(**arguments, load=False).modules
            missing = error
        kernels: dict[str, Any] = {}
        for kernel in dict.fromkeys(kernel.name for report in reports for kernel in report.kernels):
            if missing is not None:
                kernels[kernel] = _NotLoaded(kernel, missing)
            elif request is None:
                kernels[kernel] = owner[f"{module}/{kernel}"]
            else:
                kernels[kernel] = Kernel(owner, owner._get(request, kernel))
        first = None if missing is not None else next(iter(kernels.values()), None)
        functions: dict[str, Any] = {}
        if shipped:
            stems = [Path(source).stem for source in sources] or [name]
            functions = _shipped.add_operators(kernels, stems)
        return _Loaded(CudaModule(name, kernels, reports, functions), request, first)


def _has_gpu(owner: Loader) -> bool:
    try:
        owner.devices()
    except (_errors.DriverError, _errors.NotFoundError):
        return False
    return True


def get_cuda_module(
    name: str,
    sources: _Path | Sequence[_Path] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    *,
    extra_include_paths: Sequence[_Path] | _Path | None = None,
    names: Sequence[str] = (),
    targets: Sequence[str] = (),
    loader: Loader | None = None,
    verbose: bool = False,
    extra_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    build_directory: _Path | None = None,
    with_cuda: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> CudaModule:
    """Compiles, or finds, the sources as one module and loads it: in the shape of
    torch.utils.cpp_extension.load, for `.cu` files whose kernels are `extern "C"` or asked for in
    `names`.

    A second call with the same arguments is cheap, and notices an edited file or header. Without
    sources `name` is a module that comes with cukiln; its functions take and return tensors. Where
    there is no GPU the module is compiled, and its kernels say so when they are launched.

    What has no meaning without a host compiler is taken and has no effect: `extra_cflags`,
    `extra_ldflags`, `build_directory` (the store is elsewhere), `with_cuda`, `keep_intermediates`.
    """
    if not is_python_module or is_standalone:
        raise _errors.InvalidArgumentError(
            "is_python_module=False and is_standalone=True ask for a library on disk; there is "
            "none: kernels are cubins in the store"
        )
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; expected a str, the module's")
    owner = loader if loader is not None else default_loader()
    paths = _paths("sources", sources)
    if sources is not None and not paths:
        raise _errors.InvalidArgumentError(
            f"module {name} has no sources; expected .cu files, or None for a module that comes "
            "with cukiln"
        )
    key = (
        name,
        paths,
        several("extra_cuda_cflags", extra_cuda_cflags or ()),
        _paths("extra_include_paths", extra_include_paths),
        several("names", names),
        several("targets", targets),
    )
    loaded = owner._modules.get(key)
    if loaded is None or not loaded.is_current(owner):
        loaded = owner._modules[key] = _Loaded.make(owner, *key)
    if verbose:
        print(loaded.module, *(report.log for report in loaded.module._reports), file=sys.stderr)
    return loaded.module


def preload_all(
    *,
    loader: Loader | None = None,
    modules: Iterable[str] = (),
    targets: Iterable[str] = (),
    devices: Iterable[int] = (),
    load: bool = True,
    keep_going: bool = False,
    capture_guard: object = None,
    progress: Callable[[int, int, ModuleReport], object] | None = None,
    cancel: CancelToken | None = None,
) -> PreloadReport:
    """Makes every kernel that comes with cukiln ready, as Loader.preload does."""
    return (loader if loader is not None else default_loader()).preload(
        modules=modules,
        targets=targets,
        devices=devices,
        load=load,
        keep_going=keep_going,
        capture_guard=capture_guard,
        progress=progress,
        cancel=cancel,
    )
