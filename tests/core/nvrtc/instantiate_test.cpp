// SPDX-License-Identifier: Apache-2.0
// Name expressions that are made of C++ types, compiled.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/loader_fixture.hpp"

#include <cukiln/instantiate.hpp>

using namespace cukiln;
using namespace cukiln::testing;

namespace device {

template <class T, int N>
struct Policy {};
template <auto V>
struct Constant {};
enum class Layout : short { row = -1, column = 7 };
struct Half {};

}  // namespace device

template <>
struct cukiln::DeviceName<device::Half> {
  static constexpr std::string_view value = "__half";
};

TEST_CASE_FIXTURE(LoaderFixture, "instances of C++ types compile under the names of instantiate") {
  constexpr const char* kText = R"(
#include <cuda_fp16.h>
namespace device {
template <class T, int N> struct Policy { static constexpr int kCount = N; T value; };
template <auto V> struct Constant {};
enum class Layout : short { row = -1, column = 7 };
}
template <class T, int N> __global__ void simple(T* p) { *p = N; }
template <class P, device::Layout L> __global__ void policy(P* p) { p->value = P::kCount + (int)L; }
template <class... T> __global__ void types() {}
template <auto... V> __global__ void values() {}
template <int N, class T> __global__ void mixed(T* p) { *p = N; }
)";
  const std::vector<std::pair<std::string, std::string>> expected = {
      {instantiate<float, 4>("simple"), "_Z6simpleIfLi4EEvPT_"},
      {instantiate<device::Policy<device::Half, 3>, device::Layout::row>("policy"),
       "_Z6policyIN6device6PolicyI6__halfLi3EEELNS0_6LayoutEn1EEvPT_"},
      {instantiate<const float*, float* const, float(&)[4], int (*)(float, const char*), long long,
                   unsigned char, device::Constant<4u>>("types"),
       "_Z5typesIJPKfKPfRA4_fPFifPKcExhN6device8ConstantILj4EEEEEvv"},
      {instantiate<true, 'a', 5u, 6ul, -1, std::int16_t{3}, std::numeric_limits<int>::min(),
                   device::Layout::column>("values"),
       "_Z6valuesIJLb1ELc97ELj5ELm6ELin1ELs3ELin2147483648ELN6device6LayoutE7EEEvv"},
      {instantiate<Value<8>, double>("mixed"), "_Z5mixedILi8EdEvPT0_"},
  };
  ModuleSpec spec;
  spec.sources = {SourceText{"k.cu", kText}};
  spec.targets = {{90, 'a'}};
  for (const auto& [name, lowered] : expected) {
    spec.names.push_back(name);
  }
  const ModuleReport report = only(open()->compile(spec));
  CHECK(report.kernels.size() == expected.size());
  for (const auto& [name, lowered] : expected) {
    CAPTURE(name);
    const auto found = std::find_if(report.kernels.begin(), report.kernels.end(),
                                    [&](const KernelInfo& kernel) { return kernel.name == name; });
    REQUIRE(found != report.kernels.end());
    CHECK(found->lowered == lowered);
  }
}
