// SPDX-License-Identifier: Apache-2.0
// Uses of most standard headers in device code, with what a program specialises in namespace std.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

struct Pixel {
  float value;
};

namespace std {
template <>
struct numeric_limits<Pixel> {
  static constexpr int digits = 3;
};
template <>
struct hash<Pixel> {
  __device__ size_t operator()(const Pixel& pixel) const { return pixel.value > 0; }
};
template <>
struct tuple_size<Pixel> : integral_constant<size_t, 1> {};
template <>
struct tuple_element<0, Pixel> {
  using type = float;
};
}  // namespace std

template <int i>
__device__ float& get(Pixel& pixel) {
  return pixel.value;
}

enum class Level : std::uint8_t { low = 1 };

constexpr std::string_view kName("abc");
static_assert(kName.size() == 3 && kName.substr(1) == "bc");
static_assert(std::is_same_v<std::common_type_t<int, float>, float>);
static_assert(std::numeric_limits<Pixel>::digits == 3);
static_assert(std::numeric_limits<const int>::max() == INT32_MAX);
static_assert(std::numeric_limits<float>::lowest() < -1e38f);
static_assert(std::tuple_size<std::array<int, 3>>::value == 3);
static_assert(std::tuple_size_v<std::tuple<int, int>> == 2);
static_assert(sizeof(std::chrono::time_point<std::chrono::system_clock, std::chrono::duration<std::int64_t>>) == 8);
static_assert(sizeof(std::size_t) == 8 && sizeof(std::uint16_t) == 2);

__device__ std::tuple<int, float> pair_of(int i) { return {i, 2.f}; }

/// Never instantiated: a host's function in a header for both.
template <class T>
void print(const T& value, const std::map<int, std::mutex>& locks) {
  std::ostringstream text;
  text << "value " << value << std::endl;
  std::vector<std::string> lines(2);
  lines.push_back(text.str() + std::to_string(3));
  for (const std::string& line : lines) {
    std::cout << line << "\n";
  }
  if (lines.empty()) {
    throw std::runtime_error(text.str());
  }
}

extern "C" __global__ void standard(float* x, std::int64_t n, double* d) {
  assert(n > 0);
  auto [whole, half] = pair_of(3);
  Pixel pixel{half};
  auto& [value] = pixel;
  std::array<float, 4> four{1, 2, 3, 4};
  auto [a, b, c, e] = four;
  x[0] = std::sqrt(x[0]) + std::erf(x[1]) + std::fma(x[0], x[1], x[2]) + std::max(x[0], 1.f) + a + b + c + e;
  x[1] = std::pow(x[0], 2) + whole + value + std::abs(std::exp(std::complex<float>(x[0], 1.f)));
  d[0] = std::floor(d[1]) + std::abs(d[2]) + std::fmod(d[1], 2.) + std::round(d[1]) + M_PI;
  x[2] = std::accumulate(four.begin(), four.end(), 0.f) + std::hash<int>{}(3) + std::hash<float>{}(x[0]);
  x[3] = std::hash<Level>{}(Level::low) + std::hash<Pixel>{}(pixel) + std::plus<>{}(1, 2);
  const std::optional<int> maybe = 3;
  const std::variant<int, float> either = 2.f;
  x[4] = *maybe + std::get<1>(either) + std::clamp(x[0], 0.f, 1.f) + std::lround(d[2]);
  std::swap(x[5], x[6]);
  std::memcpy(x + 7, x, sizeof(float));
  for (const int i : {1, 2, 3}) {
    x[8] += i;
  }
  const std::initializer_list<int> list{1, 2};
  const std::byte byte{3};
  const std::ptrdiff_t distance = x - reinterpret_cast<float*>(d);
  x[9] = list.size() + std::to_integer<int>(byte) + distance + (std::isnan(x[10]) ? NAN : INFINITY);
  new (x + 11) float(3);
  int first;
  std::tie(first, x[12]) = pair_of(4);
  std::printf("%d %d\n", whole, first);
}
