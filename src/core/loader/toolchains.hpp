// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/compile/compiler.hpp"
#include "core/store/cubin_store.hpp"

#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// A target that an installed NVRTC knows, with that NVRTC's toolchain.
struct ChosenTarget {
  Target target;
  Toolchain toolchain;
  Toolchain linker = {};  ///< nvJitLink; of a module that links
};

/// Chooses what is compiled for a wanted target: the target itself if an NVRTC knows it, else the
/// first of its families that one knows (see target_and_families). Errors: those of
/// Compiler::toolchain; invalid_argument, listing the targets that exist.
Result<ChosenTarget> choose_target(Compiler& compiler, Target wanted);

/// Chooses the targets and toolchains for which a request is looked up: what the installed compiler
/// makes for a wanted target, or, if there is none, each of the target and its families with those
/// of the store's entries, so that a container without NVRTC hits. Threads:
/// safe. Store and compiler must outlive it.
class Toolchains {
 public:
  Toolchains(ObjectTier& store, Compiler& compiler) : store_(store), compiler_(compiler) {}

  /// For a module that `links` each has a linker. Errors: those of choose_target and of
  /// Compiler::linker, if the store has no entry either; invalid_argument (NVRTC knows neither the
  /// target nor a family of it).
  Result<std::vector<ChosenTarget>> usable_for(Target wanted, bool links = false);

 private:
  struct Stored {
    Toolchain toolchain;
    std::optional<Toolchain> linker;
  };
  /// Returns the toolchains of the store's entries, with the linkers of those that were linked.
  Result<std::vector<Stored>> of_entries();

  ObjectTier& store_;
  Compiler& compiler_;
  Mutex mutex_;
  std::vector<Stored> stored_ CUKILN_GUARDED_BY(mutex_);  // empty if there is a compiler
};

}  // namespace cukiln
