// SPDX-License-Identifier: Apache-2.0
#include "addons/link/link_options.hpp"

#include <string_view>

namespace cukiln {

namespace {

using std::string_view;

/// NVRTC's option, and nvJitLink's for the same.
struct LinkOptionRule {
  string_view given;
  string_view passed;
  enum class Value { none, number, text } value;
};
constexpr LinkOptionRule kLinkOptions[] = {
    {"--generate-line-info", "-lineinfo", LinkOptionRule::Value::none},
    {"--device-debug", "-g", LinkOptionRule::Value::none},
    {"--maxrregcount", "-maxrregcount=", LinkOptionRule::Value::text},
    {"--ptxas-options", "-Xptxas=", LinkOptionRule::Value::text},
    {"--split-compile", "-split-compile=", LinkOptionRule::Value::text},
    {"--ftz", "-ftz=", LinkOptionRule::Value::number},
    {"--prec-div", "-prec-div=", LinkOptionRule::Value::number},
    {"--prec-sqrt", "-prec-sqrt=", LinkOptionRule::Value::number},
    {"--fmad", "-fma=", LinkOptionRule::Value::number},
};
constexpr const char* kFastMath[] = {"-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1"};

}  // namespace

std::vector<std::string> link_options(LinkMode mode, Target target,
                                      const std::vector<std::string>& arguments) {
  std::vector<std::string> options = {"-arch=" + target.name()};
  if (mode == LinkMode::lto) {
    options.emplace_back("-lto");
  }
  for (const string_view argument : arguments) {
    if (argument == "--use_fast_math") {
      options.insert(options.end(), std::begin(kFastMath), std::end(kFastMath));
    }
    const std::size_t equals = argument.find('=');
    const string_view value =
        equals == string_view::npos ? string_view("true") : argument.substr(equals + 1);
    for (const LinkOptionRule& rule : kLinkOptions) {
      if (argument.substr(0, equals) != rule.given) {
        continue;
      }
      std::string option(rule.passed);
      switch (rule.value) {
        case LinkOptionRule::Value::none: break;
        case LinkOptionRule::Value::number: option += value == "true" ? "1" : "0"; break;
        case LinkOptionRule::Value::text: option += value; break;
      }
      options.push_back(std::move(option));
    }
  }
  options.emplace_back("-verbose");  // the resources, in the log
  return options;
}

const char* name_of(LinkMode mode) noexcept {
  switch (mode) {
    case LinkMode::none: return "none";
    case LinkMode::rdc: return "rdc";
    case LinkMode::lto: return "lto";
  }
  return "unknown";
}

}  // namespace cukiln
