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

#include "addons/daemon/protocol/daemon_frame.hpp"
#include "core/base/histogram.hpp"

namespace cukiln::daemon {

/// The reasons of Session::protocol_error: faults of frames (DaemonFrameParser::fault), then of
/// messages.
inline constexpr std::string_view kProtocolErrors[] = {
    "descriptors", "length",     "flags",  "no_hello", "hello",    "obtain",
    "answer",      "invalidate", "report", "ping",     "get_blob", "put_blob"};

/// Counters of the requests with one operation, by reply.
struct RequestCounters {
  std::uint64_t ok = 0, miss = 0, error = 0, superseded = 0, declined = 0, draining = 0;
  ShortTimes times;

  void count_reply(wire::DaemonOp op, std::chrono::nanoseconds took) noexcept {
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

/// The counters of a daemon. Threads: the loop's only.
struct DaemonCounters {
  using Named = std::vector<std::pair<std::string, std::uint64_t>>;

  std::uint64_t connections_accepted = 0;
  std::uint64_t rejected_user = 0, rejected_limit = 0, rejected_version = 0, rejected_draining = 0;
  std::map<std::string_view, std::uint64_t> protocol_errors;  ///< by reason, a string literal
  std::uint64_t slow_clients = 0;  ///< closed, because they did not send or read in time
  RequestCounters obtain, get_blob, put_blob;
  std::uint64_t lookup_requests = 0, entries_sent = 0;
  std::uint64_t compile_requests = 0;
  std::uint64_t compiles_ok = 0, compiles_failed = 0, compiles_crashed = 0, compiles_timed_out = 0;
  std::uint64_t compiles_out_of_memory = 0;
  std::uint64_t compiles_garbage = 0;  ///< reported success without a valid cubin
  std::uint64_t coalesced = 0;         ///< requests that joined a compile
  std::uint64_t superseded = 0;        ///< requests that the store could serve meanwhile
  std::uint64_t declined_busy = 0, declined_compiler = 0, declined_draining = 0;
  std::uint64_t declined_arguments = 0;  ///< requests with an argument that NVRTC must not get
  std::uint64_t restarted = 0;           ///< compiles whose owner left before its last answer
  std::uint64_t orphans_finished = 0;    ///< compiles that finished after their owner left
  std::uint64_t remembered_failures = 0;
  std::uint64_t questions = 0;
  std::uint64_t loop_rounds = 0;
  std::uint64_t loop_longest_round_us = 0;  ///< processor time
  LongTimes compile_times;                  ///< of compiles that gave a cubin

  /// All counters with their names in DaemonSnapshot.
  Named named() {
    std::uint64_t all_protocol_errors = 0;
    for (const auto& [reason, count] : protocol_errors) {
      all_protocol_errors += count;
    }
    Named all = {{"connections_accepted", connections_accepted},
                 {"rejected_user", rejected_user},
                 {"rejected_limit", rejected_limit},
                 {"rejected_version", rejected_version},
                 {"rejected_draining", rejected_draining},
                 {"protocol_errors", all_protocol_errors},
                 {"slow_clients", slow_clients},
                 {"lookup_requests", lookup_requests},
                 {"entries_sent", entries_sent},
                 {"compile_requests", compile_requests},
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
                 {"declined_arguments", declined_arguments},
                 {"restarted", restarted},
                 {"orphans_finished", orphans_finished},
                 {"remembered_failures", remembered_failures},
                 {"questions", questions},
                 {"loop_rounds", loop_rounds},
                 {"loop_longest_round_us", loop_longest_round_us}};
    for (const std::string_view reason : kProtocolErrors) {
      all.emplace_back("protocol_errors_" + std::string(reason), protocol_errors[reason]);
    }
    add(all, "requests_obtain", obtain.times);
    add(all, "requests_get_blob", get_blob.times);
    add(all, "requests_put_blob", put_blob.times);
    all.insert(all.end(), {{"requests_obtain_ok", obtain.ok},
                           {"requests_obtain_miss", obtain.miss},
                           {"requests_obtain_error", obtain.error},
                           {"requests_obtain_superseded", obtain.superseded},
                           {"requests_obtain_declined", obtain.declined},
                           {"requests_obtain_draining", obtain.draining},
                           {"requests_get_blob_ok", get_blob.ok},
                           {"requests_get_blob_miss", get_blob.miss},
                           {"requests_get_blob_error", get_blob.error},
                           {"requests_put_blob_ok", put_blob.ok},
                           {"requests_put_blob_error", put_blob.error}});
    add(all, "compile_times", compile_times);
    return all;
  }

 private:
  template <class Times>
  static void add(Named& all, std::string_view name, Times& times) {
    times.each(name, [&](std::string counter, const std::atomic<std::uint64_t>& value) {
      all.emplace_back(std::move(counter), value.load(std::memory_order_relaxed));
    });
  }
};

}  // namespace cukiln::daemon
