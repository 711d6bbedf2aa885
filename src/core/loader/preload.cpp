// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/mutex.hpp"
#include "core/base/result.hpp"
#include "core/key/nvcc_flags.hpp"
#include "core/loader/loader_impl.hpp"
#include "core/loader/replaced_nvrtc.hpp"
#include "core/loader/run_parallel.hpp"

namespace cukiln {

namespace {

/// One module and target of a preload.
struct Job {
  std::size_t module_index = 0;
  const ModuleSpec* spec = nullptr;
  Target target;
  std::optional<ModuleRequest> request;
  Builder::Found found;
  std::optional<Built> built;
  ModuleReport report;
  bool missed = false;
  bool repeats = false;  ///< a job before it has the same module and target
};

void fail(Job& job, Error error) {
  if (job.report.outcome != Outcome::missing) {
    job.report.outcome = Outcome::failed;
  }
  job.report.error = std::move(error);
  job.built.reset();
}

/// The size of the texts that are known to belong to a request: sources, and headers in memory.
std::size_t text_bytes(const ModuleRequest& request) {
  std::size_t bytes = 0;
  for (const ModuleRequest::MemoryFile& file : request.memory_files) {
    bytes += file.text.size();
  }
  for (const VirtualSource& header : request.request.headers) {
    bytes += header.text.size();
  }
  return bytes;
}

/// The host's callback. An exception is caught and logged, and ends the calls.
class GuardedProgress {
 public:
  GuardedProgress(const Progress& progress, const Logger& log) : progress_(progress), log_(log) {}

  void operator()(std::size_t done, std::size_t total, const ModuleReport& last) noexcept {
    if (!progress_ || threw_) {
      return;
    }
    const auto called = guarded([&]() -> Result<void> {
      progress_(done, total, last);
      return {};
    });
    if (!called) {
      threw_ = true;
      log_.warn("the progress callback threw and is not called again: {}",
                called.error().message());
    }
  }

 private:
  const Progress& progress_;
  const Logger& log_;
  bool threw_ = false;
};

/// One preload: plans a job for each module and target, looks them up, compiles the misses, loads,
/// and reports.
class Preload {
 public:
  Preload(KernelLoader::Impl& loader, const Manifest& manifest, const PreloadOptions& options,
          const Progress& progress)
      : loader_(loader),
        manifest_(manifest),
        options_(options),
        report_progress_(progress, loader.log) {}

  Result<PreloadReport> run() {
    const auto start = std::chrono::steady_clock::now();
    CUKILN_CHECK(find());
    loader_.compiler->hint_upcoming(jobs_.size());
    look_up();
    compile_misses();
    load();
    PreloadReport report = take_report();
    loader_.tiers.save_stat_records(loader_.stat_cache.take_new());
    warn_of_unstored(report);
    report.phases = meter_.phases();
    report.elapsed = time_since(start);
    if (options_.load) {
      loader_.starts.add(report);
    }
    return options_.keep_going || report.failed == 0 ? Result<PreloadReport>(std::move(report))
                                                     : first_failure(report);
  }

 private:
  Result<void> find() {
    const PhaseMeter::Scope scope(&meter_, Phase::find);
    CUKILN_CHECK(choose_devices());
    return plan();
  }

  Result<void> choose_devices() {
    site_.cancelled = options_.cancel ? &options_.cancel->flag() : nullptr;
    if (!options_.load) {
      return {};
    }
    site_.capture_guard = options_.capture_guard;
    CUKILN_TRY(site_.chosen, loader_.devices(options_.devices));
    CUKILN_TRY(const auto api, loader_.driver());
    return check_not_capturing(*api, options_.capture_guard);
  }

  Result<void> plan() {
    std::optional<std::vector<DeviceInfo>> visible;
    for (std::size_t m = 0; m < manifest_.modules().size(); ++m) {
      const ModuleSpec& spec = manifest_.modules()[m];
      CUKILN_TRY(std::vector<Target> targets, explicit_targets(spec));
      warn_of_other_targets(spec);
      if (targets.empty()) {
        if (!visible) {  // the driver is opened only if the devices matter
          auto all = options_.load ? site_.chosen : loader_.devices({});
          visible = all ? *std::move(all) : std::vector<DeviceInfo>();
        }
        CUKILN_TRY(targets, loader_.targets_of(spec, *visible));
        if (visible->empty() && !std::exchange(said_default_, true)) {
          loader_.log.warn(
              "no GPU is visible and {} names no target: compiled for {}, and so is each other "
              "module without one; name the targets of the GPUs that will run it",
              spec.name, targets.front().name());
        }
      }
      for (const Target target : targets) {
        Job job;
        job.module_index = m;
        job.spec = &spec;
        job.target = target;
        job.report.name = spec.name;
        job.report.source = spec.sources.empty() ? std::string() : name_of(spec.sources.front());
        job.report.target = target;
        job.report.index = jobs_.size();
        jobs_.push_back(std::move(job));
      }
    }
    return {};
  }

  /// Says so if an architecture among the flags is another than the targets of the spec, which win.
  void warn_of_other_targets(const ModuleSpec& spec) const {
    const auto flags = spec.targets.empty() ? TranslatedFlags() : translate_flags(spec.flags);
    for (const Target asked : flags ? flags->targets : std::vector<Target>()) {
      if (std::find(spec.targets.begin(), spec.targets.end(), asked) == spec.targets.end()) {
        loader_.log.warn(
            "{}: the architecture {} among the flags is not compiled for, since the targets are "
            "named: {}",
            spec.name, asked.name(), spec.targets.front().name());
      }
    }
  }

  /// Looks up one job after the other, because a lookup is cheaper than a thread.
  void look_up() {
    for (Job& job : jobs_) {
      const auto start = std::chrono::steady_clock::now();
      auto resolved = loader_.resolve(*job.spec, job.target, Builder::Purpose::use, &meter_);
      if (!resolved) {
        const bool missing =
            loader_.options.offline && resolved.error().code() == ErrorCode::not_found;
        job.report.outcome = missing ? Outcome::missing : Outcome::failed;
        fail(job, std::move(resolved).error());
        continue;
      }
      job.request = std::move(resolved->request);
      job.found = std::move(resolved->found);
      job.target = job.report.target = job.request->request.target;
      job.report.name = job.request->name;
      job.report.dropped_flags = job.request->dropped_flags;
      job.missed = !job.found.entry;
      job.repeats = is_repeated(job);
      if (job.repeats) {
        continue;
      }
      if (!job.missed) {
        build(job);
      }
      job.report.elapsed = time_since(start);
    }
    std::erase_if(jobs_, [](const Job& job) { return job.repeats; });
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      jobs_[i].report.index = i;
    }
  }

  /// True if another target of the module, before it, has led to the same one: a family target may
  /// stand in for several.
  bool is_repeated(const Job& job) const {
    return std::any_of(jobs_.data(), &job, [&](const Job& other) {
      return other.module_index == job.module_index && other.target == job.target;
    });
  }

  /// Completes a job with what was found, or by a compile.
  void build(Job& job) {
    auto built = get_or_compile(loader_, *job.spec, *job.request, std::move(job.found), job.report,
                                site_.cancelled, &meter_);
    if (built) {
      job.built = *std::move(built);
    } else {
      fail(job, std::move(built).error());
    }
  }

  void compile_misses() {
    std::vector<Job*> misses;
    for (Job& job : jobs_) {
      if (job.missed) {
        misses.push_back(&job);
      } else {
        report_progress_(++done_, jobs_.size(), job.report);
      }
    }
    // Longest text first: a long compile that starts last would leave the other cores idle.
    std::stable_sort(misses.begin(), misses.end(), [](const Job* a, const Job* b) {
      return text_bytes(*a->request) > text_bytes(*b->request);
    });
    Mutex progress_mutex;
    run_parallel(misses.size(), misses.empty() ? 0 : loader_.budget->jobs(), [&](std::size_t i) {
      Job& job = *misses[i];
      const auto start = std::chrono::steady_clock::now();
      const auto tried = guarded([&]() -> Result<void> {
        build(job);
        return {};
      });
      if (!tried) {
        fail(job, tried.error());
      }
      job.report.elapsed += time_since(start);
      const MutexLock lock(progress_mutex);
      report_progress_(++done_, jobs_.size(), job.report);
    });
  }

  void load() {
    if (!options_.load) {
      return;
    }
    const PhaseMeter::Scope scope(&meter_, Phase::load);
    for (auto first = jobs_.begin(); first != jobs_.end();) {
      const auto end = std::find_if(first, jobs_.end(), [&](const Job& other) {
        return other.module_index != first->module_index;
      });
      load_module(first, end);
      first = end;
    }
  }

  using Jobs = std::vector<Job>;

  /// Loads the targets of one module. The first target that runs here gives its kernels ids.
  void load_module(Jobs::iterator first, Jobs::iterator end) {
    const bool only_target = end - first == 1;
    bool with_ids = true;
    for (auto job = first; job != end; ++job) {
      if (!job->built || !(only_target || runs_here(job->target))) {
        continue;
      }
      auto module = loader_.load(*job->request, *job->built, site_, job->report);
      if (module) {
        loader_.publish(job->request->name, job->target, (*module)->kernels(), with_ids);
        for (std::size_t n = 0; with_ids && n < (*module)->variables().size(); ++n) {
          loader_.table.add(Kernel());  // as many ids as there are names, as if it had failed
        }
        with_ids = false;
      } else {
        fail(*job, std::move(module).error());
      }
    }
    if (with_ids) {  // a failed module keeps its ids, so that those of later modules do not change
      for (std::size_t n = 0; n < first->spec->names.size(); ++n) {
        loader_.table.add(Kernel());
      }
    }
  }

  bool runs_here(Target target) const {
    return std::any_of(site_.chosen.begin(), site_.chosen.end(),
                       [&](const DeviceInfo& d) { return target.runs_on(d.capability); });
  }

  PreloadReport take_report() {
    PreloadReport report;
    for (Job& job : jobs_) {
      report.hits += job.report.outcome == Outcome::hit ? 1 : 0;
      report.compiled += job.report.outcome == Outcome::compiled ? 1 : 0;
      report.failed += job.report.error ? 1 : 0;
      report.modules.push_back(std::move(job.report));
    }
    return report;
  }

  /// Warns with a count if several modules could not be stored: the store warns of the first only.
  void warn_of_unstored(const PreloadReport& report) const {
    std::size_t count = 0;
    const ModuleReport* first = nullptr;
    for (const ModuleReport& module : report.modules) {
      if (module.not_stored && module.not_stored->code() == ErrorCode::io) {
        first = first == nullptr ? &module : first;
        ++count;
      }
    }
    if (count > 1 && loader_.tiers.disk() != nullptr && !loader_.tiers.read_only()) {
      loader_.log.warn("{} of {} modules are not stored: {}", count, report.modules.size(),
                       first->not_stored->message());
    }
  }

  static Error first_failure(const PreloadReport& report) {
    const auto first = std::find_if(report.modules.begin(), report.modules.end(),
                                    [](const ModuleReport& m) { return m.error.has_value(); });
    Error error = *first->error;
    const std::string& name = first->name.empty() ? first->source : first->name;
    if (report.modules.size() > 1) {
      return std::move(error).with_context(fmt::format("{} of {} modules failed; the first, {}",
                                                       report.failed, report.modules.size(), name));
    }
    const bool is_named = error.message().find(name) != std::string::npos;
    return is_named ? error : std::move(error).with_context(name);
  }

  KernelLoader::Impl& loader_;
  const Manifest& manifest_;
  const PreloadOptions& options_;
  GuardedProgress report_progress_;
  KernelLoader::Impl::LoadSite site_;
  bool said_default_ = false;  ///< that a module has the default target
  Jobs jobs_;
  PhaseMeter meter_;
  std::size_t done_ = 0;
};

}  // namespace

Result<PreloadReport> KernelLoader::Impl::preload(const Manifest& manifest,
                                                  const PreloadOptions& preload_options,
                                                  const Progress& progress) {
  const EventDelivery delivery(tiers.events(), events);
  const Nvtx::Range range(nvtx, "preload", {});
  return Preload(*this, manifest, preload_options, progress).run();
}

}  // namespace cukiln
