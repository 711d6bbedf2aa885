// SPDX-License-Identifier: Apache-2.0
#include "addons/link/link_request.hpp"

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/key/cubin.hpp"

namespace cukiln {

namespace {

constexpr std::uint64_t kMaxObjectBytes = 256ull << 20;

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

Result<void> add_link(const ModuleSpec& spec, LinkMode mode, const Toolchain& linker,
                      ModuleRequest& out) {
  std::vector<std::string>& arguments = out.request.options.arguments;
  LinkStep& step = out.request.link.emplace();
  step.options = link_options(mode, out.request.target, arguments);
  step.linker = linker;
  arguments.emplace_back(mode == LinkMode::lto ? kLtoArgument : kRdcArgument);
  for (std::size_t i = 0; i < spec.objects.size(); ++i) {
    const std::filesystem::path path = absolute_path(spec.objects[i]);
    CUKILN_TRY(FileContent content, read_file(path.string(), kMaxObjectBytes));
    if (content.bytes.empty()) {
      return make_error(ErrorCode::invalid_argument,
                        "the object {} is empty: expected a cubin, fatbin, host object, library, "
                        "PTX or LTO-IR",
                        spec.objects[i]);
    }
    if (const DeviceCode code = device_code_in(content.bytes); code != DeviceCode::relocatable) {
      return make_error(
          ErrorCode::invalid_argument,
          "the object {} has {}: expected relocatable code, compiled with -rdc=true or -dlto and "
          "not linked",
          spec.objects[i],
          code == DeviceCode::none ? "no device code"
                                   : "executable device code, which cannot be linked again");
    }
    const std::string root = fmt::format("{}/{}", kObjectRoot, i);
    out.roots.push_back({root, {path.parent_path().string()}});
    step.objects.emplace_back(root + "/" + path.filename().string(), std::move(content.bytes));
  }
  return {};
}

}  // namespace cukiln
