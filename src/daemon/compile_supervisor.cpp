// SPDX-License-Identifier: Apache-2.0
#include "daemon/compile_supervisor.hpp"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/result.hpp"

namespace cukiln::daemon {

struct CompileSupervisor::Run {
  Run(EventLoop& loop, std::function<void()> on_limit, std::function<void()> on_overdue)
      : limit_timer(loop, std::move(on_limit)), answer_timer(loop, std::move(on_overdue)) {}

  std::unique_ptr<CompileRun> compile;
  std::string label;
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::chrono::milliseconds limit{0};
  bool is_overdue = false;
  EventLoop::Timer limit_timer;
  EventLoop::Timer answer_timer;
  std::optional<Result<RunResult>> result;  // written by the thread before it posts its end
  std::thread thread;
};

CompileSupervisor::CompileSupervisor(Options options, EventLoop& loop, Compilers& compilers,
                                     TieredStore& store, RemoteTier* remote, Logger log)
    : options_(options),
      loop_(loop),
      compilers_(compilers),
      store_(store),
      remote_(remote),
      log_(std::move(log)) {}

CompileSupervisor::~CompileSupervisor() {
  cancel_all();
  for (const auto& [serial, run] : runs_) {
    run->thread.join();
  }
}

CompileSupervisor::Run* CompileSupervisor::find(std::uint64_t serial) {
  const auto at = runs_.find(serial);
  return at != runs_.end() ? at->second.get() : nullptr;
}

Result<void> CompileSupervisor::start(std::uint64_t serial, Job job) {
  auto started = guarded([&]() -> Result<void> {
    auto run = std::make_unique<Run>(
        loop_,
        [this, serial] {
          if (Run* const late = find(serial)) {
            cancel_overdue(*late);
          }
        },
        [this, serial] {
          if (Run* const late = find(serial);
              late != nullptr && late->compile->waits_for_answer()) {
            observer_->on_answer_overdue(serial);
          }
        });
    run->label = job.order->labels.name;
    run->limit = job.limit;
    CompileRun::Setup setup;
    setup.order = std::move(job.order);
    setup.canonical = std::move(job.canonical);
    setup.digest = job.digest;
    setup.timeout = options_.max_time;
    setup.again = job.again;
    setup.compilers = &compilers_;
    setup.store = &store_;
    setup.remote = remote_;
    setup.log = log_;
    setup.ask = [this, serial](const std::string& path) {
      loop_.post([this, serial, path] { ask(serial, path); });
    };
    run->compile = std::make_unique<CompileRun>(std::move(setup));
    launch(*runs_.insert_or_assign(serial, std::move(run)).first->second, serial);
    return {};
  });
  if (!started) {
    runs_.erase(serial);
  }
  return started;
}

void CompileSupervisor::launch(Run& run, std::uint64_t serial) {
  TaskQueue::Prepared ended([this, serial] { reap(serial); });
  run.limit_timer.set(run.began + run.limit);
  run.thread = std::thread([&run, &tasks = loop_.tasks(), ended = std::move(ended)]() mutable {
    run.result.emplace(guarded([&] { return Result<RunResult>(run.compile->run()); }));
    tasks.post(std::move(ended));  // the loop may destroy `run` from here on
  });
}

void CompileSupervisor::ask(std::uint64_t serial, const std::string& path) {
  if (Run* const run = find(serial)) {
    run->answer_timer.set_after(options_.answer_timeout);
    observer_->on_question(serial, path);
  }
}

bool CompileSupervisor::answer(std::uint64_t serial, std::string& body) {
  Run* const run = find(serial);
  if (run == nullptr || !run->compile->waits_for_answer()) {
    return false;
  }
  run->answer_timer.cancel();
  run->compile->answer(std::move(body));
  return true;
}

void CompileSupervisor::owner_left(std::uint64_t serial) {
  if (Run* const run = find(serial)) {
    run->answer_timer.cancel();
    run->compile->owner_left();
  }
}

void CompileSupervisor::extend(std::uint64_t serial, std::chrono::milliseconds limit) {
  Run* const run = find(serial);
  if (run != nullptr && !run->is_overdue && limit > run->limit) {
    run->limit = limit;
    run->limit_timer.set(run->began + limit);
  }
}

void CompileSupervisor::cancel_all() {
  for (const auto& [serial, run] : runs_) {
    run->compile->cancel();
  }
}

void CompileSupervisor::cancel_overdue(Run& run) {
  run.is_overdue = true;
  run.compile->cancel();
}

RunResult CompileSupervisor::timed_out(const Run& run) {
  return RunResult::of(make_error(ErrorCode::timeout,
                                  "compiling {} took longer than {} ms and was cancelled; raise "
                                  "compile_timeout if it needs more",
                                  run.label, run.limit.count()));
}

void CompileSupervisor::reap(std::uint64_t serial) {
  const auto at = runs_.find(serial);
  if (at == runs_.end()) {
    return;
  }
  const std::unique_ptr<Run> run = std::move(at->second);
  runs_.erase(at);
  run->thread.join();  // does not block: the thread has posted its end
  Completion completion;
  completion.result.kind = RunResult::Kind::declined;  // kept if there is no memory for the result
  completion.result.refusal.code = ErrorCode::internal;
  static_cast<void>(guarded([&]() -> Result<void> {
    completion.took = std::chrono::steady_clock::now() - run->began;
    completion.is_client_limit = run->is_overdue && run->limit < options_.max_time;
    Result<RunResult>& result = *run->result;
    completion.result = result ? *std::move(result) : RunResult::of(result.error());
    if (run->is_overdue && completion.result.kind == RunResult::Kind::owner_left) {
      completion.result = timed_out(*run);
    }
    return {};
  }));
  observer_->on_ended(serial, std::move(completion));
}

}  // namespace cukiln::daemon
