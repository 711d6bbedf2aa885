// SPDX-License-Identifier: Apache-2.0
#include "daemon/compile_replies.hpp"

#include "wire/daemon_messages.hpp"

namespace cukiln::daemon {

namespace {

using wire::DaemonOp;

/// True if a run was declined for lack of memory or threads, and not for its NVRTC: retrying later
/// may help.
bool is_out_of_resources(const RunResult& result) {
  return result.refusal.code == ErrorCode::internal;
}

}  // namespace

void count_run(DaemonCounters& counters, const RunResult& result) {
  switch (result.kind) {
    case RunResult::Kind::done: ++counters.compiles_ok; return;
    case RunResult::Kind::superseded: ++counters.superseded; return;
    case RunResult::Kind::declined:
      ++(is_out_of_resources(result) ? counters.declined_busy : counters.declined_compiler);
      return;
    case RunResult::Kind::owner_left: return;
    case RunResult::Kind::failed: break;
  }
  switch (result.failure_kind) {
    case CompileFailureKind::out_of_memory: ++counters.compiles_out_of_memory; return;
    case CompileFailureKind::garbage: ++counters.compiles_garbage; return;
    case CompileFailureKind::other: break;
  }
  switch (result.refusal.code) {
    case ErrorCode::internal: ++counters.compiles_crashed; return;
    case ErrorCode::timeout: ++counters.compiles_timed_out; return;
    default: ++counters.compiles_failed; return;
  }
}

void reply_to_waiter(const InFlightCompile& compile, const RequestHandle& waiter,
                     const RunResult& result) {
  ReplySink& to = compile.sink;
  const bool is_owner = compile.is_owner(waiter);
  switch (result.kind) {
    case RunResult::Kind::done: {
      wire::EntryTerms terms = result.terms;
      terms.caused = is_owner;
      return to.reply(waiter, DaemonOp::entry, terms.encode(), result.sealed);
    }
    case RunResult::Kind::superseded: return to.reply(waiter, DaemonOp::superseded, {}, nullptr);
    case RunResult::Kind::declined:
      return to.reply(waiter, DaemonOp::declined,
                      wire::Declined{result.refusal.message, is_out_of_resources(result)}.encode(),
                      nullptr);
    case RunResult::Kind::failed: {
      if (!is_owner) {  // the owner's files or limits may have caused it
        return to.reply(waiter, DaemonOp::declined,
                        wire::Declined{"another client's compile failed", true}.encode(), nullptr);
      }
      wire::Refusal refusal = result.refusal;
      refusal.set_canonical.clear();  // the owner need not compare its own files
      return to.reply(waiter, DaemonOp::error, refusal.encode(), nullptr);
    }
    case RunResult::Kind::owner_left: return to.reply(waiter, DaemonOp::draining, {}, nullptr);
  }
}

}  // namespace cukiln::daemon
