// SPDX-License-Identifier: Apache-2.0
// In the place of SGLang's header of this name, which checks the tensors of a launch: what
// launchers name of it.
#pragma once

#include <dlpack/dlpack.h>
#include <sgl_kernel/utils.h>
#include <tvm/ffi/container/tensor.h>

#include <initializer_list>

namespace sglang::host {

struct SymbolicSize {
  SymbolicSize(const char* name);
  SymbolicSize(int64_t value);
  void set_value(int64_t value);
  int64_t unwrap() const;
};

struct SymbolicDevice {
  template <DLDeviceType... Types>
  void set_options();
  DLDevice unwrap() const;
};

struct TensorMatcher {
  TensorMatcher(std::initializer_list<SymbolicSize> shape);
  TensorMatcher& with_strides(std::initializer_list<SymbolicSize> strides);
  TensorMatcher& with_device(const SymbolicDevice& device);
  template <typename... Types>
  TensorMatcher& with_dtype();
  void verify(tvm::ffi::TensorView tensor);
};

}  // namespace sglang::host
