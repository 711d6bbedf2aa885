// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/logger.hpp"
#include "compile/compile_budget.hpp"
#include "compile/compiler.hpp"
#include "compile/nvrtc_library.hpp"
#include "compile/worker_process.hpp"
#include "key/stat_cache.hpp"

namespace cukiln {

template <class T>
class ProcessLocal;

struct NvrtcCompilerOptions {
  NvrtcSearch search;
  std::optional<NvrtcInstall> install;      ///< if set, `search` is not used
  std::string worker;                       ///< the executable; if empty, see find_worker
  std::uint64_t memory_bytes = 8ull << 30;  ///< of one worker's address space
  std::shared_ptr<CompileBudget> budget;    ///< of all compilers of the owner; null: one of its own
  std::chrono::seconds worker_idle{10};
  StatCache* stats = nullptr;  ///< remembers NVRTC's version and digest; may be null
  /// The folder of the lock under which one of several processes probes an unknown NVRTC; if empty,
  /// each process probes it.
  std::string lock_folder;
  /// Where the headers that NVRTC carries are installed if no others are found; if empty, they are
  /// not used.
  std::string headers_folder;
  /// Called after a probe, to save the new records of `stats` where other processes find them.
  std::function<void()> save_stats;
  Logger log;
};

/// An installed NVRTC, for compiles and for `doctor`.
struct NvrtcIdentity {
  NvrtcInstall install;
  Toolchain toolchain;
  std::string headers_problem;  ///< why the headers that NVRTC carries cannot be used; may be empty
  std::vector<Target> targets;  ///< all that it knows; none if it cannot list them
  bool observed = true;  ///< false if NVRTC reads files in a way that the worker cannot observe
};

struct LibraryStamps;
struct LinkerIdentity;

/// Compiles, and links, in worker processes, which it starts, keeps for the next compiles, and
/// ends. It has no thread of its own: the calling thread answers its worker's questions. After a
/// fork the child starts workers of its own and leaves the parent's alone. Threads: safe; each
/// running call has a worker of its own.
class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(NvrtcCompilerOptions options);
  ~NvrtcCompiler() override;

  Result<Toolchain> toolchain() override;
  Result<Toolchain> linker() override;
  Result<std::vector<Target>> targets() override;
  void hint_upcoming(std::size_t compiles) override { upcoming_.store(compiles); }
  std::vector<std::string> toolkit_folders() override;
  Result<CompileOutcome> compile(const CompileJob& job) override;

  /// Finds NVRTC, and probes it if the stat cache does not have it. Cached afterwards.
  Result<NvrtcIdentity> identity();
  /// The same for nvJitLink. Errors: as linker().
  Result<LinkerIdentity> linker_identity();

 private:
  struct State;
  struct Run;
  State& state();
  Result<NvrtcInstall> find_install() const;
  Result<WorkerOptions> worker_options(const NvrtcInstall& install) const;
  Result<void> probe_once(State& own, const LibraryStamps& stamps, NvrtcIdentity& found);
  Result<void> probe(State& own, const LibraryStamps& stamps, NvrtcIdentity& found);
  Result<std::unique_ptr<WorkerProcess>> start_worker(State& own, const Run& run);
  std::size_t max_idle();
  std::uint64_t worker_memory() const;
  void add_bundled_headers(NvrtcIdentity& found);

  const NvrtcCompilerOptions options_;
  const std::shared_ptr<CompileBudget> budget_;
  std::atomic<std::size_t> upcoming_{1};
  const std::unique_ptr<ProcessLocal<State>> state_;
};

}  // namespace cukiln
