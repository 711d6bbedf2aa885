// SPDX-License-Identifier: Apache-2.0
// What is there without CCCL: integers, limits and C's functions.
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

template <class T>
constexpr bool kKnown = std::numeric_limits<T>::is_specialized;
static_assert(kKnown<int> && kKnown<signed char> && kKnown<double> && !kKnown<void*>);
static_assert(std::numeric_limits<std::int64_t>::max() == INT64_MAX);
static_assert(std::numeric_limits<std::int64_t>::digits10 == 18);
static_assert(std::numeric_limits<std::uint64_t>::digits10 == 19);
static_assert(std::numeric_limits<int>::digits10 == 9 && std::numeric_limits<short>::digits10 == 4);
static_assert(std::numeric_limits<unsigned char>::max() == 255);
static_assert(std::numeric_limits<signed char>::min() == -128 && CHAR_BIT == 8);
static_assert(std::numeric_limits<float>::infinity() > FLT_MAX);
static_assert(std::numeric_limits<float>::lowest() == -FLT_MAX);
static_assert(std::numeric_limits<double>::epsilon() == DBL_EPSILON);
static_assert(UINT32_C(3) == 3u && SIZE_MAX == ULLONG_MAX && INT8_C(3) == 3);
static_assert(sizeof(std::intptr_t) == 8 && sizeof(std::max_align_t) >= 16);
static_assert(offsetof(float4, z) == 8);
constexpr std::string_view kName("abc");
static_assert(kName.size() == 3);

extern "C" __global__ void freestanding(float* x, uint8_t n, std::int64_t m) {
  assert(n != 0);
  x[0] = std::sqrt(x[0]) + std::fma(x[0], x[1], 2.f) + std::numeric_limits<float>::quiet_NaN();
  x[1] = std::numeric_limits<double>::infinity() + std::isnan(x[2]) + static_cast<float>(m) + INFINITY;
  std::memcpy(x + 2, x, offsetof(float4, z));
}
