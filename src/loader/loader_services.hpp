// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "store/cubin_store.hpp"
#include "store/remote_tier.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

/// What the programs of this repository need of a loader beyond its public members. A view: the
/// loader outlives it. Threads: safe, but for `set_remote`.
class LoaderServices {
 public:
  explicit LoaderServices(KernelLoader& loader) : loader_(loader) {}

  /// Other machines' results, asked for what is not on this one. Before the first build; outlives
  /// the loader.
  void set_remote(RemoteTier* remote) noexcept;

  /// The targets that `compile` and `preload` choose for a module: its own, else the visible
  /// devices', else sm_100a.
  Result<std::vector<Target>> targets_of(const ModuleSpec& module);
  /// The same without asking for devices.
  Result<std::vector<Target>> targets_without_devices(const ModuleSpec& module);

  /// A module for one target as the store has it.
  struct Resolved {
    std::string name;               ///< of the module; from its source where the spec has none
    std::optional<CacheKey> entry;  ///< nothing: a miss
  };
  /// Looks up, without a use and without a compile. Errors: those of a spec that cannot be compiled
  /// (invalid_argument, not_found), and of the compiler's.
  Result<Resolved> resolve(const ModuleSpec& module, Target target);

  /// A header that is in no folder here.
  struct MemoryHeader {
    std::string path;  ///< below the folder of the sources
    SharedBytes text;
  };
  /// Compiles the source of an entry again, with the recorded flags, for the entry's virtual
  /// architecture. It refuses when a header is not what it was then. Errors: incompatible (several
  /// sources, a header that is not here or has changed), the compiler's.
  Result<std::string> compile_to_ptx(const StoreEntry& entry, const std::string& source_text,
                                     const std::vector<MemoryHeader>& headers);

 private:
  KernelLoader& loader_;
};

}  // namespace cukiln
