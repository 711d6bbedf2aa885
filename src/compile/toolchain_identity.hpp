// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/file.hpp"
#include "compile/nvrtc_compiler.hpp"
#include "compile/worker_process.hpp"

namespace cukiln {

/// The stamps of NVRTC's files, which distinguish one NVRTC from another without opening it.
struct LibraryStamps {
  FileStamp library;
  FileStamp builtins;
  friend bool operator==(const LibraryStamps&, const LibraryStamps&) = default;
};
/// Stats the files. Errors: not_found.
Result<LibraryStamps> stamps_of(const NvrtcInstall& install);

/// Completes `identity` from the stat cache, without opening NVRTC. False if the cache does not
/// have the libraries' stamps.
bool recall_toolchain(StatCache* stats, const LibraryStamps& stamps, NvrtcIdentity& identity);

/// Completes `identity` by a probe in a worker, which reports NVRTC's version and whether it
/// observes NVRTC's file accesses; the libraries are hashed at the same time. Returns `count`
/// workers (null for each that could not be started). Each has compiled the probe, so that its
/// first real compile is not its slowest. Errors: incompatible (builtins of another version),
/// not_found, io, timeout, internal.
Result<std::vector<std::unique_ptr<WorkerProcess>>> probe_toolchain(const WorkerOptions& options,
                                                                    std::size_t count,
                                                                    StatCache* stats,
                                                                    const LibraryStamps& stamps,
                                                                    NvrtcIdentity& identity);

/// An nvJitLink.
struct LinkerIdentity {
  std::string library;
  FileStamp stamp;  ///< of the library
  Toolchain toolchain;
  bool observed = true;  ///< false if it reads files in a way that the worker cannot observe
};

/// Stats nvJitLink's library. Errors: not_found.
Result<FileStamp> stamp_of_linker(const std::string& library);

/// Completes `identity`, whose library and stamp are set, as `recall_toolchain` does.
bool recall_linker(StatCache* stats, LinkerIdentity& identity);

/// The same by a probe in a worker, which is returned, and by hashing the library. Errors: as
/// probe_toolchain.
Result<std::unique_ptr<WorkerProcess>> probe_linker_toolchain(const WorkerOptions& options,
                                                              StatCache* stats,
                                                              LinkerIdentity& identity);

}  // namespace cukiln
