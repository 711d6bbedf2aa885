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

/// Runs compiles, each in a thread of its own, and ends those that take too long. Whatever happens
/// in a run, its observer hears of its end: the task that says so is allocated before the thread
/// starts. Threads: the loop's only.
class CompileSupervisor {
 public:
  struct Options {
    std::chrono::milliseconds longest{300'000};       ///< no run may take longer
    std::chrono::milliseconds answer_within{10'000};  ///< a client's answer to one question
  };
  struct Job {
    std::shared_ptr<const wire::CompileOrder> order;
    std::string canonical;
    RequestDigest digest;
    bool again = false;  ///< what the store has does not hold for the client's files
    std::chrono::milliseconds limit{0};
    UserStores::Handle store;
    std::shared_ptr<const wire::SourceRoots> here;  ///< null: a client is asked about the files
  };
  struct Ending {
    RunResult result;
    std::string looked_at;  ///< what the compile depends on, canonical; empty: not known
    std::chrono::nanoseconds took{};
    bool is_client_limit = false;  ///< ended by a limit that was shorter than `longest`
  };
  /// Called on the loop.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void on_question(std::uint64_t serial, std::string path) = 0;
    /// A question was not answered in time. The run goes on waiting until `owner_left`.
    virtual void on_answer_overdue(std::uint64_t serial) = 0;
    /// Called once for each run that started. The run is no more.
    virtual void on_ended(std::uint64_t serial, Ending ending) = 0;
  };

  CompileSupervisor(Options options, EventLoop& loop, Compilers& compilers, RemoteTier* remote,
                    Logger log);
  /// Cancels what runs and waits for it. Observers hear nothing of that.
  ~CompileSupervisor();

  void set_observer(Observer& observer) noexcept { observer_ = &observer; }

  /// Errors: internal (no thread, no memory). Then nothing runs, and nobody hears of an end.
  Result<void> start(std::uint64_t serial, Job job);
  /// False: the run waits for no answer.
  bool answer(std::uint64_t serial, std::string& body);
  /// Whoever has the files has left: a question that is open, or still to come, ends the run.
  void owner_left(std::uint64_t serial);
  /// Another client would wait for so long.
  void extend(std::uint64_t serial, std::chrono::milliseconds limit);
  void cancel(std::uint64_t serial);
  void cancel_all();

 private:
  struct Run;
  Run* find(std::uint64_t serial);
  void ask(std::uint64_t serial, const std::string& path);
  void end_for_time(Run& run);
  void reap(std::uint64_t serial);
  void launch(Run& run, std::uint64_t serial);
  static RunResult timed_out(const Run& run);

  const Options options_;
  EventLoop& loop_;
  Compilers& compilers_;
  RemoteTier* const remote_;
  const Logger log_;
  Observer* observer_ = nullptr;
  std::map<std::uint64_t, std::unique_ptr<Run>> runs_;
};

}  // namespace cukiln::daemon
