// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/histogram.hpp"
#include "wire/daemon_frame.hpp"

namespace cukiln::daemon {

/// Why a connection was closed for what came, in the words of Session::misuse: of the frame, then
/// of the message.
inline constexpr std::string_view kMisuses[] = {"descriptors", "length",     "flags",  "no_hello",
                                                "hello",       "sets",       "get",    "compile",
                                                "answer",      "invalidate", "places", "report"};

/// Requests of one kind, by how they were answered.
struct RequestCounters {
  std::uint64_t ok = 0, miss = 0, error = 0, superseded = 0, declined = 0, draining = 0;
  ShortTimes times;

  void answered(wire::DaemonOp op, std::chrono::nanoseconds took) noexcept {
    using wire::DaemonOp;
    ++(op == DaemonOp::miss         ? miss
       : op == DaemonOp::error      ? error
       : op == DaemonOp::superseded ? superseded
       : op == DaemonOp::declined   ? declined
       : op == DaemonOp::draining   ? draining
                                    : ok);
    times.add(took);
  }
};

/// What a daemon counts. Only its loop writes and reads them.
struct DaemonCounters {
  using Named = std::vector<std::pair<std::string, std::uint64_t>>;

  std::uint64_t connections_accepted = 0;
  std::uint64_t rejected_user = 0, rejected_limit = 0, rejected_version = 0, rejected_draining = 0;
  std::map<std::string_view, std::uint64_t> protocol_errors;  ///< by a word that is a literal
  std::uint64_t slow_clients = 0;  ///< closed: they kept a frame, or its answer, waiting
  RequestCounters sets, get, compile;
  std::uint64_t sets_asked = 0;
  std::uint64_t entries_asked = 0, entries_given = 0;
  std::uint64_t compiles_asked = 0;
  std::uint64_t compiles_ok = 0, compiles_failed = 0, compiles_crashed = 0, compiles_timed_out = 0;
  std::uint64_t compiles_out_of_memory = 0;
  std::uint64_t compiles_garbage = 0;  ///< it said that it compiled, and gave no cubin
  std::uint64_t coalesced = 0;         ///< requests that joined a compile
  std::uint64_t superseded = 0;        ///< requests that the store could serve by then
  std::uint64_t declined_busy = 0, declined_compiler = 0, declined_draining = 0;
  std::uint64_t restarted = 0;         ///< compiles whose client left before its last answer
  std::uint64_t orphans_finished = 0;  ///< compiles that outlived their client
  std::uint64_t remembered_failures = 0;
  std::uint64_t questions = 0;
  std::uint64_t compiles_ahead = 0;  ///< begun because a file changed
  std::uint64_t loop_turns = 0;
  LongTimes compile_times;  ///< of those that gave a cubin

  Named named() {
    std::uint64_t misused = 0;
    for (const auto& [reason, count] : protocol_errors) {
      misused += count;
    }
    Named all = {{"connections_accepted", connections_accepted},
                 {"rejected_user", rejected_user},
                 {"rejected_limit", rejected_limit},
                 {"rejected_version", rejected_version},
                 {"rejected_draining", rejected_draining},
                 {"protocol_errors", misused},
                 {"slow_clients", slow_clients},
                 {"sets_asked", sets_asked},
                 {"entries_asked", entries_asked},
                 {"entries_given", entries_given},
                 {"compiles_asked", compiles_asked},
                 {"compiles_ok", compiles_ok},
                 {"compiles_failed", compiles_failed},
                 {"compiles_crashed", compiles_crashed},
                 {"compiles_timed_out", compiles_timed_out},
                 {"compiles_out_of_memory", compiles_out_of_memory},
                 {"compiles_garbage", compiles_garbage},
                 {"coalesced", coalesced},
                 {"superseded", superseded},
                 {"declined_busy", declined_busy},
                 {"declined_compiler", declined_compiler},
                 {"declined_draining", declined_draining},
                 {"restarted", restarted},
                 {"orphans_finished", orphans_finished},
                 {"remembered_failures", remembered_failures},
                 {"questions", questions},
                 {"compiles_ahead", compiles_ahead},
                 {"loop_turns", loop_turns}};
    for (const std::string_view word : kMisuses) {
      all.emplace_back("protocol_errors_" + std::string(word), protocol_errors[word]);
    }
    add(all, "requests_sets", sets.times);
    add(all, "requests_get", get.times);
    add(all, "requests_compile", compile.times);
    all.insert(all.end(), {{"requests_sets_ok", sets.ok},
                           {"requests_sets_error", sets.error},
                           {"requests_get_ok", get.ok},
                           {"requests_get_miss", get.miss},
                           {"requests_get_error", get.error},
                           {"requests_compile_ok", compile.ok},
                           {"requests_compile_error", compile.error},
                           {"requests_compile_superseded", compile.superseded},
                           {"requests_compile_declined", compile.declined},
                           {"requests_compile_draining", compile.draining}});
    add(all, "compile_times", compile_times);
    return all;
  }

 private:
  template <class Times>
  static void add(Named& all, std::string_view name, Times& times) {
    times.each(name, [&](std::string number, const std::atomic<std::uint64_t>& value) {
      all.emplace_back(std::move(number), value.load(std::memory_order_relaxed));
    });
  }
};

}  // namespace cukiln::daemon
