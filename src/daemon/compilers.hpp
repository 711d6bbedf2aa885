// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.hpp"
#include "compile/compiler.hpp"
#include "compile/nvrtc_compiler.hpp"
#include "key/stat_cache.hpp"
#include "store/tiered_store.hpp"
#include "wire/daemon_messages.hpp"

#include <cukiln/loader.hpp>

namespace cukiln::daemon {

/// The NVRTCs of a daemon. A daemon of one user opens the NVRTC that the client names, which the
/// client could run itself. A system daemon opens only its own, because the library would run as
/// the daemon's user, and declines requests for another. Threads: safe.
class Compilers {
 public:
  /// `worker_socket`: see WorkerOptions::socket; may be empty.
  Compilers(LoaderOptions options, std::string worker_socket, bool system, TieredStore& store);

  /// The compiler for an order. Errors: incompatible (no NVRTC is the one that the request names),
  /// and the compiler's.
  Result<Compiler*> for_order(const wire::CompileOrder& order);

  /// Describes the daemon's own NVRTC: `nvrtc 13.0.88`. Errors: the compiler's.
  Result<std::string> describe();

  /// The user of the worker that started last; `DaemonSnapshot::kNoUser` if none has.
  std::uint32_t worker_user() const noexcept {
    return worker_user_.load(std::memory_order_relaxed);
  }

 private:
  NvrtcCompilerOptions worker_options();
  Result<Compiler*> compiler_of_client(const wire::CompileOrder& order);

  const LoaderOptions options_;
  const std::string worker_socket_;
  const bool is_system_;
  TieredStore& store_;
  StatCache stats_;
  std::atomic<std::uint32_t> worker_user_ = wire::DaemonSnapshot::kNoUser;
  const std::shared_ptr<CompileBudget> budget_;  ///< of all of them
  const std::unique_ptr<Compiler> default_compiler_;
  Mutex mutex_;
  /// By the paths of library and builtins.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Compiler>> client_compilers_
      CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln::daemon
