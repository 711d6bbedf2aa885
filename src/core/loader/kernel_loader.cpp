// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/base/result.hpp"
#include "core/loader/loader_impl.hpp"
#include "core/loader/make_compiler.hpp"
#include "core/loader/module_watch.hpp"
#include "core/loader/spec_modules.hpp"

namespace cukiln {

KernelLoader::Impl::Impl(Store& opened, LoaderOptions given)
    : tiers(TieredStore::of(opened)),
      options(std::move(given)),
      log(options.log),
      events(options.events),
      nvtx(Nvtx::open(options.nvtx_library, log)),
      recorder(options.record, log),
      watch_slot(std::make_shared<WatchSlot>()) {
  stat_cache.set_source([this](const std::string& path) { return tiers.find_stat_record(path); });
  const NvrtcCompilerOptions workers = nvrtc_options(options, tiers, stat_cache);
  budget = workers.budget;
  compiler = make_compiler(tiers, workers);
  toolchains = std::make_unique<Toolchains>(tiers, *compiler);
  Builder::Options build_options;
  build_options.offline = options.offline;
  build_options.compile_timeout = options.compile_timeout;
  build_options.lock_folder = tiers.lock_folder();
  build_options.budget = budget.get();  // which measures the machine at the first compile
  build_options.finds_toolkit = options.include_path.empty();
  build_options.daemon = tiers.daemon();
  build_options.revoked_keys = tiers.revoked_keys();
  build_options.key_scopes = tiers.key_scopes();
  build_options.log = log;
  build_options.nvtx = nvtx;
  build_options.events = options.events ? &events : nullptr;
  build_options.on_miss = [this] { flush_telemetry(false); };
  builder = std::make_unique<Builder>(tiers, *compiler, stat_cache, telemetry, build_options);
}

void KernelLoader::Impl::flush_telemetry(bool at_end) {
  DaemonTier* const daemon = tiers.daemon();
  DaemonTier::Report totals, histograms;
  const auto into = [](DaemonTier::Report& to) {
    return [&to](std::string name, std::uint64_t n) { to.emplace_back(std::move(name), n); };
  };
  telemetry.take_totals(into(totals));
  telemetry.flush(into(histograms));
  if (daemon != nullptr) {
    daemon->take_fallbacks(histograms);
  }
  const auto send = [&](const DaemonTier::Report& report, bool reported) {
    for (std::size_t i = 0; i < report.size() && !reported; ++i) {
      tiers.count(report[i].first, static_cast<std::int64_t>(report[i].second));
    }
  };
  // At the end the store is about to be closed, and has the totals sooner than a daemon would.
  send(totals, !at_end && !totals.empty() && daemon != nullptr && daemon->report_totals(totals));
  send(histograms, !histograms.empty() && daemon != nullptr && daemon->report(histograms));
}

Result<PreloadReport> KernelLoader::Impl::timed_preload(const Manifest& manifest,
                                                        const PreloadOptions& preload_options,
                                                        const Progress& progress) {
  const auto began = std::chrono::steady_clock::now();
  auto report = preload(manifest, preload_options, progress);
  telemetry.preloaded(std::chrono::steady_clock::now() - began);
  flush_telemetry(!preload_options.load);
  return report;
}

KernelLoader::Impl::~Impl() {
  watch_slot->end();
  starts.write(tiers, false);
  // Best effort: it is written with the store's next write, or when the store is closed.
  static_cast<void>(guarded([this]() -> Result<void> {
    flush();
    return {};
  }));
}

void KernelLoader::Impl::flush() {
  tiers.save_stat_records(stat_cache.take_new());
  flush_telemetry(true);
}

KernelLoader::KernelLoader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KernelLoader::~KernelLoader() = default;
KernelLoader::KernelLoader(KernelLoader&&) noexcept = default;
KernelLoader& KernelLoader::operator=(KernelLoader&&) noexcept = default;

Result<KernelLoader> KernelLoader::create(Store& store, LoaderOptions options) {
  return guarded([&]() -> Result<KernelLoader> {
    return KernelLoader(std::make_unique<Impl>(store, std::move(options)));
  });
}

Result<PreloadReport> KernelLoader::preload(const Manifest& manifest, const PreloadOptions& options,
                                            const Progress& progress) {
  return guarded([&] { return impl_->timed_preload(manifest, options, progress); });
}

std::future<Result<PreloadReport>> KernelLoader::preload_async(Manifest manifest,
                                                               PreloadOptions options,
                                                               Progress progress) {
  try {
    return std::async(
        std::launch::async, [impl = impl_.get(), manifest = std::move(manifest),
                             options = std::move(options), progress = std::move(progress)] {
          return guarded([&] { return impl->timed_preload(manifest, options, progress); });
        });
  } catch (const std::exception& error) {
    std::promise<Result<PreloadReport>> refused;
    refused.set_value(make_error(ErrorCode::internal, "no thread for a preload: {}", error.what()));
    return refused.get_future();
  }
}

Result<std::vector<ModuleReport>> KernelLoader::compile(const ModuleSpec& spec,
                                                        const std::optional<CancelToken>& cancel) {
  return guarded([&]() -> Result<std::vector<ModuleReport>> {
    PreloadOptions without_load;
    without_load.load = false;
    without_load.keep_going = true;
    without_load.cancel = cancel;
    CUKILN_TRY(PreloadReport report, impl_->preload(Manifest({spec}), without_load, {}));
    return std::move(report.modules);
  });
}

Result<std::string> KernelLoader::cubin(const CacheKey& key) {
  return guarded([&]() -> Result<std::string> {
    const EventDelivery delivery(impl_->tiers.events(), impl_->events);
    if (const auto image = impl_->unstored(key)) {
      return std::string(image->view());
    }
    CUKILN_TRY(const auto entry, impl_->tiers.get(key));
    if (!entry) {
      return make_error(ErrorCode::not_found, "no entry {} in the store", key.hex());
    }
    return std::string(entry->cubin.image.view());
  });
}

Result<Kernel> KernelLoader::get(const ModuleSpec& spec, std::string_view kernel,
                                 const std::optional<CancelToken>& cancel) {
  return guarded([&]() -> Result<Kernel> {
    const EventDelivery delivery(impl_->tiers.events(), impl_->events);
    CUKILN_TRY(const SpecModules loaded, SpecModules::load(*impl_, spec, cancel));
    return loaded.find(kernel);
  });
}

Result<Module> KernelLoader::module(const ModuleSpec& spec,
                                    const std::optional<CancelToken>& cancel) {
  return guarded([&]() -> Result<Module> {
    const EventDelivery delivery(impl_->tiers.events(), impl_->events);
    CUKILN_TRY(const SpecModules loaded, SpecModules::load(*impl_, spec, cancel));
    return Module(loaded.modules.front().get());
  });
}

Result<void> KernelLoader::get_cuda_module(const std::string& name,
                                           const std::vector<std::string>& sources,
                                           const std::vector<std::string>& flags) {
  return guarded([&]() -> Result<void> {
    ModuleSpec spec;
    spec.name = name;
    spec.flags = flags;
    for (const std::string& source : sources) {
      spec.sources.emplace_back(SourceFile{source});
    }
    CUKILN_CHECK(impl_->preload(Manifest({std::move(spec)}), {}, {}));
    return {};
  });
}

Result<std::optional<std::string>> KernelLoader::fixed_blob(
    std::string_view kind, std::string_view key,
    const std::function<Result<void>(std::string_view bytes)>& check) {
  return guarded([&] { return impl_->fixed_blobs.get(kind, key, check); });
}

Result<void> KernelLoader::unload(const CacheKey& key) {
  return guarded([&] { return impl_->unload(key); });
}

Result<Watch> KernelLoader::watch(const WatchOptions& options) {
  return guarded([&] { return WatchSlot::start(impl_->watch_slot, *impl_, options); });
}

void KernelLoader::seal(SealPolicy policy) noexcept {
  impl_->seal.set(policy);
  static_cast<void>(guarded([this]() -> Result<void> {
    impl_->flush_telemetry(false);
    return {};
  }));
  impl_->starts.write(impl_->tiers, true);
}

bool KernelLoader::sealed() const noexcept { return impl_->seal.is_set(); }

Result<std::vector<DeviceInfo>> KernelLoader::devices() {
  return guarded([&] { return impl_->devices({}); });
}

Result<void*> KernelLoader::driver_function(const char* name) {
  return guarded([&]() -> Result<void*> {
    CUKILN_TRY(const auto driver, impl_->driver());
    void* const function = driver->symbol(name);
    if (function == nullptr) {
      return make_error(ErrorCode::incompatible, "the CUDA driver has no {}; install a later one",
                        name);
    }
    return function;
  });
}

Error KernelLoader::driver_error(std::string_view what, int result) {
  const auto error = guarded([&]() -> Result<void> {
    CUKILN_TRY(const auto driver, impl_->driver());
    return driver->error(what, static_cast<CUresult>(result));
  });
  return error.error();
}

const KernelTable& KernelLoader::kernels() const noexcept { return impl_->table; }

Stats KernelLoader::stats() const {
  Stats stats = impl_->telemetry.stats();
  const StoreStats store = impl_->tiers.stats();
  stats.entries = store.entries;
  stats.store_bytes = store.bytes;
  stats.evicted = store.evicted;
  stats.corrupt = store.corrupt;
  stats.store_errors += store.errors;
  if (const DaemonTier* const daemon = impl_->tiers.daemon()) {
    const DaemonTier::Counts counts = daemon->counts();
    stats.daemon_asked = counts.asked;
    stats.daemon_absent = counts.absent;
    stats.daemon_failed = counts.failed;
    stats.daemon_declined = counts.declined;
  }
  return stats;
}

void KernelLoader::cancel() noexcept { impl_->builder->cancel(); }
void KernelLoader::resume() noexcept { impl_->builder->resume(); }

}  // namespace cukiln
