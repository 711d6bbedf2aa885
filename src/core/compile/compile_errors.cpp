// SPDX-License-Identifier: Apache-2.0
#include "core/compile/compile_errors.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/compile/compile_log.hpp"
#include "core/compile/kernel_names.hpp"
#include "core/compile/nvrtc_api.hpp"
#include "core/key/std_headers.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxPathsShown = 12;

/// The first error of NVRTC's log, if warnings come before it; else nothing.
std::string_view error_below_warnings(std::string_view log) {
  const std::size_t error = log.find(" error: ");  // catastrophic ones too
  if (error == std::string_view::npos) {
    return {};
  }
  const std::size_t begin = log.rfind('\n', error) + 1;  // npos + 1: 0
  return begin == 0 ? std::string_view() : log.substr(begin, log.find('\n', begin) - begin);
}

Error out_of_threads(const FailureContext& context) {
  const std::string limit = context.max_tasks != 0
                                ? fmt::format("the {} that one compile may have", context.max_tasks)
                                : "the limits of this process allow (ulimit -u, TasksMax=)";
  return make_error(ErrorCode::timeout,
                    "compiling {} needs more threads than {}, or more memory for them than "
                    "compile_memory_bytes; lower --split-compile",
                    context.job.input.label, limit);
}

std::string signal_name(std::uint32_t number) {
  switch (number) {  // glibc has a table since 2.32
    case SIGABRT: return "SIGABRT";
    case SIGALRM: return "SIGALRM";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGHUP: return "SIGHUP";
    case SIGILL: return "SIGILL";
    case SIGINT: return "SIGINT";
    case SIGKILL: return "SIGKILL";
    case SIGPIPE: return "SIGPIPE";
    case SIGQUIT: return "SIGQUIT";
    case SIGSEGV: return "SIGSEGV";
    case SIGSYS: return "SIGSYS";
    case SIGTERM: return "SIGTERM";
    case SIGTRAP: return "SIGTRAP";
    case SIGUSR1: return "SIGUSR1";
    case SIGUSR2: return "SIGUSR2";
    case SIGXCPU: return "SIGXCPU";
    case SIGXFSZ: return "SIGXFSZ";
    default: return fmt::format("signal {}", number);
  }
}

/// Returns `13.0` for `13.0.88`.
std::string major_minor(const std::string& version) {
  const std::size_t dot = version.find('.');
  return version.substr(0, version.find('.', dot == std::string::npos ? dot : dot + 1));
}

/// Lists the paths at which NVRTC searched for a missing header, one a line: the absent paths that
/// end in its name.
std::string searched_paths(const std::string& header, const FailureContext& context,
                           const DependencySet& dependencies) {
  std::string paths;
  std::size_t count = 0;
  const std::string ending = "/" + header;
  for (const std::string& path : dependencies.paths(Observation::Kind::absent)) {
    if (path.size() < ending.size() ||
        path.compare(path.size() - ending.size(), ending.size(), ending) != 0) {
      continue;
    }
    if (++count <= kMaxPathsShown) {
      paths += "\n  " + context.job.files.real_path(path);
    }
  }
  return paths;
}

std::string version_hint(const FailureContext& context, ByteView log) {
  const std::string headers = header_version(context.identity.install.headers);
  const std::string compiler = major_minor(context.identity.toolchain.version);
  if (headers.empty()) {
    if (!context.identity.headers_problem.empty()) {
      return ". CUDA's headers were not found, and " + context.identity.headers_problem;
    }
    return context.identity.install.headers.empty()
               ? ". CUDA's headers were not found: install nvidia-cuda-runtime or the toolkit, or "
                 "set include_path"
               : "";
  }
  std::string hint = fmt::format(" with CUDA {} headers", headers);
  if (headers != compiler) {
    hint += fmt::format(
        " from {}. {}These headers are of another version than NVRTC {}: install both from one "
        "version of CUDA, or set include_path or nvrtc_library",
        context.identity.install.headers.front(),
        log.find(kToolkitRoot) != ByteView::npos ? "The error is inside those headers. " : "",
        compiler);
  }
  return hint;
}

/// True for a header of the host's standard library. Those of C++ have no file extension.
bool is_standard(const std::string& header) {
  static constexpr std::string_view kCHeaders[] = {"assert.h", "float.h",  "inttypes.h", "limits.h",
                                                   "math.h",   "stddef.h", "stdint.h",   "stdio.h",
                                                   "stdlib.h", "string.h"};
  return header.find_first_of("./") == std::string::npos ||
         std::find(std::begin(kCHeaders), std::end(kCHeaders), header) != std::end(kCHeaders);
}

/// True for a header of a library that has host code only.
bool is_of_host_library(const std::string& header) {
  static constexpr std::string_view kPrefixes[] = {
      "ATen/", "Python.h",    "boost/", "c10/",          "cublas",   "cudnn",
      "fmt/",  "gtest/",      "nccl",   "nlohmann/json", "pybind11", "spdlog",
      "sys/",  "tensorflow/", "torch/", "tvm/",          "unistd.h", "windows.h"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return header.starts_with(prefix); });
}

/// True for a header of CCCL, which CUDA's wheels have in a package of its own.
bool is_of_cccl(const std::string& header) {
  static constexpr std::string_view kFolders[] = {"cuda/", "cub/", "thrust/", "nv/"};
  return std::any_of(std::begin(kFolders), std::end(kFolders),
                     [&](std::string_view folder) { return header.starts_with(folder); });
}

constexpr const char* kHostCodeElsewhere =
    "NVRTC compiles device code only: move host code to another file, or put it between "
    "#ifndef __CUDACC_RTC__ and #endif";

/// Says why NVRTC does not have a header and what to do, if the name tells.
std::string missing_header_hint(const std::string& header, const FailureContext& context) {
  if (is_of_host_library(header)) {
    return fmt::format(". It is a header for hosts. {}", kHostCodeElsewhere);
  }
  if (is_of_cccl(header)) {
    return ". It is a header of CCCL: install nvidia-cuda-cccl or the toolkit, a newer version if "
           "one is installed, or set include_path";
  }
  if (!is_standard(header)) {
    return {};
  }
  const std::string name = header.size() > 2 && header.compare(header.size() - 2, 2, ".h") == 0
                               ? "c" + header.substr(0, header.size() - 2)
                               : header;
  std::string instead =
      fmt::format(", and CUDA has no <cuda/std/{}>: include <{}> in host code only", name, header);
  for (const std::string& folder : context.identity.install.headers) {
    for (const char* below : {"cuda/std", "cccl/cuda/std"}) {
      if (::access(join_path(join_path(folder, below), name).c_str(), R_OK) == 0) {
        instead = fmt::format(": include <cuda/std/{}>", name);
      }
    }
  }
  if (std_header(header)) {  // it would have been found
    instead = ", and std_shims is off: leave out --no-std-shims" +
              (instead.front() == ':' ? ", or" + instead.substr(1) : std::string());
  }
  return ". NVRTC has no host standard library" + instead;
}

constexpr std::string_view kUnresolvedFunction = "Unresolved extern function '";

/// True if a line that begins with kUnresolvedFunction names a function of std: `_ZNSt…`,
/// `_ZStls…`, or that of a class with an abbreviation, as `_ZNSs…` is one of std::string.
bool is_of_std(ByteView line) {
  ByteView name = line.substr(kUnresolvedFunction.size());
  for (const std::string_view prefix : {"_Z", "N", "K"}) {
    name.remove_prefix(name.starts_with(prefix) ? prefix.size() : 0);
  }
  return name.size() > 1 && name[0] == 'S' &&
         std::string_view("tabsiod").find(name[1]) != std::string_view::npos;
}

/// Returns the header of CUB or Thrust, `thrust/sort.h`, whose host code is the first error; empty
/// if that is another.
std::string host_header_of_cccl(ByteView log) {
  const std::size_t error = log.find("): error: ");
  const std::size_t line = error == ByteView::npos ? error : log.rfind('\n', error) + 1;
  if (line == ByteView::npos) {
    return {};
  }
  const std::string_view text = log.substr(line, log.find('\n', error) - line);
  const std::string_view path = text.substr(0, text.find('('));
  if (text.find("not allowed in JIT mode") == std::string_view::npos) {
    return {};
  }
  for (const std::string_view folder : {"/thrust/", "/cub/"}) {
    if (const std::size_t at = path.find(folder); at != std::string_view::npos) {
      return std::string(path.substr(at + 1));
    }
  }
  return {};
}

/// Says what to do about host code in the sources. NVRTC's own advice, -default-device, does not
/// help with a launch or main().
std::string host_code_hint(const FailureContext& context, ByteView log) {
  const auto says = [&](std::string_view text) { return log.find(text) != ByteView::npos; };
  if (const std::string header = host_header_of_cccl(log); !header.empty()) {
    return fmt::format(
        ". It includes a header of CCCL that is for hosts: {} has host code. <cub/cub.cuh>, "
        "<cub/device/…> and the algorithms and containers of Thrust are such; include what the "
        "kernels use, as <cub/block/block_reduce.cuh> or <thrust/tuple.h>",
        header);
  }
  if (says("host functions are not allowed in JIT mode") ||
      says("device-side kernel launch could not be processed")) {
    const std::vector<VirtualSource>& sources = context.job.input.request.sources;
    const bool launches = std::any_of(sources.begin(), sources.end(), [](const auto& source) {
      const ByteView text = source.text.view();
      return text.find("<<<") != ByteView::npos || text.find(" main(") != ByteView::npos;
    });
    return launches ? fmt::format(
                          ". It has a launch (<<<>>>) or main(), for which -default-device does "
                          "not help. {}",
                          kHostCodeElsewhere)
                    : fmt::format(
                          ". A function without __device__ is host code, unless the flag "
                          "-default-device is given. {}",
                          kHostCodeElsewhere);
  }
  const std::size_t at = log.find(kUnresolvedFunction);
  if (says("incomplete type \"std::") || (at != ByteView::npos && is_of_std(log.substr(at)))) {
    return ". Streams, strings and containers of std are declared for host functions only: device "
           "code cannot use them";
  }
  if (at != ByteView::npos) {
    return ". No source of the module defines it: to link sources that are compiled by themselves, "
           "and objects, set link (--link rdc, or -rdc=true among the flags)";
  }
  return {};
}

/// Lists the name expressions that NVRTC could not resolve, and the kernels that the sources have.
std::string unresolved(const FailureContext& context, ByteView log) {
  const std::vector<std::string> names = unresolved_names(log);
  if (names.empty()) {
    return {};
  }
  std::vector<std::string> kernels;
  std::string files;
  for (const VirtualSource& source : context.job.input.request.sources) {
    const std::vector<std::string> found = kernels_in(source.text.view());
    kernels.insert(kernels.end(), found.begin(), found.end());
    const std::string path = context.job.files.real_path(source.path);
    files += (files.empty() ? "" : ", ") + path.substr(path.rfind('/') + 1);
  }
  return fmt::format(". No kernel {} in {}: it has {}", fmt::join(names, ", "), files,
                     kernels.empty() ? "none" : fmt::format("{}", fmt::join(kernels, ", ")));
}

}  // namespace

Error out_of_memory(const FailureContext& context) {
  if (context.job.failure_kind != nullptr) {
    *context.job.failure_kind = CompileFailureKind::out_of_memory;
  }
  if (context.memory_bytes == 0) {
    return make_error(ErrorCode::timeout,
                      "compiling {} needs more memory than this machine has available",
                      context.job.input.label);
  }
  return make_error(ErrorCode::timeout,
                    "compiling {} needs more than the limit of {} MiB for one compile; raise {}",
                    context.job.input.label, context.memory_bytes >> 20, context.memory_setting);
}

Error worker_failed(const FailureContext& context, const WorkerReply& reply) {
  const std::string& label = context.job.input.label;
  const ToolIdentity& tool = context.linker != nullptr ? *context.linker : context.identity;
  switch (reply.failure) {
    case WorkerFailure::timeout:
      return make_error(ErrorCode::timeout,
                        "compiling {} took longer than {} ms and was stopped; raise "
                        "compile_timeout if it needs more",
                        label, context.job.input.timeout.count());
    case WorkerFailure::cancelled:
      return make_error(ErrorCode::timeout, "compiling {} was cancelled", label);
    case WorkerFailure::crashed:
      if (reply.crash.out_of_memory != 0) {
        return out_of_memory(context);
      }
      if (reply.crash.out_of_threads != 0) {
        return out_of_threads(context);
      }
      return make_error(ErrorCode::internal, "{} {} crashed while it {} {}: {}{}{}",
                        name_of(tool.tool), tool.toolchain.version,
                        context.linker != nullptr ? "linked" : "compiled", label,
                        signal_name(reply.crash.signal),
                        reply.crash.stack_overflow != 0 ? ", its stack of 64 MiB overflowed" : "",
                        context.stderr_tail);
    case WorkerFailure::closed:
      return make_error(ErrorCode::internal,
                        "the compile worker ended while it compiled {}: it was killed, or the "
                        "machine ran out of memory{}",
                        label, context.stderr_tail);
    case WorkerFailure::none:
    case WorkerFailure::protocol_error: break;
  }
  return make_error(ErrorCode::internal,
                    "the compile worker sent an unexpected message while it compiled {}: expected "
                    "the worker that was built with this library",
                    label);
}

Error compile_failed(const FailureContext& context, const wire::Compiled& compiled, ByteView log,
                     const DependencySet& dependencies) {
  const std::string& label = context.job.input.label;
  const std::string& version = context.identity.toolchain.version;
  if (compiled.status == wire::CompileStatus::out_of_memory) {
    return out_of_memory(context);
  }
  std::string real_log = context.job.files.with_real_paths(log);
  if (compiled.nvrtc_code == kNvrtcBuiltins) {
    return Error(ErrorCode::incompatible,
                 fmt::format("NVRTC {} cannot use its builtins library {}: both must be from one "
                             "version of CUDA",
                             version, context.identity.install.builtins),
                 std::move(real_log));
  }
  if (compiled.nvrtc_code == kNvrtcInvalidOption &&
      log.find("--gpu-architecture") != ByteView::npos) {
    return make_error(ErrorCode::invalid_argument,
                      "NVRTC {} does not support the target {}, requested for {}", version,
                      context.job.input.request.target.name(), label);
  }
  if (compiled.status == wire::CompileStatus::unusable) {
    return Error(ErrorCode::compile_failed,
                 fmt::format("NVRTC {} rejected {} for {}: {}", version, label,
                             context.job.input.request.target.name(), compiled.nvrtc_text),
                 std::move(real_log));
  }
  std::string message = fmt::format("{} does not compile for {} (NVRTC {}", label,
                                    context.job.input.request.target.name(), version);
  message += version_hint(context, log) + ")";
  if (const std::string_view error = error_below_warnings(real_log); !error.empty()) {
    message += fmt::format(": {}", error);
  }
  if (const std::string header = missing_header(log); !header.empty()) {
    const std::string paths = searched_paths(header, context, dependencies);
    message += fmt::format(". {} is in none of the searched folders{}{}", header,
                           paths.empty() ? "" : ":", paths);
    message += missing_header_hint(header, context);
  }
  message += unresolved(context, log);
  message += host_code_hint(context, log);
  return Error(ErrorCode::compile_failed, std::move(message), std::move(real_log));
}

}  // namespace cukiln
