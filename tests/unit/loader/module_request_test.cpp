// SPDX-License-Identifier: Apache-2.0
#include "loader/module_request.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace cukiln {
namespace {

ModuleSpec spec_with(std::vector<std::string> names, std::vector<std::string> flags = {}) {
  ModuleSpec spec;
  spec.sources = {Source::memory("k.cu", "template <class T, int N> __global__ void k(T* p) {}\n")};
  spec.names = std::move(names);
  spec.flags = std::move(flags);
  return spec;
}

ModuleRequest request_of(const ModuleSpec& spec) {
  auto made = make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {});
  REQUIRE(made);
  return *std::move(made);
}

TEST_CASE("a request's key does not depend on how its names are spelt") {
  const ModuleSpec canonical = spec_with({"k<float, 4>", "k<int, 8>"});
  const ModuleRequest expected = request_of(canonical);
  for (const ModuleSpec& other :
       {spec_with({"k<int,8>", "&k<float,4>"}), spec_with({" k < float , 4 >", "& k<int, 8>"}),
        spec_with({"k<int, 8>", "k<float, 4>", "&k<float, 4>", "k<float,4>"})}) {
    const ModuleRequest request = request_of(other);
    CHECK(request.digest == expected.digest);
    CHECK(request.request.options.name_expressions ==
          std::vector<std::string>{"k<float, 4>", "k<int, 8>"});
  }
  CHECK(request_of(spec_with({"k<float, 5>", "k<int, 8>"})).digest != expected.digest);
  // in the order of the request, from which kernels have their ids
  CHECK(request_of(spec_with({"k<int,8>", "&k<float,4>"})).kernel_names ==
        std::vector<std::string>{"k<int, 8>", "k<float, 4>"});
}

// The digests of the requests that 0.2.0 made, by cache/FORMAT.md.
TEST_CASE("keys of modules whose names are in the canonical spelling have not changed") {
  CHECK(request_of(spec_with({"k<float, 4>", "k<int, 8>"})).digest.hex() ==
        "31858f97566674ff0dec7c0cd2ecf04fd90773d828a1a63dd4b0cb948895eacb");
  CHECK(request_of(spec_with({"plain", "ns::k<const float*, true>"}, {"-DX=1"})).digest.hex() ==
        "632a64b445af43bc4171c13ca5584cad2ff3274f7a75981cdda3b848a27c536b");
}

TEST_CASE("C++03 keeps the closers of its names apart") {
  const ModuleRequest request = request_of(spec_with({"k<A<int> >"}, {"-std=c++03"}));
  CHECK(request.kernel_names == std::vector<std::string>{"k<A<int> >"});
  CHECK(request_of(spec_with({"k<A<int> >"})).kernel_names ==
        std::vector<std::string>{"k<A<int>>"});
}

}  // namespace
}  // namespace cukiln
