// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "addons/daemon/protocol/daemon_messages.hpp"
#include "core/base/mutex.hpp"
#include "core/compile/compiler.hpp"
#include "core/compile/nvrtc_compiler.hpp"
#include "core/key/stat_cache.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/loader.hpp>

namespace cukiln::daemon {

/// The NVRTCs of a daemon: its own, and those that clients name, which they could run themselves.
/// Threads: safe.
class Compilers {
 public:
  Compilers(LoaderOptions options, TieredStore& store);

  /// The compiler for an order. Errors: incompatible (no NVRTC is the one that the request names),
  /// and the compiler's.
  Result<Compiler*> for_order(const wire::CompileOrder& order);

  /// True if a compile of the request that observed this set had the daemon's own NVRTC, and those
  /// headers of CUDA that the daemon finds by its own search: the files were its client's.
  bool have_toolkit_of(const CompileRequest& request, const DependencySet& dependencies);

  /// Describes the daemon's own NVRTC: `nvrtc 13.0.88`. Errors: the compiler's.
  Result<std::string> describe();

 private:
  NvrtcCompilerOptions worker_options();
  Result<Compiler*> compiler_of_client(const wire::CompileOrder& order);

  const LoaderOptions options_;
  TieredStore& store_;
  StatCache stats_;
  const std::shared_ptr<CompileBudget> budget_;  ///< of all of them
  const std::unique_ptr<Compiler> default_compiler_;
  Mutex mutex_;
  /// By the paths of library and builtins.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Compiler>> client_compilers_
      CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln::daemon
