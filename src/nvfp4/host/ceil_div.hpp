// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

namespace cukiln::kernels {

/// a / b, rounded up, of any integers: a >= 0, b > 0.
template <class A, class B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) noexcept {
  const auto whole = static_cast<std::common_type_t<A, B>>(a);
  const auto part = static_cast<std::common_type_t<A, B>>(b);
  return whole / part + (whole % part != 0 ? 1 : 0);
}

}  // namespace cukiln::kernels
