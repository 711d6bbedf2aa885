// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "addons/daemon/client/daemon_client.hpp"
#include "addons/daemon/client/object_message.hpp"
#include "addons/daemon/protocol/sealed_file.hpp"
#include "core/base/result.hpp"
#include "core/compile/local_file_provider.hpp"
#include "core/compile/nvrtc_compiler.hpp"
#include "core/loader/addons.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;
using wire::DaemonFrame;
using wire::DaemonOp;

// The daemon stops a compile at its timeout. The client waits a little longer, because the daemon's
// error says more than its own.
constexpr std::chrono::seconds kGrace{3};
constexpr std::chrono::milliseconds kRetryPause{50};
// How often an order is repeated if the result holds for another client's files only, and how long
// it may be queued, in multiples of the compile's timeout.
constexpr int kMaxOrders = 8;
constexpr int kMaxQueueing = 4;

wire::CompileOrder order_of(const CompileJob& job, const NvrtcInstall& install) {
  wire::CompileOrder order;
  order.request = job.input.request;
  order.labels = *job.input.labels;
  order.library = install.library;
  order.builtins = install.builtins;
  order.headers = install.headers;
  return order;
}

/// Why the daemon did not compile a request.
struct Declined {
  std::string why;
  bool retry = false;  ///< a later attempt may succeed
};

/// Makes an Error of the daemon's, with real paths in place of virtual ones.
Error error_with_real_paths(const wire::Refusal& refusal, FileServer& files) {
  return Error(refusal.code, files.with_real_paths(refusal.message),
               files.with_real_paths(refusal.log));
}

/// One compile in the daemon. The order is repeated while the result is another client's compile
/// that does not hold for the files here.
struct Attempt {
  DaemonClient& client;
  const CompileJob& job;
  FileServer& files;
  const std::string order;
  const SteadyClock::duration timeout = job.input.timeout + kGrace;
  const SteadyClock::time_point began = SteadyClock::now();
  SteadyClock::time_point deadline = began + timeout;
  int orders = 0;
  Declined declined;

  /// `retry`: send the order once more.
  enum class AttemptStatus { outcome, failure, retry, declined };
  CompileOutcome outcome;
  std::optional<Error> failure;

  /// Looks up again. True if there is a result in the store now.
  bool is_superseded() {
    const bool is_found = job.guard.still_needed && !job.guard.still_needed();
    outcome.state = is_found ? CompileState::superseded : CompileState::done;
    return is_found;
  }
  AttemptStatus order_once();
  using Conversation = DaemonClient::Conversation;
  AttemptStatus take_entry(DaemonFrame& frame, Conversation& conversation);
  AttemptStatus take_error(DaemonFrame& frame, Conversation& conversation,
                           const LocalFileProvider& provider);
  AttemptStatus lost(const Error& error);
  /// `retry` if a later attempt may succeed. The link has counted it as a fallback.
  AttemptStatus decline(std::string why, bool retry) {
    declined = {std::move(why), retry};
    return AttemptStatus::declined;
  }
  AttemptStatus protocol_error(Conversation& conversation, const char* what) {
    return decline(conversation.protocol_error(what).message(), false);
  }
  AttemptStatus order_again(Conversation& conversation) {
    if (++orders < kMaxOrders) {
      conversation.finish();
      return AttemptStatus::retry;
    }
    conversation.declined();
    return decline(
        fmt::format("{} results in a row held for other clients' files only", kMaxOrders), true);
  }
  AttemptStatus fail(Error error) {
    failure = std::move(error);
    return AttemptStatus::failure;
  }
};

Attempt::AttemptStatus Attempt::lost(const Error& error) {
  if (job.input.cancelled.is_set()) {
    return fail(make_error(ErrorCode::timeout, "compiling {} was cancelled", job.input.label));
  }
  if (SteadyClock::now() >= deadline) {
    return fail(make_error(ErrorCode::timeout,
                           "compiling {} took longer than {} ms; raise compile_timeout if it "
                           "needs more",
                           job.input.label, job.input.timeout.count()));
  }
  return decline(error.message(), false);
}

Attempt::AttemptStatus Attempt::order_once() {
  auto conversation = client.begin();
  if (!conversation) {
    return lost(conversation.error());
  }
  auto sealed = wire::make_sealed_file({order});
  if (!sealed) {
    return lost(sealed.error());
  }
  const wire::ObtainTerms terms{static_cast<std::uint32_t>(job.input.timeout.count())};
  if (auto sent = conversation->send(DaemonOp::obtain, terms.encode(), *std::move(sealed)); !sent) {
    return lost(sent.error());
  }
  LocalFileProvider provider(job.input.request, job.input.request.translation_unit(), files);
  for (;;) {
    auto frame = conversation->receive(deadline, job.input.cancelled);
    if (!frame) {
      return lost(frame.error());
    }
    switch (static_cast<DaemonOp>(frame->op)) {
      case DaemonOp::progress: {
        const auto progress = wire::Progress::decode(frame->body);
        if (!progress) {
          return protocol_error(*conversation, "progress");
        }
        if (!progress->running) {  // the timeout begins when the compile does
          const auto now = SteadyClock::now();
          if (!client.required() && now - began > kMaxQueueing * timeout) {
            conversation->declined();
            return decline("the order was queued for too long", true);
          }
          deadline = now + timeout;
        }
        continue;
      }
      case DaemonOp::question: {
        const std::string reply = provider.answer(frame->body).encode();
        if (auto sent = conversation->send_content(DaemonOp::answer, reply); !sent) {
          return lost(sent.error());
        }
        continue;
      }
      case DaemonOp::still_needed: {
        const wire::StillNeeded reply{!is_superseded()};
        if (auto sent = conversation->send(DaemonOp::answer, reply.encode()); !sent) {
          return lost(sent.error());
        }
        continue;
      }
      case DaemonOp::object: return take_entry(*frame, *conversation);
      case DaemonOp::superseded:
        if (outcome.state == CompileState::superseded || is_superseded()) {
          conversation->finish();
          return AttemptStatus::outcome;
        }
        return order_again(*conversation);
      case DaemonOp::error: return take_error(*frame, *conversation, provider);
      case DaemonOp::declined:
      case DaemonOp::draining: {
        conversation->declined();
        const auto reply = wire::Declined::decode(frame->body);
        return decline(reply ? reply->reason : "it is shutting down", !reply || reply->later);
      }
      default: return protocol_error(*conversation, "a compile's answer");
    }
  }
}

Attempt::AttemptStatus Attempt::take_entry(DaemonFrame& frame, Conversation& conversation) {
  const auto terms = wire::EntryTerms::decode(frame.body);
  auto entry = terms ? entry_of(frame) : std::nullopt;
  if (!entry || entry->request_canonical != job.input.request.canonical()) {
    return protocol_error(conversation, "an entry");
  }
  // Checked for this client's own compile too: its set must be of the files that were served.
  if (files.check(entry->dependencies).what != FileServer::Mismatch::What::none) {
    return terms->caused ? protocol_error(conversation, "an entry of other files")
                         : order_again(conversation);
  }
  CompileResult& result = outcome.result;
  result.dependencies = std::move(entry->dependencies);
  result.cubin = std::move(entry->cubin);
  result.observed = terms->observed;
  result.uses_time = terms->uses_time;
  result.compile_us = entry->compile_us;
  outcome.in_daemon = terms->stored;
  outcome.stored = terms->stored && client.is_own_store(conversation.greeting());
  outcome.state = terms->caused ? CompileState::done : CompileState::joined;
  conversation.finish();
  return AttemptStatus::outcome;
}

/// Decides what follows an error. NVRTC's error about this client's own files is final, and so is
/// the compile's timeout. After any other error the compile may succeed in this process.
Attempt::AttemptStatus Attempt::take_error(DaemonFrame& frame, Conversation& conversation,
                                           const LocalFileProvider& provider) {
  const auto content = content_of(frame);
  const auto refusal = content ? wire::Refusal::decode(*content) : std::nullopt;
  if (!refusal) {
    return protocol_error(conversation, "an error");
  }
  const bool own = refusal->set_canonical.empty();
  const bool does_not_compile =
      own && refusal->code == ErrorCode::compile_failed && provider.refused().empty();
  const bool timed_out =
      own && refusal->code == ErrorCode::timeout && SteadyClock::now() - began >= job.input.timeout;
  if (does_not_compile || timed_out || client.required()) {
    conversation.finish();
    return fail(provider.refused().empty()
                    ? error_with_real_paths(*refusal, files)
                    : make_error(ErrorCode::compile_failed, "{} cannot be compiled: {}",
                                 job.input.label, provider.refused()));
  }
  if (refusal->code == ErrorCode::invalid_argument) {
    return protocol_error(conversation, refusal->message.c_str());
  }
  conversation.declined();
  return decline(refusal->message, true);
}

/// Compiles in cukilnd, and in this process if the daemon is missing, hung, busy or unable. Links
/// run in a worker of this process: their parts, which take the time, are compiles of their own.
class DaemonCompiler final : public Compiler {
 public:
  DaemonCompiler(DaemonClient& client, std::unique_ptr<NvrtcCompiler> fallback, Logger log)
      : client_(client), fallback_(std::move(fallback)), log_(std::move(log)) {}

  Result<Toolchain> toolchain() override { return fallback_->toolchain(); }
  Result<Toolchain> linker() override { return fallback_->linker(); }
  Result<std::vector<Target>> targets() override { return fallback_->targets(); }
  void hint_upcoming(std::size_t compiles) override { fallback_->hint_upcoming(compiles); }
  std::vector<std::string> toolkit_folders() override { return fallback_->toolkit_folders(); }
  bool single_flight() const noexcept override { return client_.available() || client_.hung(); }

  /// Errors: as NvrtcCompiler's; not_found if a daemon is required and none compiled it.
  Result<CompileOutcome> compile(const CompileJob& job) override;

 private:
  /// Returns nothing if the daemon did not compile it; `declined` says why.
  std::optional<Result<CompileOutcome>> compile_in_daemon(const CompileJob& job,
                                                          Declined& declined);

  DaemonClient& client_;
  const std::unique_ptr<NvrtcCompiler> fallback_;
  const Logger log_;
};

std::optional<Result<CompileOutcome>> DaemonCompiler::compile_in_daemon(const CompileJob& job,
                                                                        Declined& declined) {
  const auto known = fallback_->identity();
  if (!known) {
    return std::nullopt;  // the fallback reports what is wrong with NVRTC
  }
  using AttemptStatus = Attempt::AttemptStatus;
  Attempt attempt{client_, job, *job.files.local(), order_of(job, known->install).encode()};
  for (;;) {
    switch (attempt.order_once()) {
      case AttemptStatus::outcome: return std::move(attempt.outcome);
      case AttemptStatus::failure: return *std::move(attempt.failure);
      case AttemptStatus::retry: continue;
      case AttemptStatus::declined: declined = std::move(attempt.declined); return std::nullopt;
    }
  }
}

Result<CompileOutcome> DaemonCompiler::compile(const CompileJob& job) {
  if (job.input.labels == nullptr || job.files.local() == nullptr || job.input.request.link) {
    return fallback_->compile(job);
  }
  Declined declined{"no socket is configured"};
  const auto deadline = SteadyClock::now() + job.input.timeout;
  while (client_.available()) {
    if (auto outcome = compile_in_daemon(job, declined)) {
      if (!*outcome && outcome->error().code() == ErrorCode::compile_failed &&
          job.nvrtc_failure != nullptr) {
        // The daemon's error is for persons: what NVRTC said of what is seen here, and remembered.
        return fallback_->compile(job);
      }
      return *std::move(outcome);
    }
    if (!client_.required() || !declined.retry || SteadyClock::now() >= deadline) {
      break;
    }
    std::this_thread::sleep_for(kRetryPause);
  }
  if (client_.required()) {
    return make_error(ErrorCode::not_found,
                      "{} was not compiled: daemon=require is set, and cukilnd did not compile it: "
                      "{}. Start it (cukiln daemon start), or set daemon=auto",
                      job.input.label, declined.why);
  }
  if (!declined.why.empty()) {
    log_.info("{} is compiled in this process and not by cukilnd: {}", job.input.label,
              declined.why);
  }
  if (client_.hung()) {  // its worker may hold the lock, and may never release it
    CompileJob unlocked = job;
    unlocked.guard.lock_path.clear();
    return fallback_->compile(unlocked);
  }
  return fallback_->compile(job);
}

}  // namespace

void register_daemon(Registry& registry) {
  registry.open_daemon = [](DaemonTier::Options options) -> std::unique_ptr<DaemonTier> {
    return std::make_unique<DaemonClient>(DaemonClient::Options{std::move(options)});
  };
  registry.compile_in_daemon = [](DaemonTier& daemon, std::unique_ptr<NvrtcCompiler> here,
                                  Logger log) -> std::unique_ptr<Compiler> {
    return std::make_unique<DaemonCompiler>(static_cast<DaemonClient&>(daemon), std::move(here),
                                            std::move(log));
  };
}

}  // namespace cukiln
