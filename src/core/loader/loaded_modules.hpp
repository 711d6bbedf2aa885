// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/driver/module.hpp"
#include "core/loader/module_request.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/module_spec.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Loads the image of an entry, with its kernels in the order of the request. Errors: as
/// LoadedModule::load.
Result<std::shared_ptr<LoadedModule>> load_image(const ModuleRequest& request,
                                                 const StoreEntry& entry,
                                                 std::shared_ptr<const DriverApi> api,
                                                 std::shared_ptr<const DeviceContexts> contexts,
                                                 Stream capture_guard);

/// The spec with which a module can be compiled again, wherever the process's folder is then; null
/// if a text of it is in memory.
std::shared_ptr<const ModuleSpec> spec_to_reload(const ModuleRequest& request);

/// The modules that a loader has loaded, by the key of what their kernels run now, and the modules
/// that took their place in a watch and stay loaded with them. Threads: safe.
class LoadedModules {
 public:
  struct Loaded {
    std::uint64_t id = 0;  ///< no other's
    CacheKey key;          ///< of what the kernels run now
    CacheKey first_key;    ///< that of `module`'s own image
    std::shared_ptr<LoadedModule> module;
    /// What to compile again after an edit; null: nothing could have been edited.
    std::shared_ptr<const ModuleSpec> spec;
    std::vector<std::shared_ptr<LoadedModule>> versions;  ///< what took its place, kept loaded
  };

  /// A module with this key; null if there is none.
  std::shared_ptr<LoadedModule> find(const CacheKey& key);
  /// Adds a module, unless there is one with its key already; returns the one that is there.
  std::shared_ptr<LoadedModule> add(const CacheKey& key, std::shared_ptr<LoadedModule> module,
                                    std::shared_ptr<const ModuleSpec> spec);
  /// Removes the modules that were added with a key, or run what has it.
  std::vector<Loaded> remove(const CacheKey& key);

  /// One that has a spec.
  struct Watched {
    std::uint64_t id = 0;
    CacheKey key;
    std::shared_ptr<const ModuleSpec> spec;
  };
  std::vector<Watched> watched();
  /// A module; null if it was removed.
  std::shared_ptr<LoadedModule> find(std::uint64_t id);
  /// A loaded image with this key, whose kernels may run others now, on the devices of `module`;
  /// null if there is none.
  std::shared_ptr<LoadedModule> image(const CacheKey& key, const LoadedModule& module);
  /// How many images are loaded only because they took, or take, another's place.
  std::size_t versions();
  /// Has the kernels of a module run the image `next` from now on, under its key. Does nothing if
  /// the module was removed. Errors: those of LoadedModule::exchange.
  Result<void> exchange(std::uint64_t id, const CacheKey& key,
                        const std::shared_ptr<LoadedModule>& next);

  /// Sets an eventfd that is written when a module is added; -1: none.
  void set_wake(int descriptor);

 private:
  // Two modules may come to run the same, by edits. One whose sources have more kernels by now than
  // it had has no key here, so that the next request for it loads them all.
  using ByKey = std::unordered_multimap<CacheKey, Loaded>;
  ByKey::iterator at(std::uint64_t id) CUKILN_REQUIRES(mutex_);

  struct Image {
    CacheKey key;
    std::weak_ptr<LoadedModule> module;
    bool is_version = false;
  };

  Mutex mutex_;
  std::vector<Image> images_ CUKILN_GUARDED_BY(mutex_);
  ByKey by_key_ CUKILN_GUARDED_BY(mutex_);
  std::uint64_t last_id_ CUKILN_GUARDED_BY(mutex_) = 0;
  int wake_ CUKILN_GUARDED_BY(mutex_) = -1;
};

}  // namespace cukiln
