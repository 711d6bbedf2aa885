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
#include "compile/compiler.hpp"
#include "compile/nvrtc_library.hpp"
#include "compile/worker_process.hpp"
#include "key/stat_cache.hpp"

namespace cukiln {

template <class T>
class ProcessLocal;

struct NvrtcCompilerOptions {
  NvrtcSearch search;
  std::optional<NvrtcInstall> install;  ///< found already: nothing is searched
  std::string worker;                   ///< the executable; empty: see find_worker
  std::uint64_t memory_bytes = 8ull << 30;
  unsigned max_idle_workers = 0;  ///< 0: one per core
  std::chrono::seconds worker_idle{10};
  StatCache* stats = nullptr;  ///< remembers NVRTC's version and digest; may be null
  /// Where processes that do not know this NVRTC agree on one that finds out; empty: each does.
  std::string lock_directory;
  /// Called when that is known: what is new in `stats` is to be where the other processes look.
  std::function<void()> save_stats;
  Logger log;
};

/// NVRTC as it is installed: what `doctor` shows.
struct NvrtcIdentity {
  NvrtcInstall install;
  Toolchain toolchain;
  bool observed = true;  ///< false: NVRTC reads files where the worker cannot see it
};

/// Compiles in worker processes that it starts, keeps for a while, and ends. It has no thread of
/// its own: the calling thread answers its worker's questions. After a fork the child starts anew
/// and leaves the parent's workers alone.
class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(NvrtcCompilerOptions options);
  ~NvrtcCompiler() override;

  Result<Toolchain> toolchain() override;
  void hint_upcoming(std::size_t compiles) override { expected_.store(compiles); }
  std::vector<std::string> toolkit_folders() override;
  Result<CompileOutcome> compile(const CompileJob& job) override;

  Result<NvrtcIdentity> identity();

 private:
  struct State;
  struct Run;
  State& state();
  WorkerOptions worker_options(std::string path, const NvrtcInstall& install) const;
  Result<void> measure_once(State& own, NvrtcIdentity& found);
  Result<void> measure(State& own, NvrtcIdentity& found);

  const NvrtcCompilerOptions options_;
  const std::size_t max_idle_;  ///< workers
  std::atomic<std::size_t> expected_{1};
  const std::unique_ptr<ProcessLocal<State>> state_;
};

}  // namespace cukiln
