// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/mutex.hpp"
#include "compile/compiler.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

/// The compilers that a request may be looked up for: the one that is here for the target; where
/// there is none, those that the store's entries were made by (a container without NVRTC still
/// hits). Threads: safe. Store and compiler outlive it.
class Toolchains {
 public:
  Toolchains(CubinStore& store, Compiler& compiler) : store_(store), compiler_(compiler) {}

  /// Errors: the compiler's, when the store knows none either.
  Result<std::vector<Toolchain>> usable_for(Target target);

 private:
  CubinStore& store_;
  Compiler& compiler_;
  Mutex mutex_;
  std::vector<Toolchain> stored_;  // only where there is no compiler
};

}  // namespace cukiln
