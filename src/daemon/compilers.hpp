// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.hpp"
#include "compile/compiler.hpp"
#include "key/stat_cache.hpp"
#include "store/tiered_store.hpp"
#include "wire/daemon_messages.hpp"

#include <cukiln/loader.hpp>

namespace cukiln::daemon {

/// The NVRTCs of a daemon. For one user: whichever the client names, which is as much as the client
/// could run itself. For a system: the daemon's own, and a request that was keyed with another is
/// declined, because what a client names would run as the daemon. Threads: safe.
class Compilers {
 public:
  Compilers(LoaderOptions options, bool system, TieredStore& store);

  /// Errors: incompatible (no NVRTC here is the one that the request names), and the compiler's.
  Result<Compiler*> for_order(const wire::CompileOrder& order);

  /// The daemon's own, for people: `nvrtc 13.0.88`. Errors: the compiler's.
  Result<std::string> describe();

 private:
  Result<Compiler*> given(const wire::CompileOrder& order);

  const LoaderOptions options_;
  const bool system_;
  TieredStore& store_;
  StatCache stats_;
  const std::unique_ptr<Compiler> own_;
  Mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Compiler>> given_;
};

}  // namespace cukiln::daemon
