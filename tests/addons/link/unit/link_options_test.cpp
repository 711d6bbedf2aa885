// SPDX-License-Identifier: Apache-2.0
#include "addons/link/link_options.hpp"

#include <doctest/doctest.h>

using namespace cukiln;

namespace {

using Options = std::vector<std::string>;

Options without_frame(Options options) {  // -arch=… and -verbose
  options.erase(options.begin());
  options.pop_back();
  return options;
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
