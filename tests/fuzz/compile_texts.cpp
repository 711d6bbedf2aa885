// SPDX-License-Identifier: Apache-2.0
// libFuzzer: parses compiler logs, and scans sources for includes. Built by scripts/fuzz.
//
// A kernel's author influences both texts. Rules: the parsed log has no line that the log lacks;
// each kernel has a line; an include's name is on one line of the source.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/compile/compile_log.hpp"
#include "core/compile/include_scanner.hpp"
#include "fuzz/require.hpp"

namespace {

using namespace cukiln;
using cukiln::testing::require;

void try_log(ByteView log) {
  const CompileLog parsed = parse_log(log);
  require(parsed.text.size() <= log.size(), "the text is no longer than the log");
  const auto lines = static_cast<std::size_t>(std::count(log.begin(), log.end(), '\n')) + 1;
  require(parsed.kernels.size() <= lines, "a kernel has a line");
  std::vector<std::string> names{"asked for", "and another"};
  std::vector<std::string> lowered;
  for (const KernelInfo& kernel : parsed.kernels) {
    require(log.find(kernel.lowered) != ByteView::npos, "a kernel's name is in the log");
    lowered.push_back(kernel.lowered);
  }
  require(choose_kernels(parsed.kernels, names, lowered).size() <= names.size(),
          "no more kernels than names");
  const std::string header = missing_header(log);
  require(log.find(header) != ByteView::npos, "a missing header is named in the log", header);
}

void try_text(ByteView text) {
  for (const IncludeName& include : includes_in(text)) {
    require(include.name.data() >= text.data() &&
                include.name.data() + include.name.size() <= text.data() + text.size(),
            "a name lies in the text");
    require(!include.name.empty() && include.name.find('\n') == ByteView::npos,
            "a name lies on one line", include.name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView text(reinterpret_cast<const char*>(data), size);
  try_log(text);
  try_text(text);
  return 0;
}
