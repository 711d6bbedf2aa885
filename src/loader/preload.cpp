// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "base/cores.hpp"
#include "base/result.hpp"
#include "loader/loader_impl.hpp"

namespace cukiln {

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
  bool missed = false;
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
  for (const ModuleRequest::MemoryFile& file : request.memory_files) {
    bytes += file.text.size();
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
  std::vector<std::jthread> helpers;
  try {
    for (std::size_t t = 1; t < std::min(threads, count); ++t) {
      helpers.emplace_back(body);
    }
  } catch (const std::exception&) {  // no thread, or no memory for one: then with those there are
  }
  body();
}

/// The host's callback, kept from ending the host: what it throws is caught, and it is not called
/// again.
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

}  // namespace

Result<PreloadReport> KernelLoader::Impl::preload(const Manifest& manifest,
                                                  const PreloadOptions& preload_options,
                                                  const Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
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
      job.report.index = jobs.size();
      jobs.push_back(std::move(job));
    }
  }

  compiler->hint_upcoming(jobs.size());

  // What is in the store is found here, one after the other: a look-up is cheaper than a thread.
  // Only what must be compiled goes to threads.
  std::vector<std::size_t> misses;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    const auto job_start = std::chrono::steady_clock::now();
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
      job.missed = true;
      misses.push_back(i);
    }
    job.report.elapsed = time_since(job_start);
  }

  std::mutex progress_mutex;
  GuardedProgress report_progress(progress, log);
  std::size_t done = 0;
  for (const Job& job : jobs) {
    if (!job.missed) {
      report_progress(++done, jobs.size(), job.report);
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
        const auto job_start = std::chrono::steady_clock::now();
        auto built =
            guarded([&] { return provide(*job.request, std::move(job.found), job.report); });
        if (built) {
          job.built = *std::move(built);
        } else {
          fail(job, std::move(built).error());
        }
        job.report.elapsed += time_since(job_start);
        const std::lock_guard lock(progress_mutex);
        report_progress(++done, jobs.size(), job.report);
      });

  PreloadReport report;
  for (std::size_t i = 0; i < jobs.size();) {
    bool with_ids = true;  // the first target that runs here gives the ids
    const std::size_t first = i;
    const auto after = std::find_if(
        jobs.begin() + static_cast<std::ptrdiff_t>(first), jobs.end(),
        [&](const Job& other) { return other.module_index != jobs[first].module_index; });
    const auto end = static_cast<std::size_t>(after - jobs.begin());
    for (; i < end; ++i) {
      Job& job = jobs[i];
      const bool runs = std::any_of(chosen.begin(), chosen.end(), [&](const DeviceInfo& d) {
        return job.target.runs_on(d.capability);
      });
      const bool only_target = end - first == 1;
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
  report.elapsed = time_since(start);

  if (!preload_options.keep_going && report.failed != 0) {
    const auto first = std::find_if(report.modules.begin(), report.modules.end(),
                                    [](const ModuleReport& m) { return !m.status; });
    Error error = first->status.error();
    return std::move(error).with_context(
        fmt::format("{} of {} modules failed; the first, {}", report.failed, report.modules.size(),
                    first->name.empty() ? first->source : first->name));
  }
  return report;
}

}  // namespace cukiln
