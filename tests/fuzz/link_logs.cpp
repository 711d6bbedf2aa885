// SPDX-License-Identifier: Apache-2.0
// libFuzzer: parses nvJitLink's logs. Built by scripts/fuzz.
//
// A kernel's author influences the text. Rules: the parsed log is no longer than the log, and each
// kernel has a line.

#include <algorithm>
#include <cstdint>

#include "addons/link/link_log.hpp"
#include "fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using cukiln::testing::require;
  const cukiln::ByteView log(reinterpret_cast<const char*>(data), size);
  const cukiln::CompileLog linked = cukiln::parse_link_log(log, {}, 0);
  const auto lines = static_cast<std::size_t>(std::count(log.begin(), log.end(), '\n')) + 1;
  require(linked.kernels.size() <= lines, "a linked kernel has a line");
  require(linked.text.size() <= log.size(), "the text is no longer than the log");
  return 0;
}
