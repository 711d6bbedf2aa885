// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <cukiln/cukiln.h>
#include <cukiln/cukiln.hpp>

namespace cukiln::c {

// From the C structs to the C++ ones and back. Everything is copied.

inline constexpr std::size_t kMaxStructBytes = 4096;  // above it `struct_bytes` was never set

Error wrong_struct_bytes(const char* name, std::size_t given, std::size_t expected);
Error unknown_member(const char* name, std::size_t given, std::size_t expected);

/// The caller's struct in the size that this library knows; see the rule in cukiln.h.
/// Errors: invalid_argument.
template <class Struct>
Result<Struct> read_struct(const Struct& given, const char* name) {
  const std::size_t bytes = given.struct_bytes;
  if (bytes < sizeof bytes || bytes > kMaxStructBytes) {
    return wrong_struct_bytes(name, bytes, sizeof(Struct));
  }
  const char* const raw = reinterpret_cast<const char*>(&given);
  for (std::size_t i = sizeof(Struct); i < bytes; ++i) {
    if (raw[i] != 0) {
      return unknown_member(name, bytes, sizeof(Struct));
    }
  }
  Struct out{};
  std::memcpy(&out, raw, std::min(bytes, sizeof(Struct)));
  out.struct_bytes = sizeof(Struct);
  return out;
}

/// Fills the caller's struct, as much of it as there is. Errors: invalid_argument.
template <class Struct>
Result<void> write_struct(Struct value, Struct& out, const char* name) {
  const std::size_t bytes = out.struct_bytes;
  if (bytes < sizeof bytes || bytes > kMaxStructBytes) {
    return wrong_struct_bytes(name, bytes, sizeof(Struct));
  }
  value.struct_bytes = bytes;
  char* const raw = reinterpret_cast<char*>(&out);
  std::memcpy(raw, &value, std::min(bytes, sizeof(Struct)));
  if (bytes > sizeof(Struct)) {
    std::memset(raw + sizeof(Struct), 0, bytes - sizeof(Struct));
  }
  return {};
}

inline const char* text_or_empty(const char* text) noexcept { return text != nullptr ? text : ""; }

/// Errors: invalid_argument (a null list with a count, a null string), naming `what`.
Result<std::vector<std::string>> read_strings(const char* const* list, std::size_t count,
                                              const char* what);
Result<std::vector<Target>> read_targets(const char* const* list, std::size_t count);
Result<ModuleSpec> read_module(const cukiln_module* module);
Result<CacheKey> read_key(const char* hex);

/// The options' own values over `base`.
Result<void> apply_options(const cukiln_options& options, Settings& base);

/// A report in C's shape. The strings are the report's own or this object's.
class ReportView {
 public:
  explicit ReportView(const ModuleReport& report);
  const cukiln_module_report* get() const noexcept { return &view_; }

 private:
  std::string target_;
  std::string key_;
  std::vector<cukiln_kernel_info> kernels_;
  cukiln_module_report view_{};
};

}  // namespace cukiln::c
