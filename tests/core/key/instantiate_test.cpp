// SPDX-License-Identifier: Apache-2.0
#include <cukiln/instantiate.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

namespace device {

template <class T, int N>
struct Policy {};
template <class T>
struct Box {
  template <class U>
  struct Inner {};
};
template <auto V>
struct Constant {};
template <int... I>
struct Sequence {};
template <class T, class U, int N>
struct Pair {};
template <bool B, class T>
struct Choice {};
enum class Layout : short { row = -1, column = 7 };
enum Plain { zero };
struct Half {};
struct Tensor {};

}  // namespace device

template <>
struct cukiln::DeviceName<device::Half> {
  static constexpr std::string_view value = "__half";
};

namespace cukiln {
namespace {

struct Unreachable {};
enum class UnreachableEnum {};

TEST_CASE("instantiate: types, and values of exactly their type") {
  CHECK(instantiate<>("k") == "k<>");
  CHECK(instantiate<float>("ns::k") == "ns::k<float>");
  CHECK(instantiate<float, 4>("ns::k") == "ns::k<float, 4>");
  CHECK(instantiate<std::uint64_t, std::int8_t, unsigned char, int, 7u>("k") ==
        "k<unsigned long, signed char, unsigned char, int, 7u>");
  CHECK(instantiate<4, true, 'a', 5u, 6ul, 7ll, -1, nullptr>("k") ==
        "k<4, true, (char)97, 5u, 6ul, 7ll, -1, nullptr>");
  CHECK(instantiate<std::int16_t{-3}, std::numeric_limits<int>::min(),
                    std::numeric_limits<std::int64_t>::min()>("k") ==
        "k<(short)-3, (-2147483647-1), (-9223372036854775807l-1)>");
  CHECK(instantiate<device::Layout::row, device::Layout::column, device::zero>("k") ==
        "k<(device::Layout)-1, (device::Layout)7, (device::Plain)0u>");
  CHECK(instantiate<Value<4>, float, Value<device::Layout::column>>("k") ==
        "k<4, float, (device::Layout)7>");
}

TEST_CASE("instantiate: compound types") {
  CHECK(instantiate<const float*, float* const, const volatile int&, int&&>("k") ==
        "k<const float*, float* const, const volatile int&, int&&>");
  CHECK(instantiate<float(&)[4], int (*)(float, const char*), int[3][4], void, int* const*>("k") ==
        "k<float(&)[4], int(*)(float, const char*), int[3][4], void, int* const*>");
}

TEST_CASE("instantiate: classes, nested templates, and their names in device code") {
  CHECK(instantiate<device::Tensor, device::Policy<int, 2>>("k") ==
        "k<device::Tensor, device::Policy<int, 2>>");
  CHECK(instantiate<device::Box<device::Box<device::Half>>, device::Policy<device::Half, 8>,
                    device::Pair<device::Half, const device::Half*, 3>>("k") ==
        "k<device::Box<device::Box<__half>>, device::Policy<__half, 8>, "
        "device::Pair<__half, const __half*, 3>>");
  CHECK(instantiate<device::Constant<4u>, device::Constant<device::Layout::column>,
                    device::Sequence<1, 2, 3>, device::Choice<true, float>>("k") ==
        "k<device::Constant<4u>, device::Constant<(device::Layout)7>, device::Sequence<1, 2, 3>, "
        "device::Choice<true, float>>");
  CHECK(instantiate<device::Box<int>::Inner<device::Half>>("k") ==
        "k<device::Box<int>::Inner<__half>>");
}

TEST_CASE("instantiate: the name of the kernel is in the canonical spelling") {
  CHECK(instantiate<float, int, 3>(" & ns :: k ") == "ns::k<float, int, 3>");
}

// What static_asserts in the header refuse.
TEST_CASE("instantiate: types that device code cannot name are known") {
  struct Local {};
  const auto lambda = [] {};
  CHECK(detail::can_be_named<device::Tensor>());
  CHECK(detail::can_be_named<device::Box<device::Policy<int, 4>>>());
  CHECK(detail::can_be_named<device::Layout>());
  CHECK_FALSE(detail::can_be_named<Unreachable>());
  CHECK_FALSE(detail::can_be_named<UnreachableEnum>());
  CHECK_FALSE(detail::can_be_named<device::Box<Unreachable>>());
  CHECK_FALSE(detail::can_be_named<decltype(lambda)>());
#ifndef __clang__
  CHECK_FALSE(detail::can_be_named<Local>());
#endif
  CHECK(detail::name_of_arithmetic<long double>().empty());
  CHECK(detail::name_of_arithmetic<int device::Policy<int, 1>::*>().empty());
}

}  // namespace
}  // namespace cukiln
