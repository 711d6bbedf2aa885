// SPDX-License-Identifier: Apache-2.0
#include "dropin/options.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace cukiln::dropin {

namespace {

using std::string_view;

/// Returns what follows the dashes of an option; nothing if it has none.
string_view name_of_option(string_view option) {
  const std::size_t dashes = std::min(option.find_first_not_of('-'), option.size());
  return dashes == 0 ? string_view() : option.substr(std::min<std::size_t>(dashes, 2));
}

/// True for options whose results are of no use to another process, or that write files: compiles
/// with them stay NVRTC's own.
bool is_direct(string_view name) {
  static constexpr string_view kPrefixes[] = {"pch",  "create-pch",         "use-pch",
                                              "time", "fdevice-time-trace", "device-time-trace",
                                              "tile", "options-file",       "optf"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](string_view prefix) { return name.starts_with(prefix); });
}

/// Sets target and output for the value of --gpu-architecture.
void read_architecture(string_view value, Asked& asked) {
  const auto target = Target::parse(value);
  if (!target || (!value.starts_with("sm_") && !value.starts_with("compute_"))) {
    asked.direct = "the architecture " + std::string(value);
    return;
  }
  asked.target = *target;
  asked.output = value.starts_with("sm_") ? OutputKind::cubin : OutputKind::ptx;
}

}  // namespace

Asked read_options(const std::vector<std::string>& options, int default_capability) {
  Asked asked;
  asked.target.capability = default_capability;
  bool is_lto = false;
  bool is_optix = false;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const string_view name = name_of_option(options[i]);
    for (const string_view spelling : {"gpu-architecture", "arch"}) {
      if (name.starts_with(spelling) && name.substr(spelling.size()).starts_with("=")) {
        read_architecture(name.substr(spelling.size() + 1), asked);
      } else if (name == spelling && i + 1 < options.size()) {
        read_architecture(options[i + 1], asked);
      }
    }
    is_lto = is_lto || name == "dlto" || name == "dlink-time-opt";
    is_optix = is_optix || name == "optix-ir";
    if (is_direct(name) && asked.direct.empty()) {
      asked.direct = "the option " + options[i];
    }
  }
  if (is_optix) {
    asked.output = OutputKind::optix_ir;
  } else if (is_lto) {
    asked.output = OutputKind::lto_ir;
  }
  return asked;
}

}  // namespace cukiln::dropin
