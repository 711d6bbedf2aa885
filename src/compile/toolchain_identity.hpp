// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/file.hpp"
#include "compile/nvrtc_compiler.hpp"
#include "compile/worker_process.hpp"

namespace cukiln {

/// What tells one NVRTC from another without opening it.
struct LibraryStamps {
  FileStamp library;
  FileStamp builtins;
  friend bool operator==(const LibraryStamps&, const LibraryStamps&) = default;
};
Result<LibraryStamps> stamps_of(const NvrtcInstall& install);

/// From the stat cache when the libraries' stamps are in it; NVRTC is not touched then.
bool recall_identity(StatCache* stats, const LibraryStamps& stamps, NvrtcIdentity& identity);

/// Asks a worker for the version, and whether it sees what NVRTC reads, and hashes the libraries
/// meanwhile. Gives back `count` workers, null where one could not be had: each has compiled the
/// probe, so that none pays for its first compile when it matters.
/// Errors: incompatible (builtins of another version), not_found, io, timeout, internal.
Result<std::vector<std::unique_ptr<WorkerProcess>>> measure_identity(const WorkerOptions& options,
                                                                     std::size_t count,
                                                                     StatCache* stats,
                                                                     const LibraryStamps& stamps,
                                                                     NvrtcIdentity& identity);

}  // namespace cukiln
