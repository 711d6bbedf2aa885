// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "addons/daemon/compile_run.hpp"
#include "addons/daemon/counters.hpp"
#include "addons/daemon/event_loop.hpp"
#include "addons/daemon/fair_share.hpp"
#include "addons/daemon/in_flight_table.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"
#include "addons/daemon/request_handle.hpp"
#include "core/base/logger.hpp"
#include "core/loader/failure_memory.hpp"

namespace cukiln::daemon {

/// Schedules one compile for each request; further requests for it join its waiters. The first
/// waiter, the owner, answers questions about files. When the owner disconnects, a compile that
/// needs no further answer continues, and any other restarts with the next waiter as owner.
/// Scheduling is fair across sessions; see InFlightTable::next. Threads: the loop's only.
class CompileScheduler final : private CompileRun::Observer {
 public:
  struct Options {
    unsigned max_running = 1;
    FairShare queued{.total = 1024};
    FairShare held_bytes{.total = 512 << 20};  ///< source texts of in-flight compiles
    FairShare waiters{.total = 4096};
    FairShare waiters_of_compile{.total = 512};
    std::chrono::milliseconds progress_interval{500};
    CompileRun::Options runs;
  };
  /// The arguments outlive the scheduler.
  CompileScheduler(const Options& options, CompileRun::Context runs, ReplySink& replies,
                   DaemonCounters& counters);
  /// Cancels all runs and waits for their threads.
  ~CompileScheduler() override { cancel_all(); }

  /// False while the daemon drains; the request has been replied to then.
  bool accepts(const RequestHandle& request);
  void compile(const RequestHandle& request, CompileSubmission submission);
  /// Passes on the answer to a question. False if this client has no open question.
  bool answer(const RequestHandle& from, std::string body);
  /// Removes a request that its client cancelled, or all requests of a closed session (`id` 0).
  void drop(const RequestHandle& request);

  /// Refuses new requests and drops queued compiles; running ones continue.
  void drain();
  /// Cancels running compiles.
  void cancel_all();
  bool idle() const noexcept { return compiles_.empty(); }

  const InFlightTable& compiles() const noexcept { return compiles_; }
  /// The number of requests that are refused for a while, because their compile crashed or hung.
  std::size_t quarantined() { return failures_.size(); }

 private:
  using Iterator = InFlightTable::Iterator;

  void on_question(std::uint64_t serial, std::string path) override;
  void on_answer_overdue(std::uint64_t serial) override;
  void on_ended(std::uint64_t serial) override;

  bool refuse_if_quarantined(const RequestHandle& request, const RequestDigest& digest);
  bool join(const RequestHandle& request, const CompileSubmission& submission);
  void decline(const RequestHandle& request, std::string why);
  void start_next();
  void start(Iterator it);
  bool restart(Iterator it, const RunResult& result);
  void conclude(Iterator it, const CompileRun::Completion& completion);
  void remember(const InFlightCompile& compile, const CompileRun::Completion& completion);
  bool has_room_for(const RequestHandle& request, const CompileSubmission& submission) const;
  void send_progress();

  const Options options_;
  const CompileRun::Context runs_;
  ReplySink& replies_;
  DaemonCounters& counters_;
  FailureMemory failures_;
  InFlightTable compiles_;
  bool draining_ = false;
  std::uint64_t last_informed_ = 0;  // the serial up to which waiters had progress in this interval
  EventLoop::Timer progress_;
};

}  // namespace cukiln::daemon
