// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/event_queue.hpp"
#include "core/base/logger.hpp"
#include "core/base/mutex.hpp"
#include "core/base/nvtx.hpp"
#include "core/base/process_local.hpp"
#include "core/compile/compile_budget.hpp"
#include "core/compile/compiler.hpp"
#include "core/driver/device_contexts.hpp"
#include "core/driver/module.hpp"
#include "core/loader/builder.hpp"
#include "core/loader/fixed_blobs.hpp"
#include "core/loader/flag_notices.hpp"
#include "core/loader/loaded_modules.hpp"
#include "core/loader/loader_telemetry.hpp"
#include "core/loader/module_request.hpp"
#include "core/loader/phase_meter.hpp"
#include "core/loader/recorder.hpp"
#include "core/loader/seal.hpp"
#include "core/loader/start_record.hpp"
#include "core/loader/toolchains.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

struct WatchSlot;

inline Milliseconds time_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::steady_clock::now() - start;
}

/// The state of a KernelLoader and the steps from a spec to its kernels (loader_impl.cpp). They are
/// used by the façade (kernel_loader.cpp), a preload (preload.cpp) and explain (explain.cpp).
/// Threads: safe.
struct [[gnu::visibility("hidden")]] KernelLoader::Impl {  // else exported with KernelLoader
  struct Table : KernelTable {
    using KernelTable::add;
    using KernelTable::remove;
    using KernelTable::set_name;
  };

  Impl(Store& opened, LoaderOptions given);
  ~Impl();

  /// Returns the driver, which the first call opens. Errors: driver, incompatible.
  Result<std::shared_ptr<const DriverApi>> driver();
  /// Returns the visible devices, or those of `ordinals`. Errors: as driver(); invalid_argument (no
  /// such device).
  Result<std::vector<DeviceInfo>> devices(const std::vector<int>& ordinals);

  /// Returns the targets of a spec: its own, else the devices', else sm_100a. Errors:
  /// invalid_argument (a flag).
  Result<std::vector<Target>> targets_of(const ModuleSpec& spec,
                                         const std::vector<DeviceInfo>& available);

  /// A spec's request for a target, and the result of its lookup.
  struct Resolved {
    ModuleRequest request;
    Builder::Found found;
  };
  /// Looks up a spec for each target and toolchain that may be used for the wanted target, until
  /// one hits. The request has the target that was taken. Errors: as make_module_request and
  /// Toolchains::usable_for.
  Result<Resolved> resolve(const ModuleSpec& spec, Target wanted,
                           Builder::Purpose purpose = Builder::Purpose::use,
                           PhaseMeter* meter = nullptr);

  /// Returns what was found, or compiles; fills in the report. As `Builder::build`.
  Result<Built> get_or_compile(const ModuleRequest& request, Builder::Found found,
                               ModuleReport& report, const std::atomic<bool>* cancelled = nullptr,
                               PhaseMeter* meter = nullptr);

  /// Images that no tier stored (a source with __TIME__, an unobserved compile), for `cubin()`.
  void keep_unstored(const StoreEntry& entry);
  std::optional<SharedBytes> unstored(const CacheKey& key);

  /// The devices to which one call loads. Contexts are opened at their first use and serve all
  /// modules of the call. Threads: one.
  struct LoadSite {
    std::vector<DeviceInfo> chosen;
    Stream capture_guard = nullptr;
    const std::atomic<bool>* cancelled = nullptr;  ///< of the call; may be null
    std::map<std::vector<int>, std::shared_ptr<const DeviceContexts>> contexts;  // by ordinals
  };
  /// Returns the module of a built entry, which the first call for a key loads on those devices of
  /// `site` that it runs on. If the driver refuses the image, it is compiled again once. Errors: as
  /// LoadedModule::load; sealed; incompatible (no device runs it).
  Result<std::shared_ptr<LoadedModule>> load(const ModuleRequest& request, Built& built,
                                             LoadSite& site, ModuleReport& report);

  /// Removes a module's kernels from the table and unloads it. Errors: not_found.
  Result<void> unload(const CacheKey& key);

  Result<PreloadReport> preload(const Manifest& manifest, const PreloadOptions& preload_options,
                                const Progress& progress);
  /// `preload`, with its duration in the telemetry, which is flushed.
  Result<PreloadReport> timed_preload(const Manifest& manifest,
                                      const PreloadOptions& preload_options,
                                      const Progress& progress);

  /// Flushes counters: to cukilnd, else to the store's. `at_end`: without connecting or waiting.
  void flush_telemetry(bool at_end);
  /// Flushes everything: stat records, totals and histograms. Called once, at the end.
  void flush();

  /// Adds a module's kernels to the table by name, and by id if `with_ids`.
  void publish(const std::string& module_name, Target target, const std::vector<Kernel>& kernels,
               bool with_ids);

  TieredStore& tiers;
  const LoaderOptions options;
  const Logger log;
  EventQueue events;
  const Nvtx* const nvtx;  // null: no ranges
  LoaderTelemetry telemetry;
  Recorder recorder;
  StatCache stat_cache;
  std::shared_ptr<CompileBudget> budget;
  std::unique_ptr<Compiler> compiler;
  std::unique_ptr<Toolchains> toolchains;
  std::unique_ptr<Builder> builder;
  Table table;
  LoadedModules modules;
  const std::shared_ptr<WatchSlot> watch_slot;
  FixedBlobs fixed_blobs{tiers, log};
  StartRecorder starts;
  Seal seal{tiers, stat_cache, telemetry, log, events};

 private:
  struct Driver {
    Mutex mutex;  // held while the driver is opened
    std::shared_ptr<const DriverApi> api CUKILN_GUARDED_BY(mutex);
    std::vector<DeviceInfo> devices;  // constant once `api` is set
  };
  ProcessLocal<Driver> driver_;  // CUDA does not survive a fork
  FlagNotices flag_notices_;
  Mutex unstored_mutex_;
  std::unordered_map<CacheKey, SharedBytes> unstored_ CUKILN_GUARDED_BY(unstored_mutex_);
};

}  // namespace cukiln
