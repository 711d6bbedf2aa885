// SPDX-License-Identifier: Apache-2.0
#include "compile/compile_errors.hpp"

#include <string.h>

#include "base/result.hpp"
#include "compile/compile_log.hpp"
#include "compile/nvrtc_api.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxPlaces = 12;

/// As the user knows it; as it is, where the user is another process.
std::string real_path(const CompileJob& job, const std::string& path) {
  return job.files != nullptr ? job.files->real_path(path) : path;
}

Error out_of_memory(const FailureContext& context) {
  if (context.job.trouble != nullptr) {
    *context.job.trouble = CompileTrouble::out_of_memory;
  }
  if (context.memory_bytes == 0) {
    return make_error(ErrorCode::timeout, "compiling {} needs more memory than there is",
                      context.job.label);
  }
  return make_error(ErrorCode::timeout,
                    "compiling {} needs more than the {} MiB that a compile may have; raise "
                    "compile_memory_bytes",
                    context.job.label, context.memory_bytes >> 20);
}

std::string signal_name(std::uint32_t number) {
  const char* name = ::sigabbrev_np(static_cast<int>(number));
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

/// `13.0` of `13.0.88`.
std::string major_minor(const std::string& version) {
  const std::size_t dot = version.find('.');
  return version.substr(0, version.find('.', dot == std::string::npos ? dot : dot + 1));
}

/// Where a header was looked for in vain: the last component is the same, and what is before it is
/// a folder that was searched.
std::string places_of(const std::string& header, const FailureContext& context,
                      const DependencySet& dependencies) {
  std::string places;
  std::size_t count = 0;
  const std::string ending = "/" + header;
  for (const std::string& path : dependencies.paths(Observation::Kind::absent)) {
    if (path.size() < ending.size() ||
        path.compare(path.size() - ending.size(), ending.size(), ending) != 0) {
      continue;
    }
    if (++count <= kMaxPlaces) {
      places += "\n  " + real_path(context.job, path);
    }
  }
  return places;
}

std::string version_hint(const FailureContext& context, ByteView log) {
  const std::string headers = header_version(context.identity.install.headers);
  const std::string compiler = major_minor(context.identity.toolchain.version);
  if (headers.empty()) {
    return context.identity.install.headers.empty()
               ? ". CUDA's headers were not found: install nvidia-cuda-runtime or the toolkit, or "
                 "set include_path"
               : "";
  }
  std::string hint = fmt::format(" with CUDA {} headers", headers);
  if (headers != compiler) {
    hint += fmt::format(
        " from {}. {}They do not belong to NVRTC {}: install both from one version "
        "of CUDA, or set include_path or nvrtc_library",
        context.identity.install.headers.front(),
        log.find(kToolkitRoot) != ByteView::npos ? "The error is inside those headers. " : "",
        compiler);
  }
  return hint;
}

}  // namespace

Error worker_failed(const FailureContext& context, const WorkerReply& reply) {
  const std::string& label = context.job.label;
  switch (reply.failure) {
    case WorkerFailure::timeout:
      return make_error(ErrorCode::timeout,
                        "compiling {} took longer than {} ms and was ended; raise "
                        "compile_timeout_ms if it needs more",
                        label, context.job.timeout.count());
    case WorkerFailure::cancelled:
      return make_error(ErrorCode::timeout, "compiling {} was cancelled", label);
    case WorkerFailure::crashed:
      if (reply.crash.out_of_memory != 0) {
        return out_of_memory(context);
      }
      return make_error(ErrorCode::internal, "NVRTC {} crashed while it compiled {}: {}{}{}",
                        context.identity.toolchain.version, label, signal_name(reply.crash.signal),
                        reply.crash.stack_overflow != 0 ? ", its stack of 64 MiB was full" : "",
                        context.last_words);
    case WorkerFailure::closed:
      return make_error(ErrorCode::internal,
                        "the compile worker ended while it compiled {}: somebody killed it, or the "
                        "machine ran out of memory{}",
                        label, context.last_words);
    case WorkerFailure::none:
    case WorkerFailure::confused: break;
  }
  return make_error(ErrorCode::internal,
                    "the compile worker gave no sensible answer about {}; it must be the one that "
                    "was built with this library",
                    label);
}

Error compile_failed(const FailureContext& context, const wire::Compiled& compiled, ByteView log,
                     const DependencySet& dependencies) {
  const std::string& label = context.job.label;
  const std::string& version = context.identity.toolchain.version;
  if (compiled.status == wire::CompileStatus::out_of_memory) {
    return out_of_memory(context);
  }
  std::string real_log =
      context.job.files != nullptr ? context.job.files->with_real_paths(log) : std::string(log);
  if (compiled.nvrtc_code == kNvrtcBuiltins) {
    return Error(ErrorCode::incompatible,
                 fmt::format("NVRTC {} and its builtins library {} do not fit; both must be from "
                             "one version of CUDA",
                             version, context.identity.install.builtins),
                 std::move(real_log));
  }
  if (compiled.status == wire::CompileStatus::unusable) {
    return Error(ErrorCode::compile_failed,
                 fmt::format("NVRTC {} refused {} for {}: {}", version, label,
                             context.job.request->target.name(), compiled.nvrtc_text),
                 std::move(real_log));
  }
  std::string message = fmt::format("{} does not compile for {} (NVRTC {}", label,
                                    context.job.request->target.name(), version);
  message += version_hint(context, log) + ")";
  if (const std::string header = missing_header(log); !header.empty()) {
    const std::string places = places_of(header, context, dependencies);
    message += fmt::format(". {} is in none of the searched folders{}{}", header,
                           places.empty() ? "" : ":", places);
  }
  return Error(ErrorCode::compile_failed, std::move(message), std::move(real_log));
}

}  // namespace cukiln
