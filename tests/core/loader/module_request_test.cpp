// SPDX-License-Identifier: Apache-2.0
#include "core/loader/module_request.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "support/scratch.hpp"

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

TEST_CASE("a spec that links has a link in its request, by its field or its flags") {
  const Toolchain linker{"13.0", {}};
  const auto made = [&](ModuleSpec spec, LinkMode mode) {
    spec.link = mode;
    auto request = make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {}, nullptr, linker);
    REQUIRE(request);
    return *std::move(request);
  };
  const ModuleSpec plain = spec_with({"k<int, 1>"});
  const auto has = [](const ModuleRequest& request, std::string_view argument) {
    const auto& arguments = request.request.options.arguments;
    return std::find(arguments.begin(), arguments.end(), argument) != arguments.end();
  };
  const ModuleSpec by_flag = spec_with({"k<int, 1>"}, {"-rdc=true"});
  const ModuleSpec by_lto = spec_with({"k<int, 1>"}, {"-dlto"});
  const ModuleRequest rdc = made(plain, LinkMode::rdc);
  REQUIRE(rdc.request.link);
  CHECK(has(rdc, kRdcArgument));
  CHECK_FALSE(has(rdc, kLtoArgument));
  CHECK(rdc.labels.compiler == "nvrtc 13.0.88, nvjitlink 13.0");
  CHECK(made(by_flag, LinkMode::none).digest == rdc.digest);
  const ModuleRequest lto = made(plain, LinkMode::lto);
  CHECK(has(lto, kLtoArgument));
  CHECK(lto.digest != rdc.digest);
  CHECK(made(by_lto, LinkMode::none).digest == lto.digest);
  for (const char* flag : {"-dc", "--device-c", "-rdc=true", "--relocatable-device-code=true"}) {
    CHECK(*link_mode_of(spec_with({}, {flag})) == LinkMode::rdc);
  }
  CHECK(*link_mode_of(spec_with({}, {"-lineinfo", "--dlink-time-opt"})) == LinkMode::lto);
  CHECK(*link_mode_of(spec_with({}, {"-rdc=false"})) == LinkMode::none);
  CHECK(*link_mode_of(spec_with({}, {"-I", "-dc"})) == LinkMode::none);  // a folder
  CHECK(*link_mode_of(plain) == LinkMode::none);
  CHECK_FALSE(made(plain, LinkMode::none).request.link);
  CHECK(made(plain, LinkMode::none).digest == request_of(plain).digest);
}

TEST_CASE("objects are read, and are a mistake in a module that does not link") {
  const testing::ScratchFolder scratch;
  ModuleSpec spec = spec_with({});
  spec.objects = {scratch.write("x.ptx", ".version 8.0\n"), scratch.write("lib/x.ptx", "other")};
  const auto alone = make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {});
  REQUIRE_FALSE(alone);
  CHECK(alone.error().code() == ErrorCode::invalid_argument);
  CHECK(alone.error().message().find("x.ptx and does not link") != std::string::npos);
  spec.link = LinkMode::rdc;
  const auto linked = make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {});
  REQUIRE(linked);
  const std::vector<VirtualSource>& objects = linked->request.link->objects;
  REQUIRE(objects.size() == 2);
  CHECK(objects[0].path == "/cukiln/obj/0/x.ptx");
  CHECK(objects[1].path == "/cukiln/obj/1/x.ptx");
  CHECK(objects[1].text.view() == "other");
  CHECK(linked->files(nullptr)->real_path(objects[1].path) == scratch / "lib/x.ptx");
  spec.objects = {scratch.write("empty.o", "")};
  CHECK(make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {})
            .error()
            .message()
            .find("is empty") != std::string::npos);
  spec.objects = {scratch / "none.o"};
  CHECK(make_module_request(spec, {90, 'a'}, {"13.0.88", {}}, {}).error().code() ==
        ErrorCode::not_found);
}

TEST_CASE("C++03 keeps the closers of its names apart") {
  const ModuleRequest request = request_of(spec_with({"k<A<int> >"}, {"-std=c++03"}));
  CHECK(request.kernel_names == std::vector<std::string>{"k<A<int> >"});
  CHECK(request_of(spec_with({"k<A<int> >"})).kernel_names ==
        std::vector<std::string>{"k<A<int>>"});
}

}  // namespace
}  // namespace cukiln
