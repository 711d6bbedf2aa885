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
#include <utility>

#include "core/base/logger.hpp"
#include "core/compile/compile_budget.hpp"
#include "core/compile/compiler.hpp"
#include "core/compile/nvrtc_library.hpp"
#include "core/compile/toolchain_identity.hpp"
#include "core/compile/worker_process.hpp"
#include "core/key/stat_cache.hpp"

namespace cukiln {

template <class T>
class ProcessLocal;
struct LinkTool;

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
  const LinkTool* link = nullptr;  ///< null: it does not link
  Logger log;
};

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

  /// Finds NVRTC, or the nvJitLink for it, and probes it if the stat cache does not have it. Cached
  /// afterwards. Errors: as toolchain() and linker().
  Result<ToolIdentity> identity(Tool tool = Tool::nvrtc);

 private:
  struct ToolState;
  struct State;
  struct Run;
  ToolState& state_of(Tool tool);
  template <class Take>
  auto from_identity(Tool tool, const Take& take)
      -> Result<decltype(take(std::declval<const ToolIdentity&>()))>;
  Result<void> identify(ToolState& own, ToolIdentity& found);
  Result<NvrtcInstall> find_install(Tool tool);
  Result<WorkerOptions> worker_options(const ToolIdentity& identity) const;
  Result<void> probe_once(ToolState& own, ToolIdentity& found);
  Result<void> probe(ToolState& own, ToolIdentity& found);
  Result<std::unique_ptr<WorkerProcess>> start_worker(ToolState& own, const Run& run);
  std::size_t max_idle();
  std::uint64_t worker_memory() const;
  void add_bundled_headers(ToolIdentity& found);

  const NvrtcCompilerOptions options_;
  const std::shared_ptr<CompileBudget> budget_;
  std::atomic<std::size_t> upcoming_{1};
  const std::unique_ptr<ProcessLocal<State>> state_;
};

}  // namespace cukiln
