// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/result.hpp>

/// libtorch's C interface, found in the libtorch that the host has loaded. The names and what they
/// do: torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h.
namespace cukiln::torch {

struct AtenTensor;   // AtenTensorOpaque
struct LibraryImpl;  // TorchLibraryOpaque
struct GuardImpl;    // CUDAGuardOpaque
using TensorHandle = AtenTensor*;
using LibraryHandle = LibraryImpl*;
using GuardHandle = GuardImpl*;

using StableValue = std::uint64_t;  ///< StableIValue: an argument or a result, by its bytes
using BoxedOp = void (*)(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
using ShimError = std::int32_t;  ///< AOTITorchError: 0 is success

/// The ABI of the values on an op's stack: PyTorch 2.10's, which later ones keep.
inline constexpr std::uint64_t kStackVersion = std::uint64_t{2} << 56 | std::uint64_t{10} << 48;

/// Functions of libtorch_cpu.so, which every PyTorch has.
struct Shim {
  // NOLINTBEGIN(readability-identifier-naming): libtorch's names
  ShimError (*aoti_torch_library_init_fragment)(const char* name, const char* file,
                                                std::uint32_t line, LibraryHandle* out);
  ShimError (*aoti_torch_library_init_impl)(const char* name, const char* key, const char* file,
                                            std::uint32_t line, LibraryHandle* out);
  ShimError (*aoti_torch_library_def)(LibraryHandle library, const char* schema);
  ShimError (*torch_library_impl)(LibraryHandle library, const char* name, BoxedOp op,
                                  std::uint64_t version);
  /// Takes the arguments on the stack over, and leaves the results there.
  ShimError (*torch_call_dispatcher)(const char* name, const char* overload, StableValue* stack,
                                     std::uint64_t version);
  /// Why this thread's last call failed. Null before PyTorch 2.13, which prints it on stderr.
  const char* (*torch_exception_get_what_without_backtrace)();
  ShimError (*aoti_torch_delete_tensor_object)(TensorHandle tensor);
  ShimError (*aoti_torch_new_tensor_handle)(TensorHandle tensor, TensorHandle* out);
  ShimError (*aoti_torch_get_data_ptr)(TensorHandle tensor, void** out);
  ShimError (*aoti_torch_get_dim)(TensorHandle tensor, std::int64_t* out);
  ShimError (*aoti_torch_get_sizes)(TensorHandle tensor, std::int64_t** out);
  ShimError (*aoti_torch_get_strides)(TensorHandle tensor, std::int64_t** out);
  ShimError (*aoti_torch_get_dtype)(TensorHandle tensor, std::int32_t* out);
  ShimError (*aoti_torch_get_device_type)(TensorHandle tensor, std::int32_t* out);
  ShimError (*aoti_torch_get_device_index)(TensorHandle tensor, std::int32_t* out);
  ShimError (*aoti_torch_empty_strided)(std::int64_t dimensions, const std::int64_t* sizes,
                                        const std::int64_t* strides, std::int32_t dtype,
                                        std::int32_t device_type, std::int32_t device_index,
                                        TensorHandle* out);
  /// A tensor of the same memory with other sizes and strides.
  ShimError (*aoti_torch__reinterpret_tensor)(TensorHandle tensor, std::int64_t dimensions,
                                              const std::int64_t* sizes,
                                              const std::int64_t* strides,
                                              std::int64_t further_offset, TensorHandle* out);
  ShimError (*aoti_torch_copy_)(TensorHandle to, TensorHandle from, std::int32_t non_blocking);
  ShimError (*aoti_torch_zero_)(TensorHandle tensor);
  // NOLINTEND(readability-identifier-naming)
  // The numbers of data types and devices.
  std::int32_t bfloat16, float16, float32, uint8, int32, int64, cpu, cuda;
  std::int32_t float64, float8_e4m3fn, int8, int16, boolean;  ///< which no op takes
};

/// Errors: not_found (no libtorch is loaded); incompatible (a function is missing).
Result<Shim> open_shim();

/// Functions of libtorch_cuda.so, which a PyTorch for CPUs lacks.
struct CudaShim {
  ShimError (*aoti_torch_get_current_cuda_stream)(std::int32_t device, void** out);
  ShimError (*aoti_torch_create_cuda_guard)(std::int32_t device, GuardHandle* out);
  ShimError (*aoti_torch_delete_cuda_guard)(GuardHandle guard);
};

/// Errors: not_found; incompatible.
Result<CudaShim> open_cuda_shim();

}  // namespace cukiln::torch
