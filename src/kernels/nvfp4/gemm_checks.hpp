// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/checks.hpp"

#include <cukiln/device.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4::detail {

/// The first visible device, on which products run. `name`: whose. Errors: incompatible.
inline Result<DeviceInfo> hopper_or_later(KernelLoader& loader, const char* name) {
  constexpr int kLowestCapability = 90;
  CUKILN_TRY(auto devices, loader.devices());
  if (devices.empty() || devices.front().capability < kLowestCapability) {
    return make_error(
        ErrorCode::incompatible, "{} runs on compute capability 9.0 and later; {}", name,
        devices.empty()
            ? "no device is visible"
            : "the first visible device, " + devices.front().name + ", has a lower one");
  }
  return std::move(devices.front());
}

inline Result<void> check_k(std::int64_t k) noexcept {
  return k == 0 || k % 32 != 0
             ? kernels::refuse("k is {}; a positive multiple of 32 is expected", k)
             : Result<void>();
}

inline Result<void> check_matrix(const char* codes_name, const char* scales_name,
                                 const char* gsa_name, const Matrix& matrix) noexcept {
  CUKILN_CHECK(kernels::check_pointer(codes_name, matrix.codes, 16));
  CUKILN_CHECK(kernels::check_pointer(scales_name, matrix.scales, 16));
  return kernels::check_pointer(gsa_name, matrix.gsa, 4);
}

}  // namespace cukiln::nvfp4::detail
