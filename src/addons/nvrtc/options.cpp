// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/options.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

namespace cukiln::dropin {

namespace {

using std::string_view;

/// NVRTC takes no notice of white space around an option, nor around a value in a word of its own.
string_view without_space_around(string_view text) {
  constexpr string_view kSpace = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);  // npos + 1: 0
}

/// Returns what follows the dashes of an option; nothing if it has none.
string_view name_of_option(string_view option) {
  option = without_space_around(option);
  const std::size_t dashes = std::min(option.find_first_not_of('-'), option.size());
  return dashes == 0 ? string_view() : option.substr(std::min<std::size_t>(dashes, 2));
}

/// For what is not spelt so NVRTC has an error.
bool is_name_of_pch(string_view name) {
  static constexpr string_view kPrefixes[] = {"create-pch=", "use-pch=", "pch-dir="};
  static constexpr string_view kWords[] = {"pch", "pch-verbose=true", "pch-verbose=false",
                                           "pch-messages=true", "pch-messages=false"};
  return std::find(std::begin(kWords), std::end(kWords), name) != std::end(kWords) ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes), [&](string_view prefix) {
           return name.size() > prefix.size() && name.starts_with(prefix);
         });
}

/// True for options whose results are of no use to another process, or that write files: compiles
/// with them stay NVRTC's own.
bool is_bypassed(string_view name) {
  static constexpr string_view kPrefixes[] = {
      "pch",  "create-pch",  "use-pch",      "time", "fdevice-time-trace", "device-time-trace",
      "tile", "enable-tile", "options-file", "optf"};
  return !is_name_of_pch(name) &&
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](string_view prefix) { return name.starts_with(prefix); });
}

/// Sets target and output for the value of --gpu-architecture. Of several the last is the target,
/// and there is a cubin if one of them is real: NVRTC 12.9 and later; 12.8 refuses a second one.
void read_architecture(string_view value, Asked& asked) {
  const auto target = Target::parse(value);
  if (!target || (!value.starts_with("sm_") && !value.starts_with("compute_"))) {
    asked.bypass_reason = "the architecture " + std::string(value);
    return;
  }
  asked.target = *target;
  asked.output = value.starts_with("sm_") ? OutputKind::cubin : asked.output;
}

}  // namespace

bool is_of_precompiled_headers(string_view option) {
  return is_name_of_pch(name_of_option(option));
}

bool uses_absent_precompiled_header(string_view option) {
  constexpr string_view kUse = "use-pch=";
  const string_view name = name_of_option(option);
  std::error_code error;
  return name.starts_with(kUse) && name != kUse &&
         !std::filesystem::exists(name.substr(kUse.size()), error);
}

Asked read_options(const std::vector<std::string>& options,
                   const std::function<int()>& default_capability) {
  Asked asked;
  bool is_lto = false;
  bool is_optix = false;
  int precompiled = 0;  // NVRTC refuses some pairs of these options
  for (std::size_t i = 0; i < options.size(); ++i) {
    const string_view name = name_of_option(options[i]);
    for (const string_view spelling : {"gpu-architecture", "arch"}) {
      if (name.starts_with(spelling) && name.substr(spelling.size()).starts_with("=")) {
        read_architecture(name.substr(spelling.size() + 1), asked);
      } else if (name == spelling && i + 1 < options.size()) {
        read_architecture(without_space_around(options[i + 1]), asked);
      }
    }
    is_lto = is_lto || name == "dlto" || name == "dlink-time-opt";
    is_optix = is_optix || name == "optix-ir";
    precompiled += name == "pch" || name.starts_with("create-pch=") || name.starts_with("use-pch=");
    if ((is_bypassed(name) || precompiled > 1) && asked.bypass_reason.empty()) {
      asked.bypass_reason = "the option " + std::string(without_space_around(options[i]));
    }
  }
  if (asked.target.capability == 0 && asked.bypass_reason.empty()) {
    asked.target.capability = default_capability();
  }
  if (is_optix) {
    asked.output = OutputKind::optix_ir;
  } else if (is_lto) {
    asked.output = OutputKind::lto_ir;
  }
  return asked;
}

}  // namespace cukiln::dropin
