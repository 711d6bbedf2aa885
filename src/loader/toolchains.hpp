// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/mutex.hpp"
#include "compile/compiler.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

/// Chooses the toolchains for which a request is looked up: that of the installed compiler, or, if
/// there is none, those of the store's entries, so that a container without NVRTC hits. Threads:
/// safe. Store and compiler must outlive it.
class Toolchains {
 public:
  Toolchains(CubinStore& store, Compiler& compiler) : store_(store), compiler_(compiler) {}

  /// Errors: the compiler's, if the store has no entry either.
  Result<std::vector<Toolchain>> usable_for(Target target);

 private:
  CubinStore& store_;
  Compiler& compiler_;
  Mutex mutex_;
  std::vector<Toolchain> stored_ CUKILN_GUARDED_BY(mutex_);  // empty if there is a compiler
};

}  // namespace cukiln
