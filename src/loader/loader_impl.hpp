// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/logger.hpp"
#include "base/mutex.hpp"
#include "base/process_local.hpp"
#include "compile/compiler.hpp"
#include "driver/device_contexts.hpp"
#include "driver/module.hpp"
#include "loader/builder.hpp"
#include "loader/counters.hpp"
#include "loader/module_request.hpp"
#include "loader/recorder.hpp"
#include "loader/toolchains.hpp"
#include "store/tiered_store.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

inline Milliseconds time_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::steady_clock::now() - start;
}

/// What a KernelLoader is made of. Its steps are here (loader_impl.cpp), a preload that takes them
/// for a whole manifest (preload.cpp), the façade above them (kernel_loader.cpp) and the comparison
/// of entries (explain.cpp) use them.
struct KernelLoader::Impl {
  Impl(Store& opened, LoaderOptions given);
  ~Impl();

  /// The driver, opened at the first need. Errors: driver, incompatible.
  Result<std::shared_ptr<const DriverApi>> driver();
  /// The visible devices, or those of `ordinals`. Errors: invalid_argument (no such device).
  Result<std::vector<DeviceInfo>> devices(const std::vector<int>& ordinals);

  /// The targets of a spec: its own, else the devices', else sm_100a.
  Result<std::vector<Target>> targets_of(const ModuleSpec& spec,
                                         const std::vector<DeviceInfo>& available);

  /// A spec's request for a target, and what the store has for it.
  struct Sought {
    ModuleRequest request;
    Builder::Found found;
  };
  Result<Sought> seek(const ModuleSpec& spec, Target target,
                      Builder::Purpose purpose = Builder::Purpose::use);

  /// Logs flags that have no effect here, each once.
  void report_dropped(const std::vector<std::string>& flags);

  /// `sealed` when sealed with `fail`; counts and logs when sealed with `warn`.
  Result<void> check_seal(const char* what, const std::string& name);

  /// What was found, or else a compile; fills in the report. `cancelled`: as `Builder::build`.
  Result<Built> provide(const ModuleRequest& request, Builder::Found found, ModuleReport& report,
                        const std::atomic<bool>* cancelled = nullptr);

  /// Images that no tier kept (a source with __TIME__, an unobserved compile), for `cubin()`.
  void keep_unstored(const StoreEntry& entry);
  std::optional<SharedBytes> unstored(const CacheKey& key);

  /// The module of a built entry on those devices of `site` that it runs on; once per key. Rebuilds
  /// an image that the driver refuses, once. Where one call loads to. The contexts are opened at
  /// the first need and serve all its modules.
  struct LoadSite {
    std::vector<DeviceInfo> chosen;
    Stream capture_guard = nullptr;
    const std::atomic<bool>* cancelled = nullptr;  ///< the call's; may be null
    std::map<std::vector<int>, std::shared_ptr<const DeviceContexts>> contexts;
  };
  Result<std::shared_ptr<Module>> load(const ModuleRequest& request, Built& built, LoadSite& site,
                                       ModuleReport& report);

  /// Removes a loaded module's kernels from the table and unloads it. Errors: not_found.
  Result<void> unload(const CacheKey& key);

  Result<PreloadReport> preload(const Manifest& manifest, const PreloadOptions& preload_options,
                                const Progress& progress);
  /// `preload`, with its duration in the telemetry, which is flushed.
  Result<PreloadReport> timed_preload(const Manifest& manifest,
                                      const PreloadOptions& preload_options,
                                      const Progress& progress);

  /// Hands on what was measured: to cukilnd where a connection to it is open anyway, else to the
  /// store's counters, which are written with its next write. Waits for nobody.
  void hand_on_meters();
  /// The same for all that was counted and learned; once, at the end.
  void hand_on_counters();

  /// Puts a module's kernels into the table, with ids when `with_ids`.
  void publish(const std::string& module_name, Target target, const std::vector<Kernel>& kernels,
               bool with_ids);

  TieredStore& tiers;
  const LoaderOptions options;
  const Logger log;
  Counters counters;
  Recorder recorder;
  StatCache stat_cache;
  std::unique_ptr<Compiler> compiler;
  std::unique_ptr<Toolchains> toolchains;
  std::unique_ptr<Builder> builder;
  KernelTable table;

  enum Seal : int { open = 0, sealed_fail = 1, sealed_warn = 2 };
  std::atomic<int> seal_state{open};

 private:
  struct Driver {
    Mutex mutex;  // held while it is opened
    std::shared_ptr<const DriverApi> api;
    std::vector<DeviceInfo> devices;
  };
  ProcessLocal<Driver> driver_;  // CUDA does not survive a fork
  Mutex reported_mutex_;
  std::set<std::string> reported_flags_;
  Mutex modules_mutex_;
  std::unordered_map<CacheKey, std::shared_ptr<Module>> modules_;
  std::unordered_map<CacheKey, SharedBytes> unstored_;
};

}  // namespace cukiln
