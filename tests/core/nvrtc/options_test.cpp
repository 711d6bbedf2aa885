// SPDX-License-Identifier: Apache-2.0
// The options that an NVRTC knows: every name in its library is asked for.

#include <algorithm>
#include <cctype>
#include <set>

#include "core/compile/nvrtc_api.hpp"
#include "core/compile/nvrtc_library.hpp"
#include "core/key/nvcc_flags.hpp"
#include "support/nvrtc_fixture.hpp"
#include "support/sanitized.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

bool may_be_in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '+';
}

/// Returns what may be the name of an option, `fmad` or `no-cache`: the strings in a library that a
/// zero or an equals sign ends, with one capital letter at most.
std::set<std::string> names_in_library(ByteView bytes) {
  constexpr std::size_t kShortest = 2;
  constexpr std::size_t kLongest = 48;
  std::set<std::string> names;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (may_be_in_name(bytes[i])) {
      continue;
    }
    std::string_view name = bytes.substr(begin, i - begin);
    name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
    if ((bytes[i] == '\0' || bytes[i] == '=') && name.size() >= kShortest &&
        name.size() <= kLongest && std::isalpha(static_cast<unsigned char>(name[0])) != 0 &&
        std::count_if(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; }) <= 1) {
      names.emplace(name);
    }
    begin = i + 1;
  }
  return names;
}

/// True if NVRTC knows an option. No program is compiled: the architecture is none.
bool knows(const NvrtcApi& api, const std::string& option) {
  NvrtcApi::Program program = nullptr;
  REQUIRE(api.create_program(&program, "", "k.cu", 0, nullptr, nullptr) == 0);
  const char* const options[] = {option.c_str(), "-arch=none"};
  api.compile_program(program, 2, options);
  std::size_t size = 0;
  REQUIRE(api.log_size(program, &size) == 0);
  std::string log(size, '\0');
  REQUIRE(api.log(program, log.data()) == 0);
  api.destroy_program(&program);
  return log.find("unrecognized option") == std::string::npos;
}

void check_options_of(const NvrtcSearch& search) {
  const auto install = find_nvrtc(search);
  REQUIRE(install);
  CAPTURE(install->library);
  NvrtcApi api;
  REQUIRE(api.open(install->library, install->builtins) == "");
  const auto library = read_file(install->library, 1 << 30);
  REQUIRE(library);
  int known = 0;
  for (const std::string& name : names_in_library(library->bytes.view())) {
    for (const std::string& option : {"--" + name, "-" + name}) {
      const bool is_known = shape_of(option) != FlagShape::unknown;
      known += is_known ? 1 : 0;
      CAPTURE(option);
      CHECK((is_known || !knows(api, option)));
    }
  }
  CHECK(known > 60);
}

}  // namespace

TEST_CASE("no option that an NVRTC knows is refused as one that it does not have" *
          doctest::skip(kSanitized)) {  // in this process, NVRTC's own leaks would be reported
  check_options_of(real_options().search);
  for (const std::string& root : further_roots()) {
    check_options_of(real_options(root).search);
  }
}
