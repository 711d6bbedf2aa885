// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/base/file.hpp"
#include "core/compile/nvrtc_library.hpp"
#include "core/compile/worker_process.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/stat_cache.hpp"

namespace cukiln {

/// What a worker runs.
enum class Tool { nvrtc, nvjitlink };
const char* name_of(Tool tool) noexcept;  ///< `NVRTC`, `nvJitLink`

/// The stamps of a tool's files, which distinguish one from another without opening it.
struct LibraryStamps {
  FileStamp library;
  FileStamp builtins;
  friend bool operator==(const LibraryStamps&, const LibraryStamps&) = default;
};
/// Stats the files. Errors: not_found.
Result<LibraryStamps> stamps_of(const NvrtcInstall& install);

/// An installed NVRTC or nvJitLink, for compiles and for `doctor`.
struct ToolIdentity {
  Tool tool = Tool::nvrtc;
  NvrtcInstall install;  ///< of nvJitLink the library only
  LibraryStamps stamps;
  Toolchain toolchain;
  std::string headers_problem;  ///< why the headers that NVRTC carries cannot be used; may be empty
  std::vector<Target> targets;  ///< all that NVRTC knows; none if it cannot list them
  bool observed = true;         ///< false if it reads files in a way that the worker cannot observe
};

/// Completes `identity`, whose install and stamps are set, from the stat cache without opening the
/// library. False if the cache does not have the stamps.
bool recall_tool(StatCache* stats, ToolIdentity& identity);

/// Completes `identity`, whose install and stamps are set, by a probe in a worker, which reports
/// the version and whether it observes the library's file accesses; the library is hashed at the
/// same time. Returns `count` workers (null for each that could not be started). Each has run the
/// probe, so that its first real job is not its slowest. Errors: incompatible (builtins of another
/// version, no target to link for), not_found, io, timeout, internal.
Result<std::vector<std::unique_ptr<WorkerProcess>>> probe_tool(const WorkerOptions& options,
                                                               std::size_t count, StatCache* stats,
                                                               ToolIdentity& identity);

}  // namespace cukiln
