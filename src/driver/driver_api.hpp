// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <cukiln/result.hpp>

#include "driver/cuda_types.hpp"

namespace cukiln {

/// libcuda, opened at run time: a table of the functions used, and what they say in words.
/// Threads: immutable once opened.
class DriverApi {
 public:
  /// Opens `library`, or `libcuda.so.1` when empty, and calls cuInit. Errors: not_found (no driver,
  /// with what the loader said), incompatible (a function is missing: the driver is too old),
  /// driver.
  static Result<std::shared_ptr<const DriverApi>> open(const std::string& library);
  DriverApi(const DriverApi&) = delete;
  DriverApi& operator=(const DriverApi&) = delete;

  DriverFunctions call{};  ///< the table: api.call.cuLaunchKernelEx(…)
  int version = 0;         ///< cuDriverGetVersion: 13000

  /// `13.0`
  std::string version_text() const;
  /// `CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid`.
  std::string describe(CUresult result) const;
  /// An error of code driver: "`what` failed: `describe(result)`", and what to do where that is
  /// known.
  Error error(std::string_view what, CUresult result) const;

  /// A further function of the same library by its exported name; null: not there.
  void* symbol(const char* name) const noexcept;

 private:
  DriverApi() = default;
  void* handle_ = nullptr;
};

}  // namespace cukiln
