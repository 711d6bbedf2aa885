// SPDX-License-Identifier: Apache-2.0
#include "core/compile/link_tool.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "addons/link/find_linker.hpp"
#include "addons/link/link_log.hpp"
#include "addons/link/link_parts.hpp"
#include "addons/link/link_request.hpp"
#include "core/base/result.hpp"
#include "core/compile/compile_errors.hpp"
#include "core/key/variables.hpp"
#include "core/loader/addons.hpp"

namespace cukiln {

namespace {

// Of each block's shared memory; nvJitLink 12.8 to 13.5 counts it for sm_90 only.
constexpr std::uint32_t kReservedSharedBytes = 1024;

/// The one of a name expression; null if there is none.
const KernelInfo* symbol_named(const std::vector<KernelInfo>& symbols, const std::string& name) {
  const auto found = std::find_if(symbols.begin(), symbols.end(),
                                  [&](const KernelInfo& symbol) { return symbol.name == name; });
  return found != symbols.end() ? &*found : nullptr;
}

Result<std::string> encode(const CompileInput& input) {
  const LinkStep& step = *input.request.link;
  wire::Link message;
  message.options = step.options;
  for (const LinkParts::Part& part : input.parts->parts) {
    message.inputs.push_back({part.name, part.image});
  }
  for (const VirtualSource& object : step.objects) {
    message.inputs.push_back({object.path, object.text});
  }
  std::string body = message.encode();
  if (body.size() > wire::kMaxBodyBytes) {
    return make_error(
        ErrorCode::invalid_argument,
        "the sources and objects of {} have {} MiB once compiled; expected at most {} "
        "to link",
        input.label, body.size() >> 20, wire::kMaxBodyBytes >> 20);
  }
  return body;
}

/// The first line of nvJitLink's log that is an error, without what precedes the text.
std::string first_link_error(ByteView log) {
  static constexpr std::string_view kBeginnings[] = {
      "error   : ", "ptxas error   : ", "ptxas fatal   : ", "fatal   : "};
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    const ByteView line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    for (const std::string_view beginning : kBeginnings) {
      if (line.starts_with(beginning)) {
        return std::string(line.substr(beginning.size()));
      }
    }
    if (line.find("link error: ") != ByteView::npos || line.starts_with("libnvvm : error: ")) {
      return std::string(line);
    }
  }
  return {};
}

std::string link_hint(const FailureContext& context, ByteView error, int code) {
  constexpr int kOutdated = 14;
  const auto says = [&](std::string_view text) { return error.find(text) != ByteView::npos; };
  if (says("Undefined reference") || says("Unresolved extern")) {
    return ". No source and no object of the module defines it";
  }
  if (says("Multiple definition") || says("multiply defined")) {
    return ". Define it in one source, and declare it extern in the others; a function in a header "
           "needs inline or static";
  }
  // Its version is 13.0 where NVRTC's is 13.0.88.
  const bool is_other =
      !context.identity.toolchain.version.starts_with(context.linker->toolchain.version + ".");
  if (code == kOutdated || is_other) {
    return fmt::format(". Install nvJitLink of NVRTC's version, {}, or a later one",
                       context.identity.toolchain.version);
  }
  return {};
}

/// Makes the error for a link without a cubin.
Error link_failed(const FailureContext& context, const wire::Compiled& linked) {
  if (linked.status == wire::CompileStatus::out_of_memory) {
    return out_of_memory(context);
  }
  std::string log = context.job.files.with_real_paths(linked.log);
  const std::string error = first_link_error(log);
  std::string message = fmt::format(
      "{} does not link for {} (nvJitLink {}): {}{}", context.job.input.label,
      context.job.input.request.target.name(), context.linker->toolchain.version,
      error.empty() ? linked.nvrtc_text : error, link_hint(context, error, linked.nvrtc_code));
  return Error(ErrorCode::compile_failed, std::move(message), std::move(log));
}

Result<CompileResult> finish(const FailureContext& context, wire::Compiled linked) {
  const CompileJob& job = context.job;
  const CompileRequest& request = job.input.request;
  const LinkParts& parts = *job.input.parts;
  if (linked.status != wire::CompileStatus::ok) {
    return link_failed(context, linked);
  }
  if (auto checked = check_image(linked.image, request.target); !checked) {
    if (job.failure_kind != nullptr) {
      *job.failure_kind = CompileFailureKind::garbage;
    }
    return std::move(checked).error().with_context(
        fmt::format("nvJitLink {} reported that {} was linked, but its result is unusable",
                    context.linker->toolchain.version, job.input.label));
  }
  CompileLog log = parse_link_log(linked.log, parts.symbols,
                                  request.target.capability == 90 ? kReservedSharedBytes : 0);
  const std::vector<std::string>& names = request.options.name_expressions;
  std::vector<std::string> lowered;
  for (const std::string& name : names) {
    const KernelInfo* const symbol = symbol_named(parts.symbols, name);
    lowered.push_back(symbol != nullptr ? symbol->lowered : name);
  }
  CompileResult result;
  result.cubin.kernels = choose_kernels(log.kernels, names, lowered);
  mark_variables(linked.image, result.cubin.kernels);
  for (const KernelInfo& chosen : result.cubin.kernels) {
    // nvJitLink reports the registers of every kernel.
    if (chosen.registers == 0 && symbol_named(parts.symbols, chosen.name) == nullptr) {
      return make_error(ErrorCode::compile_failed,
                        "{} for {}: no source and no object has a kernel or a variable {}; an "
                        "object's are named by their symbols, as cuobjdump -symbols lists them",
                        job.input.label, request.target.name(), chosen.name);
    }
  }
  result.cubin.image = SharedBytes(std::move(linked.image));
  result.cubin.log = std::move(log.text);
  result.dependencies = parts.dependencies;
  result.observed = context.linker->observed && context.identity.observed && parts.observed;
  result.uses_time = parts.uses_time;
  result.compile_us = linked.compile_us;
  result.peak_bytes = linked.peak_bytes;
  return result;
}

constexpr LinkTool kLinkTool{find_linker, encode, finish};

}  // namespace

void register_link(Registry& registry) {
  registry.link_tool = &kLinkTool;
  registry.add_link = add_link;
  registry.build_parts = build_parts;
}

}  // namespace cukiln
