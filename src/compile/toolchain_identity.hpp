#pragma once

#include <string>

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
/// meanwhile. Errors: incompatible (builtins of another version), io, timeout.
Result<void> measure_identity(WorkerProcess& worker, StatCache* stats, const LibraryStamps& stamps,
                              NvrtcIdentity& identity);

}  // namespace cukiln
