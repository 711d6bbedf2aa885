// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/logger.hpp"
#include "daemon/compile_run.hpp"
#include "daemon/compilers.hpp"
#include "daemon/event_loop.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Runs compiles, each in a thread of its own, and cancels those that exceed their time limit. The
/// observer is notified of the end of every run, even without memory: the task for it is allocated
/// before the thread starts. Threads: the loop's only.
class CompileSupervisor {
 public:
  struct Options {
    std::chrono::milliseconds max_time{300'000};       ///< of a run
    std::chrono::milliseconds answer_timeout{10'000};  ///< for a client's answer to one question
  };
  struct Job {
    std::shared_ptr<const wire::CompileOrder> order;
    std::shared_ptr<const std::string> canonical;
    RequestDigest digest;
    bool again = false;  ///< no dependency set in the store holds for the client's files
    std::chrono::milliseconds limit{0};
  };
  struct Completion {
    RunResult result;
    std::chrono::nanoseconds took{};
    bool is_client_limit = false;  ///< cancelled by a limit shorter than `max_time`
  };
  /// Called on the loop's thread.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void on_question(std::uint64_t serial, std::string path) = 0;
    /// A question was not answered in time. The run continues to wait, until `owner_left`.
    virtual void on_answer_overdue(std::uint64_t serial) = 0;
    /// Called once for each run that started, after its thread has ended.
    virtual void on_ended(std::uint64_t serial, Completion completion) = 0;
  };

  /// `remote` may be null. The arguments outlive the supervisor.
  CompileSupervisor(Options options, EventLoop& loop, Compilers& compilers, TieredStore& store,
                    RemoteTier* remote, Logger log);
  /// Cancels all runs and waits for their threads. Does not call the observer.
  ~CompileSupervisor();

  void set_observer(Observer& observer) noexcept { observer_ = &observer; }

  /// Starts a run. Errors: internal (no thread, no memory); `on_ended` is not called then.
  Result<void> start(std::uint64_t serial, Job job);
  /// Passes on an answer. False if the run waits for none; `body` is unchanged then.
  bool answer(std::uint64_t serial, std::string& body);
  /// Reports that the client that serves the files has disconnected: the open question, or the next
  /// one, ends the run.
  void owner_left(std::uint64_t serial);
  /// Raises the time limit of a run to `limit`, for a client that joined it.
  void extend(std::uint64_t serial, std::chrono::milliseconds limit);
  void cancel_all();

 private:
  struct Run;
  Run* find(std::uint64_t serial);
  void ask(std::uint64_t serial, const std::string& path);
  void cancel_overdue(Run& run);
  void reap(std::uint64_t serial);
  void launch(Run& run, std::uint64_t serial);
  static RunResult timed_out(const Run& run);

  const Options options_;
  EventLoop& loop_;
  Compilers& compilers_;
  TieredStore& store_;
  RemoteTier* const remote_;
  const Logger log_;
  Observer* observer_ = nullptr;
  std::map<std::uint64_t, std::unique_ptr<Run>> runs_;
};

}  // namespace cukiln::daemon
