// SPDX-License-Identifier: Apache-2.0
#include "addons/link/link_request.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>

#include "support/scratch.hpp"

using namespace cukiln;

namespace {

using Options = std::vector<std::string>;

Options without_frame(Options options) {  // -arch=… and -verbose
  options.erase(options.begin());
  options.pop_back();
  return options;
}

ModuleSpec spec_with(std::vector<std::string> names, std::vector<std::string> flags = {}) {
  ModuleSpec spec;
  spec.sources = {SourceText{"k.cu", "template <class T, int N> __global__ void k(T* p) {}\n"}};
  spec.names = std::move(names);
  spec.flags = std::move(flags);
  return spec;
}

}  // namespace

TEST_CASE("a link has the target, and reports the resources") {
  CHECK(link_options(LinkMode::rdc, {90, 'a'}, {}) == Options{"-arch=sm_90a", "-verbose"});
  CHECK(link_options(LinkMode::lto, {100, 'f'}, {}) ==
        Options{"-arch=sm_100f", "-lto", "-verbose"});
}

TEST_CASE("options of code generation reach the link, in nvJitLink's spelling") {
  const std::pair<const char*, Options> cases[] = {
      {"--generate-line-info", {"-lineinfo"}},
      {"--device-debug", {"-g"}},
      {"--maxrregcount=32", {"-maxrregcount=32"}},
      {"--ptxas-options=-dlcm=ca", {"-Xptxas=-dlcm=ca"}},
      {"--split-compile=4", {"-split-compile=4"}},
      {"--ftz=true", {"-ftz=1"}},
      {"--ftz", {"-ftz=1"}},
      {"--ftz=false", {"-ftz=0"}},
      {"--prec-div=false", {"-prec-div=0"}},
      {"--prec-sqrt=true", {"-prec-sqrt=1"}},
      {"--fmad=false", {"-fma=0"}},
      {"--use_fast_math", {"-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1"}},
      {"--std=c++17", {}},
      {"--define-macro=X=--ftz", {}},
      {"--include-path=/cukiln/inc/0", {}},
  };
  for (const auto& [argument, expected] : cases) {
    CAPTURE(argument);
    CHECK(without_frame(link_options(LinkMode::rdc, {90, 0}, {argument})) == expected);
  }
  CHECK(without_frame(link_options(LinkMode::rdc, {90, 0}, {"--fmad=true", "--fmad=false"})) ==
        Options{"-fma=1", "-fma=0"});
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
  CHECK_FALSE(made(plain, LinkMode::none).request.link);
  CHECK(made(plain, LinkMode::none).digest ==
        make_module_request(plain, {90, 'a'}, {"13.0.88", {}}, {})->digest);
}

TEST_CASE("objects are read") {
  const testing::ScratchFolder scratch;
  ModuleSpec spec = spec_with({});
  spec.objects = {scratch.write("x.ptx", ".version 8.0\n"), scratch.write("lib/x.ptx", "other")};
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
