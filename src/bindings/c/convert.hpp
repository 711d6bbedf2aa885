// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c/structs.hpp"
#include "core/base/result.hpp"

#include <cukiln/cukiln.h>
#include <cukiln/cukiln.hpp>

namespace cukiln::c {

// From the C structs to the C++ ones and back. Everything is copied.

inline const char* text_or_empty(const char* text) noexcept { return text != nullptr ? text : ""; }

/// Errors: invalid_argument, naming the first argument that is NULL.
Result<void> check_pointers(std::initializer_list<std::pair<const char*, const void*>> arguments);

/// Memory that a C caller frees with cukiln_free. Throws std::bad_alloc.
void* allocate(std::size_t bytes);
/// Copies bytes into such memory; null if there are none.
void return_bytes(const std::optional<std::string>& bytes, void** data, std::size_t* data_bytes);

/// Errors: invalid_argument (a null list with a count, a null string), naming `what`.
Result<std::vector<std::string>> read_strings(const char* const* list, std::size_t count,
                                              const char* what);
Result<std::vector<Target>> read_targets(const char* const* list, std::size_t count);
Result<ModuleSpec> read_module(const cukiln_module* module);

/// Sets the members that C's options set.
Result<void> apply_options(const cukiln_options& from, Settings& to);
Result<void> apply_options(const cukiln_preload_options& from, PreloadOptions& to);
Result<void> apply_options(const cukiln_watch_options& from, WatchOptions& to);

/// A report in C's shape. The strings are the report's own or this object's.
class ReportView {
 public:
  explicit ReportView(const ModuleReport& report);
  const cukiln_module_report* get() const noexcept { return &view_; }

 private:
  std::string target_;
  std::string key_;
  std::vector<cukiln_kernel_info> kernels_;
  std::vector<cukiln_variable_info> variables_;
  std::vector<const char*> dropped_flags_;
  cukiln_module_report view_{};
};

}  // namespace cukiln::c
