# SPDX-License-Identifier: Apache-2.0
"""Kernels: what arrives at the driver when Python values are passed."""

import ctypes
import struct
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import cukiln

SOURCE = 'extern "C" __global__ void scale(float* x, float f, int n) { if (n) x[n] *= f; }'
SPEC = cukiln.ModuleSpec(cukiln.Source("scale.cu", SOURCE))


@pytest.fixture(scope="module")
def store(tmp_path_factory):  # one for all: only the first test compiles
    return tmp_path_factory.mktemp("kernels") / "store"


@pytest.fixture
def loader(home, store):
    with cukiln.Loader(store=store) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_torch_with_gpu():
    yield
    cukiln._kernel._forget_torch()


@pytest.fixture
def scale(loader, cuda):
    cuda.parameters("scale", 8, 4, 4)
    return loader.get(SPEC)


def kernel_with(loader, cuda, *sizes):
    cuda.parameters("scale", *sizes)
    return loader.get(SPEC)


class OnGpu:
    """What CuPy and Numba arrays are to others."""

    def __init__(self, address, stream=None):
        self.__cuda_array_interface__ = {
            "shape": (4,),
            "typestr": "<f4",
            "data": (address, False),
            "version": 3,
            "stream": stream,
        }


class DlTensor(ctypes.Structure):  # DLManagedTensor of dlpack.h
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DlPack:
    def __init__(self, address, byte_offset=0, device=2):
        self.tensor = DlTensor(data=address, device_type=device, byte_offset=byte_offset)
        self.device, self.streams = device, []

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_arguments_arrive_in_the_sizes_of_the_parameters(scale, cuda):
    scale[2, 64](OnGpu(0x7F0000001000), 2.5, -3)
    seen = cuda.last()
    assert seen.arguments == struct.pack("<Qfi", 0x7F0000001000, 2.5, -3)
    assert (seen.kernel, seen.grid, seen.block) == ("scale", (2, 1, 1), (64, 1, 1))
    assert (seen.stream, seen.shared_bytes, seen.cluster) == (0, 0, (0, 0, 0))


def test_a_configuration_arrives_whole(scale, cuda):
    arguments = (None, 1.0, 0)
    scale[(2, 3, 4), (8, 4), 77, 1024](*arguments)
    seen = cuda.last()
    assert (seen.grid, seen.block) == ((2, 3, 4), (8, 4, 1))
    assert (seen.stream, seen.shared_bytes) == (77, 1024)
    assert not seen.balanced
    scale.launch(
        *arguments,
        grid=4,
        block=32,
        cluster=2,
        programmatic_launch=True,
        cooperative=True,
        balance_clusters=True,
    )
    seen = cuda.last()
    assert seen.balanced
    assert (seen.cluster, seen.programmatic, seen.cooperative) == ((2, 1, 1), True, True)
    kept = scale.configure(1, 32, shared_bytes=100 << 10)  # reserves what needs reserving
    kept(*arguments)
    kept(*arguments)
    assert cuda.last().shared_bytes == 100 << 10
    assert cuda.calls("cuKernelSetAttribute") == 1
    assert cuda.launches() == 4


@pytest.mark.parametrize(
    ("size", "value", "expected"),
    [
        (1, True, b"\x01"),
        (2, -1, b"\xff\xff"),
        (4, 2**32 - 1, b"\xff" * 4),
        (8, -(2**63), b"\x00" * 7 + b"\x80"),
        (8, 0.1, struct.pack("<d", 0.1)),
        (4, float("inf"), struct.pack("<f", float("inf"))),
        (2, np.float16(1.5), np.float16(1.5).tobytes()),
        (4, np.float32(0.1), np.float32(0.1).tobytes()),
        (8, np.float64(0.1), struct.pack("<d", 0.1)),
        (8, np.int64(-5), struct.pack("<q", -5)),
        (2, ctypes.c_short(-2), b"\xfe\xff"),
        (12, b"a struct of!", b"a struct of!"),
        (8, None, bytes(8)),
        (8, 0x7F0000001000, struct.pack("<Q", 0x7F0000001000)),  # a pointer, as others hold it
        (8, DlPack(0x1000, byte_offset=0x20), struct.pack("<Q", 0x1020)),
        (8, OnGpu(None), bytes(8)),  # an array of no elements
    ],
)
def test_a_value_becomes_bytes(loader, cuda, size, value, expected):
    kernel_with(loader, cuda, size)[1, 1](value)
    assert cuda.last().arguments == expected


@pytest.mark.parametrize(
    ("size", "value", "says"),
    [
        (4, 2**32, "4294967296 does not fit into 32 bits"),
        (4, -(2**31) - 1, "does not fit"),
        (4, 1e40, "does not fit"),
        (2, 1.5, "float 1.5 for a parameter of 2 bytes"),
        (16, 1, "int 1 for a parameter of 16 bytes"),
        (8, np.float32(1), "4 bytes for a parameter of 8 bytes"),
        (12, b"short", "5 bytes for a parameter of 12 bytes"),
        (4, OnGpu(4096), "pointer, for a parameter of 4 bytes"),
        (8, np.zeros(4), "DLPack's device type 1; expected GPU memory"),
        (8, np.zeros(()), "expected GPU memory"),  # no scalar, though it has no dimensions
        (8, DlPack(0x1000, device=1), "expected GPU memory"),
        (8, "text", "a str; expected a number"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_before_the_launch(loader, cuda, size, value, says):
    kernel = kernel_with(loader, cuda, size)
    with pytest.raises(cukiln.InvalidArgumentError, match="argument 0 of scale: ") as raised:
        kernel[1, 1](value)
    assert says in str(raised.value)
    assert cuda.launches() == 0


def test_a_tensor_in_host_memory_is_refused(scale, cuda):
    import torch

    with pytest.raises(cukiln.InvalidArgumentError, match="a tensor on cpu"):
        scale[1, 1](torch.zeros(4), 1.0, 4)
    assert cuda.launches() == 0


def test_the_number_of_arguments_is_checked(scale, cuda):
    with pytest.raises(cukiln.InvalidArgumentError, match="called with 2 arguments; expected 3"):
        scale[1, 1](None, 1.0)
    assert cuda.launches() == 0


def test_an_old_driver_leaves_the_types_to_the_caller(store):
    from conftest import BINARIES

    with cukiln.Loader(store=store, cuda_library=BINARIES / "libcuda_fake_old.so") as old:
        kernel = old.get(SPEC)
        assert kernel.parameter_bytes == ()
        with pytest.raises(cukiln.InvalidArgumentError, match="this driver does not report"):
            kernel[1, 1](None, 1.0, 3)
        library = ctypes.CDLL(str(BINARIES / "libcuda_fake_old.so"))
        library.fake_cuda_new_context.restype = ctypes.c_void_p
        library.cuCtxPushCurrent_v2.argtypes = (ctypes.c_void_p,)
        library.cuCtxPushCurrent_v2(library.fake_cuda_new_context(0))
        kernel[1, 1](None, np.float32(1), ctypes.c_int(3))


def test_a_producer_orders_its_work_before_the_launch(loader, cuda):
    tensor = DlPack(0x1000)
    kernel = kernel_with(loader, cuda, 8)
    kernel[1, 1](tensor)
    kernel[1, 1, 77](tensor)
    assert tensor.streams == [1, 77]  # 1 stands for the default stream


@pytest.mark.parametrize(
    "stream",
    [
        77,
        SimpleNamespace(cuda_stream=77),  # PyTorch's
        SimpleNamespace(ptr=77),  # CuPy's
        SimpleNamespace(__cuda_stream__=lambda: (0, 77)),
    ],
)
def test_streams_of_others_are_understood(loader, cuda, stream):
    kernel_with(loader, cuda, 8)[1, 1, stream](None)
    assert cuda.last().stream == 77


def test_without_a_stream_pytorchs_current_one_is_taken(loader, cuda, monkeypatch):
    import torch

    class Tensor(torch.Tensor):  # as one on the second GPU looks like
        is_cuda = True
        get_device = lambda self: 1  # noqa: E731
        data_ptr = lambda self: 0x2000  # noqa: E731

    entered = []

    class Device:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            entered.append(self.index)

        def __exit__(self, *_):
            entered.append("left")

    kernel = kernel_with(loader, cuda, 8)
    kernel[1, 1](None)
    assert cuda.last().stream == 0
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(
        torch.cuda,
        "current_stream",
        lambda device: SimpleNamespace(cuda_stream=700 + (device or 0)),
    )
    kernel[1, 1](None)
    assert cuda.last().stream == 700
    assert entered == []
    kernel[1, 1](Tensor())
    assert (cuda.last().stream, cuda.last().arguments) == (701, struct.pack("<Q", 0x2000))
    assert entered == [1, "left"]
    kernel[1, 1, 5](Tensor())
    assert cuda.last().stream == 5
    first = Tensor()
    first.get_device = lambda: 0
    cuda.parameters("two", 8, 8)
    two = loader.get(cukiln.ModuleSpec(cukiln.Source("two.cu", SOURCE.replace("scale", "two"))))
    with pytest.raises(cukiln.InvalidArgumentError, match="tensors on cuda:0 and cuda:1"):
        two[1, 1](first, Tensor())


def test_a_thread_that_pytorch_has_not_used_yet_gets_its_context(scale, cuda, monkeypatch):
    import torch

    def set_device(device):
        assert device == 0
        cuda.library.cuCtxPushCurrent_v2(cuda.library.fake_cuda_new_context(0))

    def work():
        try:
            scale[1, 1](None, 1.0, 1)
        except cukiln.Error as error:
            failed.append(error)

    failed = []
    for given_context in (False, True):
        if given_context:
            monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
            monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
            monkeypatch.setattr(torch.cuda, "set_device", set_device)
            monkeypatch.setattr(
                torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0)
            )
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(failed) == 1 and "INVALID_CONTEXT" in str(failed[0])  # without PyTorch
    assert cuda.launches() == 1


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ((1,), r"expected \[grid, block\]"),
        ((1, 2, 3, 4, 5), r"expected \[grid, block"),
        (((1, 2, 3, 4), 1), "grid is"),
        ((1, 32.0), "block is"),
        ((-1, 32), "grid is"),
        ((1, 1, "stream"), "the stream is a str"),
    ],
)
def test_a_wrong_configuration_is_refused(scale, cuda, config, says):
    with pytest.raises(cukiln.InvalidArgumentError, match=says):
        scale[config]


def test_a_driver_error_is_raised(scale, cuda):
    with pytest.raises(cukiln.DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        scale[1, 2048](None, 1.0, 1)


def test_a_kernels_attributes_are_those_on_one_device(scale, cuda):
    assert scale.attributes(0) == cukiln.KernelAttributes(
        registers=32,
        max_block_threads=1024,
        static_shared_bytes=1024,
        dynamic_shared_bytes=47 << 10,
        constant_bytes=64,
        local_bytes=16,
    )
    scale.reserve_shared(100 << 10)
    assert scale.attributes(0).dynamic_shared_bytes == 100 << 10
    with pytest.raises(cukiln.InvalidArgumentError, match="scale is not loaded on device 1"):
        scale.attributes(1)
    cuda.fail("cuKernelGetAttribute", 700)
    with pytest.raises(cukiln.DriverError, match="reading attribute"):
        scale.attributes(0)


def test_the_blocks_that_fit_on_one_sm_are_counted(scale, cuda):
    assert scale.max_blocks_per_sm(0, 256) == 8
    assert scale.max_blocks_per_sm(0, 32, shared_bytes=100_000) == 2
    assert scale.max_blocks_per_sm(0, 32, 300_000) == 0
    with pytest.raises(cukiln.InvalidArgumentError, match="2000 threads .* expected 1 to 1024"):
        scale.max_blocks_per_sm(0, 2000)
    with pytest.raises(cukiln.InvalidArgumentError, match="not loaded on device 1"):
        scale.max_blocks_per_sm(1, 32)
    cuda.fail("cuOccupancyMaxActiveBlocksPerMultiprocessor", 700)
    with pytest.raises(cukiln.DriverError, match="occupancy of scale"):
        scale.max_blocks_per_sm(0, 32)


def test_a_number_that_ctypes_would_cut_is_refused(scale):
    for call in (
        lambda: scale.attributes(1 << 32),
        lambda: scale.max_blocks_per_sm(-1, 32),
        lambda: scale.max_blocks_per_sm(0, (1 << 32) + 32),
        lambda: scale.max_blocks_per_sm(0, 32, -1),
        lambda: scale.reserve_shared((1 << 32) + 1),
    ):
        with pytest.raises(cukiln.InvalidArgumentError, match="expected"):
            call()


def test_a_kernel_of_a_closed_loader_is_refused(cuda, store):
    cuda.parameters("scale", 8, 4, 4)
    loader = cukiln.Loader(store=store)
    kernel = loader.get(SPEC)
    loader.close()
    for call in (
        lambda: kernel[1, 1](None, 1.0, 1),
        lambda: kernel.attributes(0),
        lambda: kernel.max_blocks_per_sm(0, 32),
        loader.devices,
    ):
        with pytest.raises(cukiln.InvalidArgumentError, match="closed"):
            call()
    assert cuda.launches() == 0


def test_threads_launch_at_once(scale, cuda):
    fake = cuda.library

    def work(value):
        fake.cuCtxPushCurrent_v2(fake.fake_cuda_new_context(0))
        for _ in range(200):
            scale[1, 32](value, 1.0, 1)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cuda.launches() == 800
    assert 1 <= len(scale._free) <= 4  # room for arguments: used again, never by two at once
