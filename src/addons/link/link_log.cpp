// SPDX-License-Identifier: Apache-2.0
#include "addons/link/link_log.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace cukiln {

namespace {

using std::string_view;

}  // namespace

CompileLog parse_link_log(ByteView log, const std::vector<KernelInfo>& parts,
                          std::uint32_t reserved_bytes) {
  constexpr string_view kInfo = "info    :";
  constexpr string_view kProgress = "INFO: ";  // of 13.5, about its LTO-IR
  constexpr string_view kProperties = "Function properties for '";
  constexpr string_view kOfToolkit = "__nv_static_";  // kernels of libcudadevrt
  std::string rest;
  std::vector<KernelInfo> linked;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size() - 1) + 1;
    const string_view line = log.substr(0, end);
    log.remove_prefix(end);
    if (line.substr(0, kProgress.size()) == kProgress) {
      continue;
    }
    if (line.substr(0, kInfo.size()) != kInfo) {
      rest += line;
    } else if (const std::size_t at = line.find(kProperties); at != string_view::npos) {
      const string_view name = line.substr(at + kProperties.size());
      linked.emplace_back();
      linked.back().lowered = name.substr(0, name.find('\''));
      linked.back().name = linked.back().lowered;
    } else if (line.find(" registers") != string_view::npos && !linked.empty()) {
      KernelInfo& kernel = linked.back();
      kernel.registers = number_before(line, " registers");
      kernel.local_bytes = number_before(line, " stack");
      kernel.shared_bytes = number_before(line, " bytes smem");
    }
  }
  CompileLog parsed = parse_log(rest);
  const auto named = [](const std::vector<KernelInfo>& kernels, const std::string& lowered) {
    return std::find_if(kernels.begin(), kernels.end(),
                        [&](const KernelInfo& kernel) { return kernel.lowered == lowered; });
  };
  for (KernelInfo& kernel : linked) {
    const auto part = named(parts, kernel.lowered);
    if (named(parsed.kernels, kernel.lowered) != parsed.kernels.end() ||
        kernel.lowered.compare(0, kOfToolkit.size(), kOfToolkit) == 0) {
      continue;
    }
    if (part != parts.end()) {
      kernel.shared_bytes = part->shared_bytes;
      kernel.spill_bytes = part->spill_bytes;
    } else if (kernel.shared_bytes >= reserved_bytes) {
      kernel.shared_bytes -= reserved_bytes;
    }
    parsed.kernels.push_back(std::move(kernel));
  }
  return parsed;
}

}  // namespace cukiln
