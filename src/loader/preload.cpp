#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "base/cores.hpp"
#include "base/result.hpp"
#include "loader/loader_impl.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

double milliseconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

constexpr Target kDefaultTarget{100, 'a'};

/// Kernels in the order in which they were asked for, then the others: ids follow it.
std::vector<Module::KernelName> in_order(const std::vector<KernelInfo>& kernels,
                                         const std::vector<std::string>& asked) {
  const auto rank = [&](const KernelInfo& kernel) {
    return std::find(asked.begin(), asked.end(), kernel.name) - asked.begin();
  };
  std::vector<KernelInfo> sorted = kernels;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const KernelInfo& a, const KernelInfo& b) { return rank(a) < rank(b); });
  std::vector<Module::KernelName> names;
  for (const KernelInfo& kernel : sorted) {
    names.push_back({kernel.name, kernel.lowered});
  }
  return names;
}

}  // namespace

Result<std::shared_ptr<const DriverApi>> KernelLoader::Impl::driver() {
  const std::lock_guard lock(driver_mutex_);
  if (!driver_) {
    CUKILN_TRY(driver_, DriverApi::open(options.cuda_library));
    CUKILN_TRY(devices_, list_devices(*driver_));
  }
  return driver_;
}

Result<std::vector<DeviceInfo>> KernelLoader::Impl::devices(const std::vector<int>& ordinals) {
  CUKILN_CHECK(driver());
  if (ordinals.empty()) {
    return devices_;
  }
  std::vector<DeviceInfo> chosen;
  for (const int ordinal : ordinals) {
    const auto at = std::find_if(devices_.begin(), devices_.end(),
                                 [&](const DeviceInfo& d) { return d.ordinal == ordinal; });
    if (at == devices_.end()) {
      return make_error(ErrorCode::invalid_argument, "there is no device {}: {} are visible",
                        ordinal, devices_.size());
    }
    chosen.push_back(*at);
  }
  return chosen;
}

Result<std::vector<Target>> KernelLoader::Impl::targets_of(
    const ModuleSpec& spec, const std::vector<DeviceInfo>& available) {
  CUKILN_TRY(std::vector<Target> targets, explicit_targets(spec));
  if (targets.empty()) {
    for (const DeviceInfo& device : available) {
      if (const Target target = target_of(device);
          std::find(targets.begin(), targets.end(), target) == targets.end()) {
        targets.push_back(target);
      }
    }
  }
  if (targets.empty()) {
    targets.push_back(kDefaultTarget);
  }
  return targets;
}

Result<std::vector<Toolchain>> KernelLoader::Impl::toolchains(Target target) {
  auto present = compiler->for_target(target).toolchain();
  if (present) {
    return std::vector<Toolchain>{*std::move(present)};
  }
  const std::lock_guard lock(toolchain_mutex_);
  if (stored_toolchains_.empty()) {
    CUKILN_TRY(const auto entries, store.tiers().list());
    std::set<std::string> seen;
    for (const EntrySummary& summary : entries) {
      if (!seen.insert(summary.labels.compiler).second) {
        continue;
      }
      if (const Lookup entry = store.tiers().peek(summary.key); entry && *entry) {
        if (const auto fields = RequestFields::parse((*entry)->request_canonical)) {
          stored_toolchains_.push_back(fields->toolchain);
        }
      }
    }
  }
  if (stored_toolchains_.empty()) {
    return std::move(present).error();
  }
  return stored_toolchains_;
}

Result<KernelLoader::Impl::Sought> KernelLoader::Impl::seek(const ModuleSpec& spec, Target target,
                                                            Builder::Purpose purpose) {
  CUKILN_TRY(const auto candidates, toolchains(target));
  std::optional<Sought> first;
  for (const Toolchain& toolchain : candidates) {
    CUKILN_TRY(ModuleRequest request,
               make_module_request(spec, target, toolchain,
                                   compiler->for_target(target).toolkit_folders()));
    Builder::Found found = builder->look_up(request, purpose);
    if (found.entry || !first) {
      first = Sought{std::move(request), std::move(found)};
    }
    if (first->found.entry) {
      break;
    }
  }
  return *std::move(first);
}

Result<void> KernelLoader::Impl::check_seal(const char* what, const std::string& name) {
  const int state = seal_state.load(std::memory_order_relaxed);
  if (state == open) {
    return {};
  }
  if (state == sealed_warn) {
    counters.add(&Stats::sealed_violations);
    log.warn("{} {} after seal(): the hot path will notice", what, name);
    return {};
  }
  return make_error(
      ErrorCode::sealed,
      "{} {} was needed after seal(); add it to the manifest that is preloaded, or seal "
      "with SealPolicy::warn",
      what, name);
}

Result<Built> KernelLoader::Impl::provide(const ModuleRequest& request, Builder::Found found,
                                          ModuleReport& report) {
  auto built = builder->build(request, std::move(found),
                              [&] { return check_seal("a compile of", request.name); });
  if (!built) {
    const bool missing = options.offline && built.error().code() == ErrorCode::not_found;
    report.outcome = missing ? Outcome::missing : Outcome::failed;
    return std::move(built).error();
  }
  report.outcome = built->outcome;
  report.reason = built->reason;
  report.not_stored = built->not_stored;
  report.key = built->entry.key;
  report.cubin_bytes = built->entry.cubin.image.size();
  report.kernels = built->entry.cubin.kernels;
  report.log = built->entry.cubin.log;
  if (!built->not_stored.empty()) {
    keep_unstored(built->entry);
  }
  return built;
}

void KernelLoader::Impl::keep_unstored(const StoreEntry& entry) {
  const auto in_memory = store.tiers().peek(entry.key);
  if (!in_memory || !*in_memory) {
    const std::lock_guard lock(modules_mutex_);
    unstored_[entry.key] = entry.cubin.image;
  }
}

std::optional<SharedBytes> KernelLoader::Impl::unstored(const CacheKey& key) {
  const std::lock_guard lock(modules_mutex_);
  const auto at = unstored_.find(key);
  return at != unstored_.end() ? std::optional(at->second) : std::nullopt;
}

Result<std::shared_ptr<Module>> KernelLoader::Impl::load(const ModuleRequest& request, Built& built,
                                                         LoadSite& site, ModuleReport& report) {
  {
    const std::lock_guard lock(modules_mutex_);
    if (const auto known = modules_.find(built.entry.key); known != modules_.end()) {
      return known->second;
    }
  }
  CUKILN_CHECK(check_seal("a load of", request.name));
  CUKILN_TRY(const auto api, driver());
  std::vector<int> ordinals;
  for (const DeviceInfo& device : site.chosen) {
    if (request.request.target.runs_on(device.capability)) {
      ordinals.push_back(device.ordinal);
    }
  }
  if (ordinals.empty()) {
    return make_error(ErrorCode::incompatible,
                      "{} was compiled for {}, which runs on none of the {} chosen devices{}",
                      request.name, request.request.target.name(), site.chosen.size(),
                      site.chosen.empty()
                          ? std::string()
                          : fmt::format(" (device {} is {})", site.chosen.front().ordinal,
                                        target_of(site.chosen.front()).name()));
  }
  std::shared_ptr<const DeviceContexts>& contexts = site.contexts[ordinals];
  if (!contexts) {
    CUKILN_TRY(contexts, DeviceContexts::open(api, ordinals));
  }
  const auto start = SteadyClock::now();
  const auto load_once = [&]() {
    return Module::load(api, built.entry.cubin.image,
                        in_order(built.entry.cubin.kernels, request.kernel_names), contexts,
                        site.capture_guard);
  };
  auto module = load_once();
  if (!module && (module.error().code() == ErrorCode::incompatible ||
                  module.error().code() == ErrorCode::corrupt)) {
    log.warn("{}: {}; the entry {} is removed and built again", request.name,
             module.error().message(), built.entry.key.hex());
    if (auto removed = store.tiers().remove(built.entry.key); !removed) {
      counters.add(&Stats::store_errors);
    }
    CUKILN_TRY(built, provide(request, builder->look_up(request), report));
    module = load_once();
  }
  if (!module) {
    return std::move(module).error().with_context(request.name);
  }
  report.load_milliseconds = milliseconds_since(start);
  const std::lock_guard lock(modules_mutex_);
  return modules_.try_emplace(built.entry.key, *std::move(module)).first->second;
}

void KernelLoader::Impl::publish(const std::string& module_name, Target target,
                                 const std::vector<Kernel>& kernels, bool with_ids) {
  for (const Kernel kernel : kernels) {
    if (with_ids) {
      table.add(kernel);
    }
    const std::string name(kernel.name());
    const std::string qualified = module_name + "/" + name;
    for (const std::string& suffix : {std::string(), "@" + target.name()}) {
      // A bare name stays with the module that had it first, but follows that module's edits.
      const Kernel before = table.find(qualified + suffix);
      const Kernel bare = table.find(name + suffix);
      table.set_name(qualified + suffix, kernel);
      if (!bare || (before && bare.native() == before.native())) {
        table.set_name(name + suffix, kernel);
      }
    }
  }
}

namespace {

/// One module and target on its way through a preload.
struct Job {
  std::size_t module_index = 0;
  const ModuleSpec* spec = nullptr;
  Target target;
  std::optional<ModuleRequest> request;
  Builder::Found found;
  std::optional<Built> built;
  ModuleReport report;
};

void fail(Job& job, Error error) {
  if (job.report.outcome != Outcome::missing) {
    job.report.outcome = Outcome::failed;
  }
  job.report.status = std::move(error);
  job.built.reset();
}

/// The text that is known to belong to it: its sources, and the headers that came with them.
std::size_t text_bytes(const ModuleRequest& request) {
  std::size_t bytes = 0;
  for (const auto& [path, text] : request.memory_files) {
    bytes += text.size();
  }
  return bytes;
}

/// Runs `work(i)` for i < count on up to `threads` threads, the calling one among them. They end
/// before this returns: nothing of ours outlives a call.
void run_parallel(std::size_t count, std::size_t threads,
                  const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto body = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      work(i);
    }
  };
  std::vector<std::thread> helpers;
  for (std::size_t t = 1; t < std::min(threads, count); ++t) {
    helpers.emplace_back(body);
  }
  body();
  for (std::thread& helper : helpers) {
    helper.join();
  }
}

}  // namespace

Result<PreloadReport> KernelLoader::Impl::preload(const Manifest& manifest,
                                                  const PreloadOptions& preload_options,
                                                  const Progress& progress) {
  const auto start = SteadyClock::now();
  LoadSite site;
  const std::vector<DeviceInfo>& chosen = site.chosen;
  if (preload_options.load) {
    site.capture_guard = preload_options.capture_guard;
    CUKILN_TRY(site.chosen, devices(preload_options.devices));
    CUKILN_TRY(const auto api, driver());
    CUKILN_CHECK(check_not_capturing(*api, preload_options.capture_guard));
  }

  std::vector<Job> jobs;
  std::optional<std::vector<DeviceInfo>> visible;
  for (std::size_t m = 0; m < manifest.modules().size(); ++m) {
    const ModuleSpec& spec = manifest.modules()[m];
    CUKILN_TRY(std::vector<Target> targets, explicit_targets(spec));
    if (targets.empty()) {
      if (!visible) {  // without a load the driver is asked only where its answer counts
        auto all = preload_options.load ? chosen : devices({});
        visible = all ? *std::move(all) : std::vector<DeviceInfo>();
      }
      CUKILN_TRY(targets, targets_of(spec, *visible));
    }
    for (const Target target : targets) {
      Job job;
      job.module_index = m;
      job.spec = &spec;
      job.target = target;
      job.report.name = spec.name;
      job.report.source = spec.sources.empty() ? std::string() : spec.sources.front().path;
      job.report.target = target;
      jobs.push_back(std::move(job));
    }
  }

  compiler->expect(jobs.size());

  // What is in the store is found here, one after the other: a look-up is cheaper than a thread.
  // Only what must be compiled goes to threads.
  std::vector<std::size_t> misses;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    const auto job_start = SteadyClock::now();
    auto sought = seek(*job.spec, job.target);
    if (!sought) {
      const bool missing = options.offline && sought.error().code() == ErrorCode::not_found;
      job.report.outcome = missing ? Outcome::missing : Outcome::failed;
      fail(job, std::move(sought).error());
      continue;
    }
    job.request = std::move(sought->request);
    job.found = std::move(sought->found);
    job.report.name = job.request->name;
    job.report.dropped_flags = job.request->dropped_flags;
    if (job.found.entry) {
      auto built = provide(*job.request, std::move(job.found), job.report);
      if (built) {
        job.built = *std::move(built);
      } else {
        fail(job, std::move(built).error());
      }
    } else {
      misses.push_back(i);
    }
    job.report.milliseconds = milliseconds_since(job_start);
  }

  std::mutex progress_mutex;
  std::size_t done = jobs.size() - misses.size();
  if (progress) {
    std::size_t told = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (std::find(misses.begin(), misses.end(), i) == misses.end()) {
        progress(++told, jobs.size(), jobs[i].report);
      }
    }
  }
  // The longest first, as far as the length of its text tells: begun last, it would leave the other
  // cores without work.
  std::stable_sort(misses.begin(), misses.end(), [&](std::size_t a, std::size_t b) {
    return text_bytes(*jobs[a].request) > text_bytes(*jobs[b].request);
  });
  run_parallel(
      misses.size(), options.jobs != 0 ? options.jobs : usable_cores(), [&](std::size_t i) {
        Job& job = jobs[misses[i]];
        const auto job_start = SteadyClock::now();
        auto built =
            guarded([&] { return provide(*job.request, std::move(job.found), job.report); });
        if (built) {
          job.built = *std::move(built);
        } else {
          fail(job, std::move(built).error());
        }
        job.report.milliseconds += milliseconds_since(job_start);
        if (progress) {
          const std::lock_guard lock(progress_mutex);
          progress(++done, jobs.size(), job.report);
        }
      });

  PreloadReport report;
  for (std::size_t i = 0; i < jobs.size();) {
    bool with_ids = true;  // the first target that runs here gives the ids
    const std::size_t first = i;
    for (; i < jobs.size() && jobs[i].module_index == jobs[first].module_index; ++i) {
      Job& job = jobs[i];
      const bool runs = std::any_of(chosen.begin(), chosen.end(), [&](const DeviceInfo& d) {
        return job.target.runs_on(d.capability);
      });
      const bool only_target = std::count_if(jobs.begin(), jobs.end(), [&](const Job& other) {
                                 return other.module_index == job.module_index;
                               }) == 1;
      if (preload_options.load && job.built && (runs || only_target)) {
        auto module = load(*job.request, *job.built, site, job.report);
        if (module) {
          publish(job.request->name, job.target, (*module)->kernels(), with_ids);
          with_ids = false;
        } else {
          fail(job, std::move(module).error());
        }
      }
    }
    if (preload_options.load &&
        with_ids) {  // a failed module keeps its ids: later ones must not move
      for (std::size_t n = 0; n < jobs[first].spec->names.size(); ++n) {
        table.add(Kernel());
      }
    }
  }
  for (Job& job : jobs) {
    report.hits += job.report.outcome == Outcome::hit ? 1 : 0;
    report.compiled += job.report.outcome == Outcome::compiled ? 1 : 0;
    report.failed += job.report.status ? 0 : 1;
    report.modules.push_back(std::move(job.report));
  }
  store.tiers().save_stat_records(stat_cache.take_new());
  report.milliseconds = milliseconds_since(start);

  if (!preload_options.keep_going && report.failed != 0) {
    const auto first = std::find_if(report.modules.begin(), report.modules.end(),
                                    [](const ModuleReport& m) { return !m.status; });
    Error error = first->status.error();
    return std::move(error).with_context(fmt::format("{} of {} modules failed; the first, {}",
                                                     report.failed, report.modules.size(),
                                                     first->name));
  }
  return report;
}

}  // namespace cukiln
