// SPDX-License-Identifier: Apache-2.0
#include "daemon/compile_answers.hpp"

#include "wire/daemon_messages.hpp"

namespace cukiln::daemon {

namespace {

using wire::DaemonOp;

/// Declined for want of memory or a thread, which may be there later. Another NVRTC never is.
bool lacked_means(const RunResult& result) { return result.refusal.code == ErrorCode::internal; }

}  // namespace

void count_run(DaemonCounters& counters, const RunResult& result) {
  switch (result.kind) {
    case RunResult::Kind::done: ++counters.compiles_ok; return;
    case RunResult::Kind::superseded: ++counters.superseded; return;
    case RunResult::Kind::declined:
      ++(lacked_means(result) ? counters.declined_busy : counters.declined_compiler);
      return;
    case RunResult::Kind::gone: return;
    case RunResult::Kind::failed: break;
  }
  switch (result.trouble) {
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

void answer_waiter(const InFlightCompile& compile, const RequestHandle& waiter,
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
                      wire::Declined{result.refusal.message, lacked_means(result)}.encode(),
                      nullptr);
    case RunResult::Kind::failed: {
      if (!is_owner) {  // of another client's files and limits: no verdict on this one's
        return to.reply(waiter, DaemonOp::declined,
                        wire::Declined{"another client's compile failed", true}.encode(), nullptr);
      }
      wire::Refusal refusal = result.refusal;
      refusal.set_canonical.clear();  // its own files: nothing to compare
      return to.reply(waiter, DaemonOp::error, refusal.encode(), nullptr);
    }
    case RunResult::Kind::gone: return to.reply(waiter, DaemonOp::draining, {}, nullptr);
  }
}

}  // namespace cukiln::daemon
