// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <type_traits>

/// What the oldest supported compiler and C library, GCC 10 and glibc 2.31, lack.
namespace cukiln {

inline constexpr int kMadvPopulateWrite = 23;  ///< MADV_POPULATE_WRITE, which Linux has since 5.14

/// `std::bit_cast`. `To` must be default-constructible.
template <class To, class From>
[[nodiscard]] To bit_cast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  static_assert(std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace cukiln
