# SPDX-License-Identifier: Apache-2.0
"""Kernels, and how a Python value becomes an argument of one."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_uint32
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

from . import _errors, _library
from ._spec import KernelAttributes

if TYPE_CHECKING:
    from ._loader import Loader

_Size = int | Sequence[int]  # up to three
_Config = (
    tuple[_Size, _Size] | tuple[_Size, _Size, object] | tuple[_Size, _Size, object, int]
)  # grid, block, stream, shared_bytes

_POINTER_BYTES = 8
_SHARED_WITHOUT_ASKING = 48 << 10

_FLOATS = {4: struct.Struct("<f4x"), 8: struct.Struct("<d")}
_DLPACK_DEVICES = {2: "CUDA", 3: "CUDA host", 13: "CUDA managed"}  # what a kernel can read


class Kernel:
    """A kernel that is ready: `kernel[grid, block](arguments…)`.

    Arguments are typed by the sizes of the kernel's parameters: a Python int is an integer of that
    size and a float a float or double. Objects with a type of their own (ctypes, NumPy's scalars,
    bytes for a struct) must have the size. What holds GPU memory (a torch tensor,
    `__cuda_array_interface__`, DLPack) is passed as its pointer, None as the null pointer. An int
    for a float parameter cannot be noticed: write 2.0.
    """

    __slots__ = ("_free", "_handle", "_launch", "_loader", "name", "parameter_bytes")

    def __init__(self, loader: Loader, handle: int) -> None:
        library = loader._library
        self._loader = loader  # keeps the handle valid
        self._handle = handle
        self._launch = library.cukiln_kernel_launch
        buffer = ctypes.create_string_buffer(library.cukiln_kernel_name(handle, None, 0) + 1)
        library.cukiln_kernel_name(handle, buffer, len(buffer))
        self.name = _library.text(buffer.value)
        count = library.cukiln_kernel_parameter_count(handle)
        #: sizes of the parameters; empty also if the driver does not report them (before CUDA 12.4)
        self.parameter_bytes = tuple(
            library.cukiln_kernel_parameter_bytes(handle, i) for i in range(count)
        )
        self._free: list[_Arguments] = []  # to be used again: a launch has copied what is in them

    def __repr__(self) -> str:
        return f"<cukiln kernel {self.name!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    @property
    def native(self) -> int:
        """The driver's CUkernel."""
        return self._loader._library.cukiln_kernel_native(self._checked())

    def _checked(self) -> int:
        _ = self._loader.handle  # raises when it is closed
        return self._handle

    def _is_without_context(self) -> bool:
        return b"CUDA_ERROR_INVALID_CONTEXT" in self._loader._library.cukiln_last_error()

    def reserve_shared(self, shared_bytes: int) -> None:
        """Raises the limit of dynamic shared memory to `shared_bytes` per block on every device that
        the kernel is loaded on. A launch with more than 48 KiB calls it. Errors: DriverError (the
        device has less), InvalidArgumentError."""
        limit = _uint32("shared_bytes", shared_bytes)
        _library.check(self._loader._library.cukiln_kernel_reserve_shared(self._checked(), limit))

    def attributes(self, ordinal: int) -> KernelAttributes:
        """Returns the resources that the kernel uses on device `ordinal`. Not for the hot path.
        Errors: InvalidArgumentError (not loaded on that device), DriverError."""
        c = _library.KernelAttributes()
        get = self._loader._library.cukiln_kernel_get_attributes
        _library.check(get(self._checked(), _library.ordinal(ordinal), byref(c)))
        return KernelAttributes.from_c(c)

    def max_blocks_per_sm(self, ordinal: int, block_threads: int, shared_bytes: int = 0) -> int:
        """Returns how many blocks of `block_threads` threads with `shared_bytes` of dynamic shared
        memory fit on one SM of device `ordinal` together; 0: not even one. Not for the hot path.
        Errors: InvalidArgumentError (not loaded there; a number of threads that no block has),
        DriverError."""
        blocks = c_uint32()
        code = self._loader._library.cukiln_kernel_max_blocks_per_sm(
            self._checked(),
            _library.ordinal(ordinal),
            _uint32("block_threads", block_threads),
            _uint32("shared_bytes", shared_bytes),
            byref(blocks),
        )
        _library.check(code)
        return blocks.value

    def __call__(self, *_: object) -> NoReturn:
        raise TypeError(
            f"{self.name} is launched with a grid and a block: {self.name}[grid, block](…)"
        )

    def __getitem__(self, config: _Config) -> Launch:
        """`kernel[grid, block]`, `kernel[grid, block, stream, shared_bytes]`."""
        if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
            raise _errors.InvalidArgumentError(
                f"{self.name}[{config!r}]: expected [grid, block], or "
                "[grid, block, stream, shared_bytes]"
            )
        return Launch(self, *config)

    def launch(
        self,
        *arguments: object,
        grid: _Size,
        block: _Size,
        stream: object = None,
        shared_bytes: int = 0,
        cluster: _Size | None = None,
        programmatic_launch: bool = False,
        cooperative: bool = False,
        balance_clusters: bool = False,
    ) -> None:
        """Queues the kernel with this configuration."""
        self.configure(
            grid,
            block,
            stream=stream,
            shared_bytes=shared_bytes,
            cluster=cluster,
            programmatic_launch=programmatic_launch,
            cooperative=cooperative,
            balance_clusters=balance_clusters,
        )(*arguments)

    def configure(
        self,
        grid: _Size,
        block: _Size,
        *,
        stream: object = None,
        shared_bytes: int = 0,
        cluster: _Size | None = None,
        programmatic_launch: bool = False,
        cooperative: bool = False,
        balance_clusters: bool = False,
    ) -> Launch:
        """A launch configuration to keep."""
        return Launch(
            self,
            grid,
            block,
            stream,
            shared_bytes,
            cluster=cluster,
            programmatic_launch=programmatic_launch,
            cooperative=cooperative,
            balance_clusters=balance_clusters,
        )


class Launch:
    """A kernel with a grid and a block. Calling it queues the kernel.

    `stream`: a CUstream as int, a torch or CuPy stream, or any with `__cuda_stream__`; None is
    PyTorch's current stream where PyTorch uses the GPU, else the default stream.
    """

    __slots__ = ("_config", "_kernel", "_pointer", "_stream")

    def __init__(
        self,
        kernel: Kernel,
        grid: _Size,
        block: _Size,
        stream: object = None,
        shared_bytes: int = 0,
        *,
        cluster: _Size | None = None,
        programmatic_launch: bool = False,
        cooperative: bool = False,
        balance_clusters: bool = False,
    ) -> None:
        if shared_bytes > _SHARED_WITHOUT_ASKING:
            kernel.reserve_shared(shared_bytes)
        self._kernel = kernel
        self._stream = None if stream is None else stream_pointer(stream)
        self._config = _library.LaunchConfig(
            grid=_dimensions("grid", grid),
            block=_dimensions("block", block),
            shared_bytes=shared_bytes,
            cluster=_dimensions("cluster", (0, 0, 0) if cluster is None else cluster),
            programmatic_launch=programmatic_launch,
            cooperative=cooperative,
            balance_clusters=balance_clusters,
        )
        self._pointer = ctypes.pointer(self._config)

    def __call__(self, *arguments: object) -> None:
        kernel = self._kernel
        handle = kernel._checked()
        sizes: Sequence[int | None] = kernel.parameter_bytes
        if len(arguments) != len(sizes):
            if sizes:
                raise _errors.InvalidArgumentError(
                    f"{kernel.name} was called with {len(arguments)} arguments; expected "
                    f"{len(sizes)}"
                )
            sizes = (None,) * len(arguments)  # not reported by the driver
        torch = _torch if _torch is not None else _find_torch()
        packers, device = _packers_of(kernel.name, arguments)
        stream = self._stream
        if stream is None:
            stream = 0 if torch is None else torch.stream_of(device)
        parts = []
        try:
            for packer, value, size in zip(packers, arguments, sizes, strict=True):
                parts.append(packer(value, size, stream))
        except _errors.InvalidArgumentError as error:
            raise _errors.InvalidArgumentError(
                f"argument {len(parts)} of {kernel.name}: {error}"
            ) from None
        try:
            passed = kernel._free.pop() if kernel.parameter_bytes else _Arguments(parts)
        except IndexError:  # more concurrent launches than ever before
            passed = _Arguments(parts)
        passed.buffer.raw = b"".join(parts)
        if torch is None:
            code = kernel._launch(handle, stream, self._pointer, passed.pointers)
        else:
            code = torch.launch(device, kernel, stream, self._pointer, passed.pointers)
        if kernel.parameter_bytes:
            kernel._free.append(passed)
        if code:
            _library.check(code)


class _Arguments:
    """Room for the arguments of one launch, and where each of them is."""

    __slots__ = ("buffer", "pointers")

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.buffer = (ctypes.c_char * sum(map(len, parts)))()
        at = ctypes.addressof(self.buffer)
        self.pointers = (ctypes.c_void_p * len(parts))()
        for i, part in enumerate(parts):
            self.pointers[i] = at
            at += len(part)


def _uint32(what: str, number: int) -> int:
    """ctypes would cut off what does not fit."""
    if not 0 <= number < 1 << 32:
        raise _errors.InvalidArgumentError(f"{what} is {number}; expected 0 to 2^32 - 1")
    return number


def _dimensions(what: str, value: object) -> ctypes.Array[c_uint32]:
    try:
        sizes = tuple(map(index, value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        sizes = ()
    if not 1 <= len(sizes) <= 3 or not all(0 <= size < 1 << 32 for size in sizes):
        raise _errors.InvalidArgumentError(
            f"{what} is {value!r}; expected one to three sizes, each an int below 2^32"
        )
    return (c_uint32 * 3)(*sizes)


class _Torch:
    """PyTorch in a process where it uses the GPU."""

    def __init__(self, torch: Any) -> None:
        self.cuda = torch.cuda
        # What torch.compile's own launches ask; the public one makes an object first.
        self.raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def stream_of(self, device: int | None) -> int:
        if device is None:
            device = self.cuda.current_device()
        if self.raw_stream is not None:
            return self.raw_stream(device)
        return self.cuda.current_stream(device).cuda_stream

    def launch(self, device: int | None, kernel: Kernel, stream: int, *rest: object) -> int:
        if device is None or device == self.cuda.current_device():
            code = kernel._launch(kernel._handle, stream, *rest)
            if code and kernel._is_without_context():
                # PyTorch gives a thread its context with the first thing that it does there.
                self.cuda.set_device(self.cuda.current_device())
                code = kernel._launch(kernel._handle, stream, *rest)
            return code
        with self.cuda.device(device):
            return kernel._launch(kernel._handle, stream, *rest)


_torch: _Torch | None = None


def _find_torch() -> _Torch | None:
    global _torch
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # absent while torch is being imported
    if cuda is not None and cuda.is_initialized():
        _torch = _Torch(torch)
    return _torch


def _forget_torch() -> None:
    global _torch
    _torch = None  # a forked child cannot use its parent's GPU


os.register_at_fork(after_in_child=_forget_torch)


def stream_pointer(stream: Any) -> int:
    """A stream as CUstream: of an int, of PyTorch's, CuPy's or CUDA Python's objects."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):  # CUDA Python's protocol: (version, pointer)
        pair = stream.__cuda_stream__
        return int((pair() if callable(pair) else pair)[1])
    for attribute in ("cuda_stream", "ptr"):  # PyTorch's, CuPy's
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise _errors.InvalidArgumentError(
        f"the stream is a {type(stream).__name__}; expected an int, a torch.cuda.Stream or an "
        "object with __cuda_stream__"
    )


# A packer gives one argument as the driver reads it, padded to multiples of 8 bytes, from the
# value, the size of the parameter (None: not reported) and the stream.
_Packer = Callable[[Any, "int | None", int], bytes]

_INTEGERS = {size: (-(1 << 8 * size - 1), 1 << 8 * size) for size in (1, 2, 4, 8)}


def _pack_int(value: int, size: int | None, stream: int) -> bytes:
    limits = _INTEGERS.get(size) if size is not None else None
    if size is None or limits is None:
        raise _errors.InvalidArgumentError(
            f"the int {value} for {_parameter(size)}; expected one of 1, 2, 4 or 8 bytes{_typed}"
        )
    if not limits[0] <= value < limits[1]:
        raise _errors.InvalidArgumentError(f"{value} does not fit into {8 * size} bits")
    return (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")


def _pack_float(value: float, size: int | None, stream: int) -> bytes:
    kind = _FLOATS.get(size)  # type: ignore[arg-type]
    if kind is None:
        raise _errors.InvalidArgumentError(
            f"the float {value} for {_parameter(size)}; expected one of 4 or 8 bytes{_typed}"
        )
    try:
        return kind.pack(value)
    except OverflowError:
        raise _errors.InvalidArgumentError(f"{value} does not fit into a float") from None


_typed = "; else pass a value with a type, as numpy.float16(2) or ctypes.c_int(2)"


def _parameter(size: int | None) -> str:
    return (
        "a parameter whose size this driver does not report"
        if size is None
        else (f"a parameter of {size} bytes")
    )


def _pack_bytes(value: Any, size: int | None, stream: int) -> bytes:
    """A value whose bytes are what the kernel gets."""
    data = bytes(value)
    if size is not None and len(data) != size:
        raise _errors.InvalidArgumentError(
            f"a {type(value).__name__} of {len(data)} bytes for {_parameter(size)}"
        )
    return data + bytes(-len(data) % _POINTER_BYTES)


def _pack_numpy(value: Any, size: int | None, stream: int) -> bytes:
    return _pack_bytes(value.tobytes(), size, stream)


def _pointer(address: int, value: object, size: int | None) -> bytes:
    if size is not None and size != _POINTER_BYTES:
        raise _errors.InvalidArgumentError(
            f"a {type(value).__name__}, which is passed as a pointer, for {_parameter(size)}"
        )
    return address.to_bytes(_POINTER_BYTES, "little")


def _pack_none(value: None, size: int | None, stream: int) -> bytes:
    return _pointer(0, value, size)


def _pack_torch(value: Any, size: int | None, stream: int) -> bytes:
    if not value.is_cuda and not value.is_pinned():
        raise _errors.InvalidArgumentError(
            f"a tensor on {value.device}; expected one on a GPU, or in pinned memory"
        )
    return _pointer(value.data_ptr(), value, size)


def _pack_cuda_array(value: Any, size: int | None, stream: int) -> bytes:
    return _pointer(value.__cuda_array_interface__["data"][0] or 0, value, size)


class _DlTensor(ctypes.Structure):
    """DLTensor of dlpack.h, which DLManagedTensor begins with."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _pack_dlpack(value: Any, size: int | None, stream: int) -> bytes:
    kind = value.__dlpack_device__()[0]
    if kind not in _DLPACK_DEVICES:
        raise _errors.InvalidArgumentError(
            f"a {type(value).__name__} on DLPack's device type {int(kind)}; expected GPU memory"
        )
    # The producer makes `stream` wait for what it queued; 1 stands for the default stream.
    # The capsule is not consumed: it goes with its own memory count when it is dropped here.
    capsule = value.__dlpack__(stream=stream or 1)
    tensor = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    return _pointer((tensor.data or 0) + tensor.byte_offset, value, size)


_packers: dict[type, _Packer] = {
    int: _pack_int,
    bool: _pack_int,
    float: _pack_float,
    type(None): _pack_none,
    bytes: _pack_bytes,
    bytearray: _pack_bytes,
    memoryview: _pack_bytes,
}


def _packers_of(kernel: str, arguments: tuple[Any, ...]) -> tuple[list[_Packer], int | None]:
    """How each is packed, and the GPU of the tensors among them."""
    packers, device = [], None
    for position, value in enumerate(arguments):
        packer = _packers.get(type(value))
        if packer is None:
            try:
                packer = _packers[type(value)] = _find_packer(value)
            except _errors.InvalidArgumentError as error:
                raise _errors.InvalidArgumentError(
                    f"argument {position} of {kernel}: {error}"
                ) from None
        if packer is _pack_torch and value.is_cuda:
            here = value.get_device()
            if device is not None and device != here:
                raise _errors.InvalidArgumentError(
                    f"tensors on cuda:{device} and cuda:{here}; expected one device"
                )
            device = here
        packers.append(packer)
    return packers, device


def _find_packer(value: Any) -> _Packer:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _pack_torch
    if isinstance(value, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array, ctypes.Union)):
        return _pack_bytes
    if hasattr(value, "__cuda_array_interface__"):
        return _pack_cuda_array
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _pack_numpy
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _pack_dlpack
    if isinstance(value, int):  # an enumerator
        return _pack_int
    if isinstance(value, float):
        return _pack_float
    raise _errors.InvalidArgumentError(
        f"a {type(value).__name__}; expected a number, a torch tensor, an object with "
        "__cuda_array_interface__ or __dlpack__, bytes, or None"
    )
