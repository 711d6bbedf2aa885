// SPDX-License-Identifier: Apache-2.0
// libFuzzer: translates flags in nvcc's or NVRTC's spelling. Built by scripts/fuzz.
//
// The input has one flag a line. Rules: flags are translated, or rejected with a message that says
// why; translating the result again changes nothing, so every reader takes it for the same.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/key/nvcc_flags.hpp"
#include "fuzz/require.hpp"

using cukiln::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cukiln::ByteView rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> flags;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    flags.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    static_cast<void>(cukiln::shape_of(flags.back()));
  }
  const auto translated = cukiln::translate_flags(flags);
  if (!translated) {
    require(translated.error().code() == cukiln::ErrorCode::invalid_argument,
            "a flag without translation is an invalid argument", translated.error().message());
    return 0;
  }
  const auto again = cukiln::translate_flags(translated->arguments);
  require(bool(again), "translated flags can be translated");
  require(again->arguments == translated->arguments, "and stay as they are");
  require(again->targets.empty() && again->standard.empty() && again->dropped.empty(),
          "targets, standard and dropped flags are not among the arguments");
  for (const std::string& argument : translated->arguments) {
    require(argument.size() > 1 && argument.front() == '-', "an argument is a flag", argument);
  }
  return 0;
}
