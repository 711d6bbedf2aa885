// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <cukiln/result.hpp>

#include "core/driver/cuda_types.hpp"

namespace cukiln {

/// libcuda, opened at run time: the table of driver functions, and error messages for their
/// results. Never closed. Threads: immutable once opened.
class DriverApi {
 public:
  /// Opens `library` (`libcuda.so.1` if empty) and calls cuInit. Errors: not_found (no driver, with
  /// the dynamic linker's message), incompatible (a function is missing: the driver is too old),
  /// driver.
  static Result<std::shared_ptr<const DriverApi>> open(const std::string& library);
  DriverApi(const DriverApi&) = delete;
  DriverApi& operator=(const DriverApi&) = delete;

  DriverFunctions call{};  ///< the table: api.call.cuLaunchKernelEx(…)
  int version = 0;         ///< cuDriverGetVersion: 13000

  /// Returns `13.0`.
  std::string version_text() const;
  /// Returns `CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid`.
  std::string describe(CUresult result) const;
  /// Makes an error of code driver, "`what` failed: `describe(result)`", with advice for known
  /// results.
  Error error(std::string_view what, CUresult result) const;

  /// Finds another function of the library by its exported name; null if it is missing.
  void* symbol(const char* name) const noexcept;

 private:
  DriverApi() = default;
  void* handle_ = nullptr;
};

}  // namespace cukiln
