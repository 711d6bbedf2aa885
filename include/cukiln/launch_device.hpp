// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {
inline namespace v0 {
namespace detail {

/// The CUDA device that a launcher was created for.
struct LaunchDevice {
  int ordinal = -1;  ///< as in KernelLoader::devices(); -1: the launcher is empty
  int handle = 0;    ///< CUdevice
  std::uint32_t num_sms = 0;
  unsigned (*current_device)(int* handle) = nullptr;  ///< cuCtxGetDevice
};

}  // namespace detail
}  // namespace v0
}  // namespace cukiln
