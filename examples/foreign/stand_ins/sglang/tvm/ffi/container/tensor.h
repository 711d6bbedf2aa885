// SPDX-License-Identifier: Apache-2.0
// What SGLang's headers name of tvm-ffi's tensors, declared and not defined.
#pragma once

#include <dlpack/dlpack.h>

namespace tvm::ffi {

class TensorView {
 public:
  void* data_ptr() const;
  DLDevice device() const;
};

}  // namespace tvm::ffi
