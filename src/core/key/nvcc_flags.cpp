// SPDX-License-Identifier: Apache-2.0
#include "core/key/nvcc_flags.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>

#include "core/base/nearest.hpp"
#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"

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
  link,           // -rdc=true, -dc, -dlto: the sources are linked
  refuse_image,   // an option of NVRTC with which it returns no cubin
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

constexpr Action kKeep = Action::keep;
constexpr Action kDrop = Action::drop;
constexpr Action kDropReported = Action::drop_reported;
constexpr Action kTarget = Action::target;
constexpr Action kGencode = Action::gencode;
constexpr Action kInclude = Action::include;
constexpr Action kSystem = Action::system;
constexpr Action kStandard = Action::standard;
constexpr Action kRefuseFiles = Action::refuse_files;
constexpr Action kRefuseImage = Action::refuse_image;
constexpr Action kLink = Action::link;
constexpr Value kNone = Value::none;
constexpr Value kRequired = Value::required;
constexpr Value kOptional = Value::optional;

// Not for another process's compile: options of the compiler's parts, which may name files.
constexpr std::string_view kFrontEndOptions = "-Xcudafe";
constexpr std::string_view kNvvmOptions = "-Xnvvm";

constexpr Rule kRules[] = {
    {"--gpu-architecture", {"-arch", "--gpu-code", "-code"}, kTarget, kRequired},
    {"--generate-code", {"-gencode"}, kGencode, kRequired},
    {"--include-path", {"-I"}, kInclude, kRequired, Joined::text},
    {"--system-include", {"-isystem"}, kSystem, kRequired},
    {"--std", {"-std"}, kStandard, kRequired},
    {"--define-macro", {"-D"}, kKeep, kRequired, Joined::text},
    {"--undefine-macro", {"-U"}, kKeep, kRequired, Joined::text},
    {"--pre-include", {"-include"}, kKeep, kRequired},
    {"--no-source-include", {"-no-source-include"}, kKeep, kNone},
    {"--use_fast_math", {"-use_fast_math"}, kKeep, kNone},
    {"--ffinite-math-only", {"-ffinite-math-only"}, kKeep, kNone},
    {"--fassociative-math", {"-fassociative-math"}, kKeep, kNone},
    {"--fno-signed-zeros", {"-fno-signed-zeros"}, kKeep, kNone},
    {"--generate-line-info", {"-lineinfo"}, kKeep, kNone},
    {"--no-lineinfo-inlined-at", {"-no-lineinfo-ia"}, kKeep, kNone},
    {"--device-debug", {"-G"}, kKeep, kNone},
    {"--numba-debug", {"-numba-debug"}, kKeep, kNone},
    {"--discard-value-names", {"-discard-value-names"}, kKeep, kOptional},
    {"--extensible-whole-program", {"-ewp"}, kKeep, kNone},
    {"--dopt", {"-dopt"}, kKeep, kOptional},
    {"--Ofast-compile", {"-Ofc"}, kKeep, kRequired},
    {"--maxrregcount", {"-maxrregcount"}, kKeep, kRequired},
    {"--ptxas-options", {"-Xptxas"}, kKeep, kRequired},
    {"--ftz", {"-ftz"}, kKeep, kOptional},
    {"--prec-sqrt", {"-prec-sqrt"}, kKeep, kOptional},
    {"--prec-div", {"-prec-div"}, kKeep, kOptional},
    {"--fmad", {"-fmad"}, kKeep, kOptional},
    {"--extra-device-vectorization", {"-extra-device-vectorization"}, kKeep, kNone},
    {"--modify-stack-limit", {"-modify-stack-limit"}, kKeep, kOptional},
    {"--restrict", {"-restrict"}, kKeep, kNone},
    {"--device-as-default-execution-space", {"-default-device"}, kKeep, kNone},
    {"--device-int128", {"-device-int128"}, kKeep, kNone},
    {"--device-float128", {"-device-float128"}, kKeep, kNone},
    {"--device-stack-protector", {"-device-stack-protector"}, kKeep, kOptional},
    {"--jump-table-density", {"-jtd"}, kKeep, kRequired},
    {"--frandom-seed", {"-frandom-seed"}, kKeep, kRequired},
    {"--split-compile", {"-split-compile"}, kKeep, kRequired},
    {"--builtin-move-forward", {"-builtin-move-forward"}, kKeep, kOptional},
    {"--builtin-initializer-list", {"-builtin-initializer-list"}, kKeep, kOptional},
    {"--simt-only", {"-simt-only"}, kKeep, kNone},
    {"--enable-tile", {"-enable-tile"}, kKeep, kNone},
    {"--tile-as-default-execution-space", {"-default-tile"}, kKeep, kNone},
    {"--diagnose-implicit-tile-var", {"-diagnose-implicit-tile-var"}, kKeep, kNone},
    {"--skip-cuda-tile-packaging", {"-skip-cuda-tile-packaging"}, kKeep, kNone},
    {"--device-w", {"-dw"}, kKeep, kNone},  // which NVRTC compiles as without it
    {"--uumn", {"-uumn"}, kKeep, kNone},
    {"--utf-8", {"-utf-8"}, kKeep, kNone},
    {"--disable-warnings", {"-w"}, kKeep, kNone},
    {"--warning-as-error", {"-Werror", "--Werror"}, kKeep, kRequired},
    {kFrontEndOptions, {}, kKeep, kRequired},
    {kNvvmOptions, {}, kKeep, kRequired},
    {"--fmax-errors", {"-fmax-errors"}, kKeep, kRequired},
    {"--diag-error", {"-diag-error"}, kKeep, kRequired},
    {"--diag-suppress", {"-diag-suppress"}, kKeep, kRequired},
    {"--diag-warn", {"-diag-warn"}, kKeep, kRequired},
    {"--brief-diagnostics", {"-brief-diag"}, kKeep, kOptional},
    {"--display-error-number", {"-err-no"}, kKeep, kNone},
    {"--no-display-error-number", {"-no-err-no"}, kKeep, kNone},
    {"--optimization-info", {"-opt-info"}, kKeep, kRequired},
    {"--version-ident", {"-dQ"}, kKeep, kOptional},
    {"--minimal", {"-minimal"}, kKeep, kNone},

    {"--optimize", {"-O"}, kDrop, kRequired},
    {"-O3", {"-O2", "-O1", "-O0"}, kDrop, kNone},
    {"--expt-relaxed-constexpr", {"-expt-relaxed-constexpr"}, kDrop, kNone},
    {"--extended-lambda", {"-extended-lambda", "--expt-extended-lambda"}, kDrop, kNone},
    {"--threads", {}, kDrop, kRequired},
    {"--compiler-options", {"-Xcompiler"}, kDrop, kRequired},
    {"--linker-options", {"-Xlinker"}, kDrop, kRequired},
    {"--compiler-bindir", {"-ccbin"}, kDrop, kRequired},
    {"--verbose", {"-v"}, kDrop, kNone},
    {"--debug", {"-g"}, kDrop, kNone},
    {"--machine", {"-m64"}, kDrop, kOptional},
    {"--resource-usage", {"-res-usage"}, kDrop, kNone},

    {"--pch", {"-pch"}, kDropReported, kNone},
    {"--create-pch", {"-create-pch"}, kDropReported, kRequired},
    {"--use-pch", {"-use-pch"}, kDropReported, kRequired},
    {"--pch-dir", {"-pch-dir"}, kDropReported, kRequired},
    {"--pch-verbose", {"-pch-verbose"}, kDropReported, kOptional},
    {"--pch-messages", {"-pch-messages"}, kDropReported, kOptional},
    {"--instantiate-templates-in-pch", {"-instantiate-templates-in-pch"}, kDropReported, kOptional},
    {"--time", {"-time"}, kDropReported, kRequired},
    {"--no-cache", {"-no-cache"}, kDropReported, kNone},
    {"--enable-cache-trace", {"-enable-cache-trace"}, kDropReported, kNone},
    {"--compile", {"-c"}, kDropReported, kNone},
    {"--cubin", {"-cubin"}, kDropReported, kNone},
    {"--threads", {"-t"}, kDropReported, kRequired, Joined::digits},
    {"--x", {"-x"}, kDropReported, kRequired},
    {"--keep", {"-keep"}, kDropReported, kNone},
    {"--keep-dir", {"-keep-dir"}, kDropReported, kRequired},
    {"--save-temps", {"-save-temps"}, kDropReported, kNone},
    {"--cudart", {"-cudart"}, kDropReported, kRequired},
    {"--default-stream", {"-default-stream"}, kDropReported, kRequired},
    {"--allow-unsupported-compiler", {"-allow-unsupported-compiler"}, kDropReported, kNone},
    {"--forward-unknown-to-host-compiler",
     {"-forward-unknown-to-host-compiler", "--forward-unknown-opts", "-forward-unknown-opts"},
     kDropReported,
     kNone},
    {"-fPIC", {"-fpic"}, kDropReported, kNone},
    {"-W", {"-W"}, kDropReported, kOptional, Joined::text},
    {"--W", {"--W"}, kDropReported, kOptional, Joined::text},

    {"--fdevice-time-trace", {"-fdevice-time-trace"}, kRefuseFiles, kRequired},
    {"--dlink-time-opt", {"-dlto"}, kLink, kNone},
    {"--gen-opt-lto", {"-gen-opt-lto"}, kRefuseImage, kNone},
    {"--optix-ir", {"-optix-ir"}, kRefuseImage, kNone},
    {"--fdevice-syntax-only", {"-fdevice-syntax-only"}, kRefuseImage, kNone},
    {"--tile-only", {"-tile-only"}, kRefuseImage, kNone},
    {"--generate-builtins", {"-genbuiltins"}, kRefuseImage, kNone},
    {"--device-c", {"-dc"}, kLink, kNone},
    {"--relocatable-device-code", {"-rdc"}, kLink, kOptional},
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

/// As NVRTC, which takes no notice of white space around an option.
std::string_view without_space_around(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);  // npos + 1: 0
}

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

/// Whether a compile for another process may give ptxas this option. A value stands behind '=':
/// what stands alone is the name of a file. ptxas splits at blanks, and takes quotes and '@'.
bool is_known_ptxas_option(std::string_view option) {
  const std::string_view head = option.substr(0, option.find('='));
  const std::string_view value = option.substr(std::min(head.size() + 1, option.size()));
  return is_one_of(kPtxasKnown, head) &&
         std::all_of(value.begin(), value.end(), [](unsigned char c) { return std::isalnum(c); });
}

bool is_small_number(std::string_view text, unsigned max) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number > 0 && number <= max;
}

bool is_allowed_argument(const std::string& argument, bool any_spelling) {
  static constexpr std::string_view kOfPrograms[] = {"-dlto", "--dlink-time-opt", "-optix-ir",
                                                     "--optix-ir"};
  if (any_spelling && std::find(std::begin(kOfPrograms), std::end(kOfPrograms), argument) !=
                          std::end(kOfPrograms)) {
    return true;
  }
  if (argument == kRdcArgument || argument == kLtoArgument) {  // of a part of a link
    return true;
  }
  const Match found = match(argument);
  if (found.rule == nullptr || argument.find('\0') != std::string::npos ||
      (!any_spelling && argument.substr(0, argument.find('=')) != found.rule->canonical)) {
    return false;
  }
  const Rule& rule = *found.rule;
  const bool reaches_nvrtc = rule.action == kKeep || rule.action == kTarget ||
                             rule.action == kInclude || rule.action == kStandard;
  if (!reaches_nvrtc || (rule.value == Value::required && !found.has_value) ||
      (rule.value == Value::none && found.has_value)) {
    return false;
  }
  if (rule.canonical == kFrontEndOptions || rule.canonical == kNvvmOptions) {
    return false;
  }
  return rule.canonical == kPtxasOptions   ? is_known_ptxas_option(found.value)
         : rule.canonical == kSplitCompile ? is_small_number(found.value, kMaxSplit)
                                           : true;
}

}  // namespace

Result<void> check_arguments(const std::vector<std::string>& arguments, bool any_spelling) {
  const auto refused = std::find_if_not(
      arguments.begin(), arguments.end(),
      [&](const std::string& argument) { return is_allowed_argument(argument, any_spelling); });
  if (refused == arguments.end()) {
    return {};
  }
  constexpr std::size_t kShownBytes = 100;
  return make_error(ErrorCode::invalid_argument,
                    "cukilnd passes NVRTC no argument \"{}\" for other processes",
                    refused->substr(0, kShownBytes));
}

Result<TranslatedFlags> translate_flags(const std::vector<std::string>& flags) {
  TranslatedFlags out;
  std::vector<std::string> system_folders;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const std::string flag(without_space_around(flags[i]));
    if (flag.empty()) {
      return make_error(ErrorCode::invalid_argument,
                        "a flag is empty; expected an option of NVRTC, such as -lineinfo");
    }
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
      case Action::keep:
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
      case Action::drop_reported:
        out.dropped.push_back(given);
        out.reported.push_back(flag.substr(0, flag.find('=')));
        break;
      case Action::drop: out.dropped.push_back(given); break;
      case Action::include: out.include.push_back(found.value); break;
      case Action::system: system_folders.push_back(found.value); break;
      case Action::standard: out.standard = found.value; break;
      case Action::target:
        if (found.value == "all" || found.value == "all-major" || found.value == "native") {
          return make_error(ErrorCode::invalid_argument,
                            "\"{}\" is not supported: name the target, for instance -arch=sm_100a",
                            flag);
        }
        CUKILN_CHECK(add_target(found.value, out));
        break;
      case Action::gencode: CUKILN_CHECK(add_gencode(found.value, out)); break;
      case Action::refuse_files:
        return make_error(ErrorCode::invalid_argument,
                          "\"{}\" is refused: it writes a file, and a hit would not; leave it out",
                          flag);
      case Action::link:
        if (found.value == "false") {
          out.dropped.push_back(given);
        } else if (canonical == kLtoArgument) {
          out.link = LinkMode::lto;
        } else if (!found.has_value || found.value == "true") {
          out.link = out.link == LinkMode::lto ? LinkMode::lto : LinkMode::rdc;
        } else {
          return make_error(ErrorCode::invalid_argument, "\"{}\": expected true or false", flag);
        }
        break;
      case Action::refuse_image:
        return make_error(ErrorCode::invalid_argument,
                          "\"{}\" is refused: with it NVRTC returns no cubin that a driver could "
                          "load; leave it out",
                          flag);
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
  const Match found = match(without_space_around(flag));
  if (found.rule == nullptr) {
    return FlagShape::unknown;
  }
  return found.rule->value == Value::required && !found.has_value ? FlagShape::value_follows
                                                                  : FlagShape::alone;
}

}  // namespace cukiln
