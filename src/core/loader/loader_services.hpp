// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/compile_job.hpp"
#include "core/loader/builder.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/remote_tier.hpp"

#include <cukiln/explain.hpp>
#include <cukiln/loader.hpp>

namespace cukiln {

/// The functions of a loader for the programs of this repository, beyond its public members. A
/// view: the loader must outlive it. Threads: safe, except for `set_remote`.
class LoaderServices {
 public:
  explicit LoaderServices(KernelLoader& loader) : loader_(loader) {}

  /// Sets the remote tier, which is asked before a compile. Call it before the first compile. The
  /// tier must outlive the loader.
  void set_remote(RemoteTier* remote) noexcept;

  /// Returns the targets that `compile` and `preload` choose for a module: its own, else the
  /// visible devices', else sm_100a. Errors: invalid_argument (a flag).
  Result<std::vector<Target>> targets_of(const ModuleSpec& module);
  /// As above, without opening the driver.
  Result<std::vector<Target>> targets_without_devices(const ModuleSpec& module);

  /// The result of looking up a module for one target.
  struct Resolved {
    std::string name;                        ///< of the module; its source's if the spec has none
    Target target;                           ///< that was taken: the wanted one or a family of it
    std::optional<CacheKey> entry;           ///< none on a miss
    std::string miss;                        ///< why
    std::optional<Explanation> explanation;  ///< of what is not stored, by the store alone
    bool trusts_recorded_toolkit = false;    ///< a hit that relies on the record of CUDA's headers
  };
  /// Looks up a module without counting a use. Compiles nothing. Errors: invalid_argument,
  /// not_found (of the spec), those of the toolchain.
  Result<Resolved> resolve(const ModuleSpec& module, Target target);

  /// Why no module that is looked up here would find an entry: it is of another NVRTC, or CUDA's
  /// headers are others. Empty if one may. Says nothing about the module's own files.
  std::string toolchain_mismatch(const StoreEntry& entry);

  /// The compiler of a target.
  Compiler& compiler(Target target);
  StatCache& stat_cache();
  /// Returns CUDA's headers of this machine as a compile of the entry would be served them.
  VirtualRoot toolkit_root_of(const StoreEntry& entry, Target target);

  using MakeRequest = std::function<ModuleRequest(const Toolchain& toolchain)>;
  /// Finds the entry of the request that `make` returns for a target's toolchain, or compiles it;
  /// both again, once, if NVRTC is replaced meanwhile. `failure` is set if NVRTC refused a program.
  /// Errors: the compiler's.
  Result<Built> build(Target target, const MakeRequest& make, NvrtcFailure& failure);

  /// Stores what a compile returned besides the entry that was built. If it cannot be stored, a
  /// later build compiles it.
  void put(const StoreEntry& entry);

 private:
  KernelLoader& loader_;
};

}  // namespace cukiln
