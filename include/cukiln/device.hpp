// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cukiln {
inline namespace v0 {

/// A device that is visible to this process (`CUDA_VISIBLE_DEVICES`).
struct DeviceInfo {
  // schema: DeviceInfo. Written by src/schema/generate.py
  int ordinal = 0;
  std::string name;
  int capability = 0;  ///< 90, 100
  std::uint64_t memory_bytes = 0;
  std::uint32_t num_sms = 0;
  // end of schema
};

}  // namespace v0
}  // namespace cukiln
