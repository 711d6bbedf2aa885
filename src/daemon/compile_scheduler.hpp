// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/logger.hpp"
#include "daemon/compile_supervisor.hpp"
#include "daemon/counters.hpp"
#include "daemon/event_loop.hpp"
#include "daemon/in_flight_table.hpp"
#include "daemon/request_handle.hpp"
#include "loader/failure_memory.hpp"
#include "wire/daemon_messages.hpp"

namespace cukiln::daemon {

/// One compile per user and request: a request for what is being compiled for the same user waits
/// with the others. The first of them, the owner, answers questions about files. When it leaves, a
/// compile that needs no further answer goes on, and one that does begins again for the next.
/// Results and failures are the user's; nothing of them reaches another's. Scheduling is fair
/// across users; see InFlightTable::next. Threads: the loop's only.
class CompileScheduler final : private CompileSupervisor::Observer {
 public:
  struct Options {
    unsigned at_once = 1;
    std::size_t max_waiting = 1024;            ///< compiles that wait for their turn
    std::uint64_t max_held_bytes = 512 << 20;  ///< of texts
    std::chrono::milliseconds progress_every{500};
    CompileSupervisor::Options runs;
  };
  /// All of it outlives this.
  CompileScheduler(const Options& options, EventLoop& loop, CompileSupervisor& supervisor,
                   ReplySink& replies, DaemonCounters& counters, Logger log);

  /// Whether a request is worth a look into the store. If not, it has been answered.
  bool accepts(const RequestHandle& request);
  void compile(const RequestHandle& request, CompileSubmission submission);
  /// Where the files of this client's compile are. It may have ended.
  void places(const RequestHandle& request, wire::SourceRoots places);
  /// No client waits for it, and its files are opened here. It begins when no client's compile
  /// waits, one at a time, and beside `at_once`.
  void compile_ahead(CompileSubmission submission, std::uint32_t user,
                     std::shared_ptr<const wire::SourceRoots> places);
  /// Called after a compile whose files this process can open.
  using Compiled = std::function<void(std::shared_ptr<const wire::CompileOrder> order,
                                      std::shared_ptr<const wire::SourceRoots> places,
                                      std::string set_canonical)>;
  void on_compiled(Compiled compiled) { compiled_ = std::move(compiled); }
  /// False: this client was asked nothing.
  bool answer(const RequestHandle& from, std::string body);
  /// The client cancels one request, or has left (`id` 0).
  void leave(const RequestHandle& request);

  /// Takes nothing new, and lets nothing new begin.
  void drain();
  bool idle() const noexcept { return compiles_.empty(); }

  const InFlightTable& compiles() const noexcept { return compiles_; }
  /// Requests that are not tried for a while.
  std::size_t quarantined();

 private:
  using Place = InFlightTable::Place;

  void on_question(std::uint64_t serial, std::string path) override;
  void on_answer_overdue(std::uint64_t serial) override;
  void on_ended(std::uint64_t serial, CompileSupervisor::Ending ending) override;

  bool recalls_failure(const RequestHandle& request, const RequestDigest& digest);
  bool join(const RequestHandle& request, const CompileSubmission& submission);
  void decline(const RequestHandle& request, std::string why, bool later);
  void enqueue(InFlightTable::Compiles one);
  void start_next();
  void start(Place place);
  bool restart(Place place, const RunResult& result);
  void conclude(Place place, CompileSupervisor::Ending ending);
  void remember(const InFlightCompile& compile, const CompileSupervisor::Ending& ending);
  void tell_progress();

  const Options options_;
  CompileSupervisor& supervisor_;
  ReplySink& replies_;
  DaemonCounters& counters_;
  const Logger log_;
  std::map<std::uint32_t, FailureMemory> failures_;  // by user
  InFlightTable compiles_;
  Compiled compiled_;
  bool draining_ = false;
  EventLoop::Timer progress_;
};

}  // namespace cukiln::daemon
