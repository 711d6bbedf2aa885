#include "key/nvcc_flags.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/result.hpp"

namespace cukiln {

namespace {

enum class Action {
  keep,          // NVRTC's own
  drop,          // host-only, or what NVRTC does anyway
  target,        // -arch=…
  gencode,       // -gencode=arch=…,code=…
  include,       // -I
  standard,      // -std
  refuse_cache,  // NVRTC has it, but a cached result cannot be right
  refuse_image,  // NVRTC has it, but it gives no cubin
};

enum class Value { none, required, optional };  // optional: only after "=" (--fmad, --fmad=false)

struct Rule {
  std::string_view canonical;                 // as passed to NVRTC
  std::array<std::string_view, 3> spellings;  // others that are taken
  Action action;
  Value value;
  bool glued = false;  // the value may follow at once: -Ifolder
};

using enum Action;
constexpr Value kNone = Value::none;
constexpr Value kRequired = Value::required;
constexpr Value kOptional = Value::optional;

constexpr Rule kRules[] = {
    {"--gpu-architecture", {"-arch", "--gpu-code", "-code"}, target, kRequired},
    {"--generate-code", {"-gencode"}, gencode, kRequired},
    {"--include-path", {"-I", "-isystem", "--system-include"}, include, kRequired, true},
    {"--std", {"-std"}, standard, kRequired},
    {"--define-macro", {"-D"}, keep, kRequired, true},
    {"--undefine-macro", {"-U"}, keep, kRequired, true},
    {"--pre-include", {"-include"}, keep, kRequired},
    {"--no-source-include", {"-no-source-include"}, keep, kNone},
    {"--use_fast_math", {"-use_fast_math"}, keep, kNone},
    {"--generate-line-info", {"-lineinfo"}, keep, kNone},
    {"--device-debug", {"-G"}, keep, kNone},
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
    {"--threads", {"-t"}, drop, kRequired},
    {"--compiler-options", {"-Xcompiler"}, drop, kRequired},
    {"--linker-options", {"-Xlinker"}, drop, kRequired},
    {"--compiler-bindir", {"-ccbin"}, drop, kRequired},
    {"--verbose", {"-v"}, drop, kNone},
    {"--debug", {"-g"}, drop, kNone},
    {"--machine", {"-m64"}, drop, kOptional},
    {"--resource-usage", {"-res-usage"}, drop, kNone},

    {"--pch", {"-pch"}, refuse_cache, kNone},
    {"--create-pch", {"-create-pch"}, refuse_cache, kRequired},
    {"--use-pch", {"-use-pch"}, refuse_cache, kRequired},
    {"--pch-dir", {"-pch-dir"}, refuse_cache, kRequired},
    {"--pch-verbose", {"-pch-verbose"}, refuse_cache, kOptional},
    {"--pch-messages", {"-pch-messages"}, refuse_cache, kOptional},
    {"--instantiate-templates-in-pch", {"-instantiate-templates-in-pch"}, refuse_cache, kOptional},
    {"--time", {"-time"}, refuse_cache, kRequired},
    {"--fdevice-time-trace", {"-fdevice-time-trace"}, refuse_cache, kRequired},
    {"--dlink-time-opt", {"-dlto"}, refuse_image, kNone},
    {"--gen-opt-lto", {"-gen-opt-lto"}, refuse_image, kNone},
    {"--optix-ir", {"-optix-ir"}, refuse_image, kNone},
    {"--fdevice-syntax-only", {"-fdevice-syntax-only"}, refuse_image, kNone},
    {"--device-c", {"-dc"}, refuse_image, kNone},
    {"--relocatable-device-code", {"-rdc"}, refuse_image, kOptional},
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
      // `-DA=B`, `-D A=B`: the equals sign of -D, -U and -I is part of the value, except after the
      // long spelling.
      const bool has_value = equals != std::string_view::npos;
      return {&rule, has_value, has_value ? std::string(flag.substr(equals + 1)) : std::string()};
    }
  }
  for (const Rule& rule : kRules) {
    const std::string_view letter = rule.spellings[0];
    if (rule.glued && flag.size() > letter.size() && flag.substr(0, letter.size()) == letter) {
      return {&rule, true, std::string(flag.substr(letter.size()))};
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

/// `arch=compute_100a,code=sm_100a`, `arch=compute_90,code=[sm_90,compute_90]`. PTX alone
/// (`code=compute_90`) means that architecture here: cukiln keeps machine code.
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
  if (list.empty()) {  // no target is not the default one
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

}  // namespace

Result<TranslatedFlags> translate_flags(const std::vector<std::string>& flags) {
  TranslatedFlags out;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const std::string& flag = flags[i];
    Match found = match(flag);
    if (found.rule == nullptr) {
      return make_error(
          ErrorCode::invalid_argument,
          "unknown flag \"{}\": NVRTC has no such option, and it is not one of nvcc's "
          "host-only options that can be left out",
          flag);
    }
    const Rule& rule = *found.rule;
    if (rule.value == Value::required && !found.has_value) {
      if (i + 1 == flags.size()) {
        return make_error(ErrorCode::invalid_argument, "\"{}\" needs a value after it", flag);
      }
      found.value = flags[++i];
      found.has_value = true;
    }
    if (rule.value == Value::none && found.has_value) {
      return make_error(ErrorCode::invalid_argument, "\"{}\" takes no value", flag);
    }
    const std::string canonical =
        std::string(rule.canonical) + (found.has_value ? "=" + found.value : std::string());
    switch (rule.action) {
      case keep: out.arguments.push_back(canonical); break;
      case drop: out.dropped.push_back(canonical); break;
      case include: out.include.push_back(found.value); break;
      case standard: out.standard = found.value; break;
      case target:
        if (found.value == "all" || found.value == "all-major" || found.value == "native") {
          return make_error(ErrorCode::invalid_argument,
                            "\"{}\": name the target, for instance -arch=sm_100a", flag);
        }
        CUKILN_CHECK(add_target(found.value, out));
        break;
      case gencode: CUKILN_CHECK(add_gencode(found.value, out)); break;
      case refuse_cache:
        return make_error(
            ErrorCode::invalid_argument,
            "\"{}\" is refused: it writes files or hides headers from the cache; leave "
            "it out (a repeated compile is a hit anyway)",
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
  return out;
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
