// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/shim.hpp"

#include <dlfcn.h>

#include "core/base/result.hpp"

namespace cukiln::torch {

namespace {

/// Functions of a library that the host has loaded; it is never loaded here.
class Library {
 public:
  explicit Library(const char* name)
      : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {}
  ~Library() {
    if (handle_ != nullptr) {
      dlclose(handle_);  // releases the reference of RTLD_NOLOAD
    }
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool loaded() const noexcept { return handle_ != nullptr; }

  template <class Function>
  void find_optional(Function& out, const char* symbol) {
    out = reinterpret_cast<Function>(dlsym(handle_, symbol));
  }

  template <class Function>
  void find(Function& out, const char* symbol) {
    find_optional(out, symbol);
    if (out == nullptr && missing_ == nullptr) {
      missing_ = symbol;
    }
  }

  /// Reads the number that a getter without arguments returns.
  void read(std::int32_t& out, const char* symbol) {
    std::int32_t (*get)() = nullptr;
    find(get, symbol);
    out = get != nullptr ? get() : 0;
  }

  Result<void> complete() const {
    if (missing_ != nullptr) {
      return make_error(ErrorCode::incompatible,
                        "{} has no {}: cukiln's ops need PyTorch 2.11 or later", name_, missing_);
    }
    return {};
  }

 private:
  const char* name_;
  void* handle_;
  const char* missing_ = nullptr;
};

}  // namespace

#define CUKILN_FIND(function) library.find(shim.function, #function)

Result<Shim> open_shim() {
  Library library("libtorch_cpu.so");
  if (!library.loaded()) {
    return Error(ErrorCode::not_found,
                 "PyTorch is not loaded in this process; import torch first, then cukiln.torch");
  }
  Shim shim{};
  CUKILN_FIND(aoti_torch_library_init_fragment);
  CUKILN_FIND(aoti_torch_library_init_impl);
  CUKILN_FIND(aoti_torch_library_def);
  CUKILN_FIND(torch_library_impl);
  CUKILN_FIND(torch_call_dispatcher);
  library.find_optional(shim.torch_exception_get_what_without_backtrace,
                        "torch_exception_get_what_without_backtrace");
  CUKILN_FIND(aoti_torch_delete_tensor_object);
  CUKILN_FIND(aoti_torch_new_tensor_handle);
  CUKILN_FIND(aoti_torch_get_data_ptr);
  CUKILN_FIND(aoti_torch_get_dim);
  CUKILN_FIND(aoti_torch_get_sizes);
  CUKILN_FIND(aoti_torch_get_strides);
  CUKILN_FIND(aoti_torch_get_dtype);
  CUKILN_FIND(aoti_torch_get_device_type);
  CUKILN_FIND(aoti_torch_get_device_index);
  CUKILN_FIND(aoti_torch_empty_strided);
  CUKILN_FIND(aoti_torch__reinterpret_tensor);
  CUKILN_FIND(aoti_torch_copy_);
  CUKILN_FIND(aoti_torch_zero_);
  library.read(shim.bfloat16, "aoti_torch_dtype_bfloat16");
  library.read(shim.float16, "aoti_torch_dtype_float16");
  library.read(shim.float32, "aoti_torch_dtype_float32");
  library.read(shim.uint8, "aoti_torch_dtype_uint8");
  library.read(shim.int32, "aoti_torch_dtype_int32");
  library.read(shim.int64, "aoti_torch_dtype_int64");
  library.read(shim.float64, "aoti_torch_dtype_float64");
  library.read(shim.float8_e4m3fn, "aoti_torch_dtype_float8_e4m3fn");
  library.read(shim.int8, "aoti_torch_dtype_int8");
  library.read(shim.int16, "aoti_torch_dtype_int16");
  library.read(shim.boolean, "aoti_torch_dtype_bool");
  library.read(shim.cpu, "aoti_torch_device_type_cpu");
  library.read(shim.cuda, "aoti_torch_device_type_cuda");
  CUKILN_CHECK(library.complete());
  return shim;
}

Result<CudaShim> open_cuda_shim() {
  Library library("libtorch_cuda.so");
  if (!library.loaded()) {
    return Error(ErrorCode::not_found,
                 "this PyTorch was built without CUDA: its ops run on CPU tensors only");
  }
  CudaShim shim{};
  CUKILN_FIND(aoti_torch_get_current_cuda_stream);
  CUKILN_FIND(aoti_torch_create_cuda_guard);
  CUKILN_FIND(aoti_torch_delete_cuda_guard);
  CUKILN_CHECK(library.complete());
  return shim;
}

#undef CUKILN_FIND

}  // namespace cukiln::torch
