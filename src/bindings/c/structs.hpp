// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include <cukiln/result.hpp>
#include <cukiln/version.hpp>

namespace cukiln::c {

// The rule of <cukiln/cukiln.h> about structs that grow. Inline: both libraries have C functions.

inline Error null_argument(const char* name) {
  return Error(ErrorCode::invalid_argument, std::string(name) + " is NULL; expected a pointer");
}

inline constexpr std::size_t kMaxStructBytes = 4096;  // above it `struct_bytes` was never set

/// True for what `sizeof` of some version of the struct can be: any other size would cut a pointer.
template <class Struct>
bool is_struct_size(std::size_t bytes) {
  return bytes >= sizeof bytes && bytes <= kMaxStructBytes && bytes % alignof(Struct) == 0;
}

inline Error wrong_struct_bytes(const char* name, std::size_t bytes, std::size_t expected) {
  return Error(ErrorCode::invalid_argument, "struct_bytes is " + std::to_string(bytes) +
                                                "; set it to sizeof(" + name + "), which is " +
                                                std::to_string(expected) + " here");
}

inline Error unknown_member(const char* name, std::size_t bytes, std::size_t expected) {
  return Error(ErrorCode::invalid_argument,
               std::string(name) + " has " + std::to_string(bytes) + " bytes and this library (" +
                   version() + ") knows " + std::to_string(expected) +
                   " of them; leave newer members zero, or load a newer library");
}

/// The caller's struct in the size that this library knows; see the rule in cukiln.h.
/// Errors: invalid_argument.
template <class Struct>
Result<Struct> read_struct(const Struct& from, const char* name) {
  const std::size_t bytes = from.struct_bytes;
  if (!is_struct_size<Struct>(bytes)) {
    return wrong_struct_bytes(name, bytes, sizeof(Struct));
  }
  const char* const raw = reinterpret_cast<const char*>(&from);
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
  if (!is_struct_size<Struct>(bytes)) {
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

}  // namespace cukiln::c
