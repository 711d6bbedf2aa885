// SPDX-License-Identifier: Apache-2.0
#include "core/loader/module_request.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/loader/addons.hpp"

namespace cukiln {
namespace {

ModuleSpec spec_with(std::vector<std::string> names, std::vector<std::string> flags = {}) {
  ModuleSpec spec;
  spec.sources = {SourceText{"k.cu", "template <class T, int N> __global__ void k(T* p) {}\n"}};
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

TEST_CASE("the keys of modules do not change within a format") {
  CHECK(request_of(spec_with({"k<float, 4>", "k<int, 8>"})).digest.hex() ==
        "1f4216944ede9e27353bae22e36c1ebe771351b0282186c0589d35ce42de9f81");
  CHECK(request_of(spec_with({"plain", "ns::k<const float*, true>"}, {"-DX=1"})).digest.hex() ==
        "32fbb34cb94c43f6a0db7f2fd63784c98961639476ad58e6f75f04fcc8fbdd3e");
}

TEST_CASE("a module that does not link has no link in its request, and may have no object") {
  CHECK(*link_mode_of(spec_with({}, {"-rdc=false"})) == LinkMode::none);
  CHECK(*link_mode_of(spec_with({}, {"-I", "-dc"})) == LinkMode::none);  // a folder
  CHECK(*link_mode_of(spec_with({})) == LinkMode::none);
  ModuleSpec spec = spec_with({});
  CHECK_FALSE(request_of(spec).request.link);
  spec.objects = {"x.ptx"};
  const auto alone = make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {});
  REQUIRE_FALSE(alone);
  CHECK(alone.error().code() == ErrorCode::invalid_argument);
  CHECK(alone.error().message().find("x.ptx and does not link") != std::string::npos);
}

TEST_CASE("fault 436: where nothing links, a module that is to be linked is not_found") {
  for (const ModuleSpec& spec : {spec_with({}, {"-rdc=true"}), spec_with({}, {"-dlto"})}) {
    const auto mode = link_mode_of(spec);
    CHECK(mode.has_value() == (addons().add_link != nullptr));
    if (!mode) {
      CHECK(mode.error().code() == ErrorCode::not_found);
      CHECK(mode.error().message().find("without src/addons/link") != std::string::npos);
      CHECK_FALSE(make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {}));
    }
  }
}

TEST_CASE("C++03 keeps the closers of its names apart") {
  const ModuleRequest request = request_of(spec_with({"k<A<int> >"}, {"-std=c++03"}));
  CHECK(request.kernel_names == std::vector<std::string>{"k<A<int> >"});
  CHECK(request_of(spec_with({"k<A<int> >"})).kernel_names ==
        std::vector<std::string>{"k<A<int>>"});
}

}  // namespace
}  // namespace cukiln
