// SPDX-License-Identifier: Apache-2.0
#include "key/nvcc_flags.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>

#include "base/nearest.hpp"
#include "base/result.hpp"

namespace cukiln {

namespace {

enum class Action {
  keep,           // an option of NVRTC
  drop,           // host-only, or NVRTC's default
  drop_reported,  // as drop, or something cukiln does itself; reported to the user once
  target,         // -arch=…
  gencode,        // -gencode=arch=…,code=…
  include,        // -I
  system,         // -isystem: searched after every -I, as with nvcc
  standard,       // -std
  refuse_files,   // an option of NVRTC that writes files, which a hit would not
  refuse_image,   // an option of NVRTC that gives no cubin
};

enum class Value { none, required, optional };  // optional: only after "=" (--fmad, --fmad=false)

// A value joined to the option without "=" or a space: -Ifolder, -t4.
enum class Joined { none, text, digits };

struct Rule {
  std::string_view canonical;                 // as passed to NVRTC
  std::array<std::string_view, 3> spellings;  // accepted besides the canonical one
  Action action;
  Value value;
  Joined joined = Joined::none;
};

using enum Action;
constexpr Value kNone = Value::none;
constexpr Value kRequired = Value::required;
constexpr Value kOptional = Value::optional;

constexpr Rule kRules[] = {
    {"--gpu-architecture", {"-arch", "--gpu-code", "-code"}, target, kRequired},
    {"--generate-code", {"-gencode"}, gencode, kRequired},
    {"--include-path", {"-I"}, include, kRequired, Joined::text},
    {"--system-include", {"-isystem"}, system, kRequired},
    {"--std", {"-std"}, standard, kRequired},
    {"--define-macro", {"-D"}, keep, kRequired, Joined::text},
    {"--undefine-macro", {"-U"}, keep, kRequired, Joined::text},
    {"--pre-include", {"-include"}, keep, kRequired},
    {"--no-source-include", {"-no-source-include"}, keep, kNone},
    {"--use_fast_math", {"-use_fast_math"}, keep, kNone},
    {"--generate-line-info", {"-lineinfo"}, keep, kNone},
    {"--device-debug", {"-G"}, keep, kNone},
    {"--extensible-whole-program", {"-ewp"}, keep, kNone},
    {"--dopt", {"-dopt"}, keep, kOptional},
    {"--Ofast-compile", {"-Ofc"}, keep, kRequired},
    {"--maxrregcount", {"-maxrregcount"}, keep, kRequired},
    {"--ptxas-options", {"-Xptxas"}, keep, kRequired},
    {"--ftz", {"-ftz"}, keep, kOptional},
    {"--prec-sqrt", {"-prec-sqrt"}, keep, kOptional},
    {"--prec-div", {"-prec-div"}, keep, kOptional},
    {"--fmad", {"-fmad"}, keep, kOptional},
    {"--extra-device-vectorization", {"-extra-device-vectorization"}, keep, kNone},
    {"--modify-stack-limit", {"-modify-stack-limit"}, keep, kOptional},
    {"--restrict", {"-restrict"}, keep, kNone},
    {"--device-as-default-execution-space", {"-default-device"}, keep, kNone},
    {"--device-int128", {"-device-int128"}, keep, kNone},
    {"--device-float128", {"-device-float128"}, keep, kNone},
    {"--device-stack-protector", {"-device-stack-protector"}, keep, kOptional},
    {"--jump-table-density", {"-jtd"}, keep, kRequired},
    {"--frandom-seed", {"-frandom-seed"}, keep, kRequired},
    {"--split-compile", {"-split-compile"}, keep, kRequired},
    {"--builtin-move-forward", {"-builtin-move-forward"}, keep, kOptional},
    {"--builtin-initializer-list", {"-builtin-initializer-list"}, keep, kOptional},
    {"--disable-warnings", {"-w"}, keep, kNone},
    {"--Werror", {"-Werror"}, keep, kOptional},
    {"--diag-error", {"-diag-error"}, keep, kRequired},
    {"--diag-suppress", {"-diag-suppress"}, keep, kRequired},
    {"--diag-warn", {"-diag-warn"}, keep, kRequired},
    {"--brief-diagnostics", {"-brief-diag"}, keep, kOptional},
    {"--display-error-number", {"-err-no"}, keep, kNone},
    {"--no-display-error-number", {"-no-err-no"}, keep, kNone},
    {"--optimization-info", {"-opt-info"}, keep, kRequired},
    {"--version-ident", {"-dQ"}, keep, kOptional},
    {"--minimal", {"-minimal"}, keep, kNone},

    {"--optimize", {"-O"}, drop, kRequired},
    {"-O3", {"-O2", "-O1", "-O0"}, drop, kNone},
    {"--expt-relaxed-constexpr", {"-expt-relaxed-constexpr"}, drop, kNone},
    {"--extended-lambda", {"-extended-lambda", "--expt-extended-lambda"}, drop, kNone},
    {"--threads", {}, drop, kRequired},
    {"--compiler-options", {"-Xcompiler"}, drop, kRequired},
    {"--linker-options", {"-Xlinker"}, drop, kRequired},
    {"--compiler-bindir", {"-ccbin"}, drop, kRequired},
    {"--verbose", {"-v"}, drop, kNone},
    {"--debug", {"-g"}, drop, kNone},
    {"--machine", {"-m64"}, drop, kOptional},
    {"--resource-usage", {"-res-usage"}, drop, kNone},

    {"--pch", {"-pch"}, drop_reported, kNone},
    {"--create-pch", {"-create-pch"}, drop_reported, kRequired},
    {"--use-pch", {"-use-pch"}, drop_reported, kRequired},
    {"--pch-dir", {"-pch-dir"}, drop_reported, kRequired},
    {"--pch-verbose", {"-pch-verbose"}, drop_reported, kOptional},
    {"--pch-messages", {"-pch-messages"}, drop_reported, kOptional},
    {"--instantiate-templates-in-pch", {"-instantiate-templates-in-pch"}, drop_reported, kOptional},
    {"--time", {"-time"}, drop_reported, kRequired},
    {"--no-cache", {"-no-cache"}, drop_reported, kNone},
    {"--compile", {"-c"}, drop_reported, kNone},
    {"--cubin", {"-cubin"}, drop_reported, kNone},
    {"--threads", {"-t"}, drop_reported, kRequired, Joined::digits},
    {"--x", {"-x"}, drop_reported, kRequired},
    {"--keep", {"-keep"}, drop_reported, kNone},
    {"--keep-dir", {"-keep-dir"}, drop_reported, kRequired},
    {"--save-temps", {"-save-temps"}, drop_reported, kNone},
    {"--cudart", {"-cudart"}, drop_reported, kRequired},
    {"--default-stream", {"-default-stream"}, drop_reported, kRequired},
    {"--allow-unsupported-compiler", {"-allow-unsupported-compiler"}, drop_reported, kNone},
    {"--forward-unknown-to-host-compiler",
     {"-forward-unknown-to-host-compiler", "--forward-unknown-opts", "-forward-unknown-opts"},
     drop_reported,
     kNone},
    {"-fPIC", {"-fpic"}, drop_reported, kNone},
    {"-W", {"-W"}, drop_reported, kOptional, Joined::text},

    {"--fdevice-time-trace", {"-fdevice-time-trace"}, refuse_files, kRequired},
    {"--dlink-time-opt", {"-dlto"}, refuse_image, kNone},
    {"--gen-opt-lto", {"-gen-opt-lto"}, refuse_image, kNone},
    {"--optix-ir", {"-optix-ir"}, refuse_image, kNone},
    {"--fdevice-syntax-only", {"-fdevice-syntax-only"}, refuse_image, kNone},
    {"--device-c", {"-dc"}, refuse_image, kNone},
    {"--relocatable-device-code", {"-rdc"}, refuse_image, kOptional},
};

constexpr std::string_view kDefine = "--define-macro";
constexpr std::string_view kPreInclude = "--pre-include";
constexpr std::string_view kPtxasOptions = "--ptxas-options";
constexpr std::string_view kSplitCompile = "--split-compile";
constexpr unsigned kMaxSplit = 16;  // threads that one compile for another process may use

/// Options of ptxas that read or write files.
constexpr std::string_view kPtxasFiles[] = {"-o",   "--output-file",    "-optf", "--options-file",
                                            "-ias", "--input-as-string"};
/// Options of ptxas that a compile for another process may use, without their values.
constexpr std::string_view kPtxasKnown[] = {
    "-v",
    "--verbose",
    "-O",
    "-O0",
    "-O1",
    "-O2",
    "-O3",
    "-O4",
    "--opt-level",
    "-w",
    "--disable-warnings",
    "-Werror",
    "--warning-as-error",
    "-warn-spills",
    "--warn-on-spills",
    "-warn-lmem-usage",
    "--warn-on-local-memory-usage",
    "-warn-double-usage",
    "--warn-on-double-precision-use",
    "-suppress-double-demote-warning",
    "--suppress-double-demote-warning",
    "-suppress-stack-size-warning",
    "--suppress-stack-size-warning",
    "-suppress-async-bulk-multicast-advisory-warning",
    "--suppress-async-bulk-multicast-advisory-warning",
    "-suppress-sparse-mma-advisory-info",
    "--suppress-sparse-mma-advisory-info",
    "-dlcm",
    "--def-load-cache",
    "-dscm",
    "--def-store-cache",
    "-flcm",
    "--force-load-cache",
    "-fscm",
    "--force-store-cache",
    "-fmad",
    "--fmad",
    "-maxrregcount",
    "--maxrregcount",
    "-regUsageLevel",
    "--register-usage-level",
    "-allow-expensive-optimizations",
    "--allow-expensive-optimizations",
    "-disable-optimizer-consts",
    "--disable-optimizer-constants",
    "-g",
    "--device-debug",
    "-lineinfo",
    "--generate-line-info",
    "-sp-bounds-check",
    "--sp-bounds-check",
    "-ret-end",
    "--return-at-end",
    "-preserve-relocs",
    "--preserve-relocs",
    "-pic",
    "--position-independent-code",
    "-legacy-bar-warp-wide-behavior",
    "--legacy-bar-warp-wide-behavior",
    "-make-errors-visible-at-exit",
    "--make-errors-visible-at-exit",
    "-ewp",
    "--extensible-whole-program",
    "--optimize-float-atomics",
    "--g-tensor-memory-access-check",
    "--device-stack-protector",
    "-jtd",
    "--jump-table-density",
};

struct Match {
  const Rule* rule = nullptr;
  bool has_value = false;
  std::string value;
};

Match match(std::string_view flag) {
  const std::size_t equals = flag.find('=');
  const std::string_view head = flag.substr(0, equals);
  for (const Rule& rule : kRules) {
    const auto is = [&](std::string_view name) { return !name.empty() && name == head; };
    if (is(rule.canonical) || std::any_of(rule.spellings.begin(), rule.spellings.end(), is)) {
      const bool has_value = equals != std::string_view::npos;
      return {&rule, has_value, has_value ? std::string(flag.substr(equals + 1)) : std::string()};
    }
  }
  for (const Rule& rule : kRules) {
    const std::string_view option = rule.spellings[0];
    if (rule.joined == Joined::none || flag.size() <= option.size() ||
        flag.substr(0, option.size()) != option) {
      continue;
    }
    const std::string_view value = flag.substr(option.size());
    if (rule.joined == Joined::text ||
        value.find_first_not_of("0123456789") == std::string_view::npos) {
      return {&rule, true, std::string(value)};
    }
  }
  return {};
}

Result<void> add_target(std::string_view text, TranslatedFlags& out) {
  CUKILN_TRY(const Target parsed, Target::parse(text));
  if (std::find(out.targets.begin(), out.targets.end(), parsed) == out.targets.end()) {
    out.targets.push_back(parsed);
  }
  return {};
}

/// Adds the targets of `arch=compute_100a,code=sm_100a` or
/// `arch=compute_90,code=[sm_90,compute_90]`. PTX alone (`code=compute_90`) becomes that
/// architecture: cukiln stores machine code only.
Result<void> add_gencode(std::string_view value, TranslatedFlags& out) {
  std::string_view code = value;
  if (const std::size_t at = value.find("code="); at != std::string_view::npos) {
    code = value.substr(at + 5);
  } else if (value.substr(0, 5) == "arch=") {
    code = value.substr(5);
  } else {
    return make_error(ErrorCode::invalid_argument,
                      "-gencode={}: expected arch=compute_100a,code=sm_100a", value);
  }
  std::string list(code);
  std::erase_if(list, [](char c) { return c == '[' || c == ']' || c == '"' || c == '\''; });
  if (list.empty()) {  // must not silently become the default target
    return make_error(ErrorCode::invalid_argument,
                      "-gencode={} names no target: expected arch=compute_100a,code=sm_100a",
                      value);
  }
  for (std::string_view rest = list; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    CUKILN_CHECK(add_target(rest.substr(0, comma), out));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return {};
}

Result<void> check_macro(std::string_view macro) {
  if (macro.empty() || macro.front() == '=') {
    return make_error(ErrorCode::invalid_argument, "-D takes NAME or NAME=VALUE, not \"{}\"",
                      macro);
  }
  return {};
}

template <std::size_t n>
bool is_one_of(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string_view head_of(std::string_view argument) {
  return argument.substr(0, argument.find_first_of("= "));
}

/// Splits `-Xptxas -v,-dlcm=ca` at the commas, as nvcc does: NVRTC takes one option at a time.
/// Errors: invalid_argument (an option that reads or writes a file).
Result<void> add_ptxas_options(std::string_view list, TranslatedFlags& out) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view option = list.substr(0, comma);
    if (is_one_of(kPtxasFiles, head_of(option))) {
      return make_error(ErrorCode::invalid_argument,
                        "\"{}={}\" is refused: ptxas would read or write a file that the key does "
                        "not name; leave it out",
                        kPtxasOptions, option);
    }
    if (comma != 0) {
      out.arguments.push_back(fmt::format("{}={}", kPtxasOptions, list.substr(0, comma)));
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return {};
}

/// Whether a compile for another process may give ptxas this option, or this value of the option
/// before it.
bool is_known_ptxas_option(std::string_view option) {
  const bool is_value = option.substr(0, 1) != "-";
  return option.find('/') == std::string_view::npos &&
         (is_value || is_one_of(kPtxasKnown, head_of(option)));
}

bool is_small_number(std::string_view text, unsigned max) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number > 0 && number <= max;
}

bool is_allowed_argument(const std::string& argument) {
  const Match found = match(argument);
  if (found.rule == nullptr || argument.find('\0') != std::string::npos ||
      argument.substr(0, argument.find('=')) != found.rule->canonical) {
    return false;
  }
  const Rule& rule = *found.rule;
  const bool reaches_nvrtc = rule.action == keep || rule.action == target ||
                             rule.action == include || rule.action == standard;
  if (!reaches_nvrtc || (rule.value == Value::required && !found.has_value) ||
      (rule.value == Value::none && found.has_value)) {
    return false;
  }
  return rule.canonical == kPtxasOptions   ? is_known_ptxas_option(found.value)
         : rule.canonical == kSplitCompile ? is_small_number(found.value, kMaxSplit)
                                           : true;
}

}  // namespace

Result<void> check_arguments(const std::vector<std::string>& arguments) {
  const auto refused = std::find_if_not(arguments.begin(), arguments.end(), &is_allowed_argument);
  if (refused == arguments.end()) {
    return {};
  }
  constexpr std::size_t kShownBytes = 100;
  return make_error(ErrorCode::invalid_argument,
                    "cukilnd gives NVRTC no argument \"{}\" for other processes",
                    refused->substr(0, kShownBytes));
}

Result<TranslatedFlags> translate_flags(const std::vector<std::string>& flags) {
  TranslatedFlags out;
  std::vector<std::string> system_folders;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const std::string& flag = flags[i];
    Match found = match(flag);
    if (found.rule == nullptr) {
      const std::string suggestion = nearest(flag.substr(0, flag.find('=')), known_flags());
      return make_error(
          ErrorCode::invalid_argument,
          "unknown flag \"{}\": NVRTC has no such option, and it is not one of nvcc's "
          "host-only options that can be left out{}",
          flag, suggestion.empty() ? "" : fmt::format("; did you mean \"{}\"?", suggestion));
    }
    const Rule& rule = *found.rule;
    std::string given = flag;
    if (rule.value == Value::required && !found.has_value) {
      if (i + 1 == flags.size()) {
        return make_error(ErrorCode::invalid_argument, "\"{}\" needs a value after it", flag);
      }
      found.value = flags[++i];
      found.has_value = true;
      given += " " + found.value;
    }
    if (rule.value == Value::none && found.has_value) {
      return make_error(ErrorCode::invalid_argument, "\"{}\" takes no value", flag);
    }
    const std::string canonical =
        std::string(rule.canonical) + (found.has_value ? "=" + found.value : std::string());
    switch (rule.action) {
      case keep:
        if (rule.canonical == kDefine) {
          CUKILN_CHECK(check_macro(found.value));
        }
        if (rule.canonical == kPreInclude && found.value.substr(0, 1) != "/") {
          out.relative_pre_include = true;
        }
        if (rule.canonical == kPtxasOptions) {
          CUKILN_CHECK(add_ptxas_options(found.value, out));
        } else {
          out.arguments.push_back(canonical);
        }
        break;
      case drop_reported:
        out.dropped.push_back(given);
        out.reported.push_back(flag.substr(0, flag.find('=')));
        break;
      case drop: out.dropped.push_back(canonical); break;
      case include: out.include.push_back(found.value); break;
      case system: system_folders.push_back(found.value); break;
      case standard: out.standard = found.value; break;
      case target:
        if (found.value == "all" || found.value == "all-major" || found.value == "native") {
          return make_error(ErrorCode::invalid_argument,
                            "\"{}\" is not supported: name the target, for instance -arch=sm_100a",
                            flag);
        }
        CUKILN_CHECK(add_target(found.value, out));
        break;
      case gencode: CUKILN_CHECK(add_gencode(found.value, out)); break;
      case refuse_files:
        return make_error(ErrorCode::invalid_argument,
                          "\"{}\" is refused: it writes a file, and a hit would not; leave it out",
                          flag);
      case refuse_image:
        if (found.value == "false") {
          out.dropped.push_back(canonical);
          break;
        }
        return make_error(
            ErrorCode::invalid_argument,
            "\"{}\" is refused: it gives no cubin that a driver could load; leave it out", flag);
    }
  }
  out.include.insert(out.include.end(), system_folders.begin(), system_folders.end());
  return out;
}

std::vector<std::string> known_flags() {
  std::vector<std::string> flags;
  for (const Rule& rule : kRules) {
    flags.emplace_back(rule.canonical);
    for (const std::string_view spelling : rule.spellings) {
      if (!spelling.empty() && spelling != rule.canonical) {
        flags.emplace_back(spelling);
      }
    }
  }
  return flags;
}

FlagShape shape_of(const std::string& flag) {
  const Match found = match(flag);
  if (found.rule == nullptr) {
    return FlagShape::unknown;
  }
  return found.rule->value == Value::required && !found.has_value ? FlagShape::value_follows
                                                                  : FlagShape::alone;
}

}  // namespace cukiln
