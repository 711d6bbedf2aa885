// SPDX-License-Identifier: Apache-2.0
#include "compile/daemon_compiler.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "base/result.hpp"
#include "compile/local_file_provider.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;
using wire::DaemonFrame;
using wire::DaemonOp;

// The daemon ends a compile at its limit and says so: its word is better than ours.
constexpr std::chrono::seconds kGrace{3};
constexpr std::chrono::milliseconds kBusyPause{50};
// How often one order is given, when what comes back holds for other files, and how many times the
// limit of a compile is waited in a queue.
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

/// Nothing: there are headers that exist in memory only, or a folder that only this process knows.
std::optional<wire::SourceRoots> places_of(const CompileRequest& request, FileServer& files) {
  if (files.memory_files() > request.sources.size()) {
    return std::nullopt;
  }
  for (const VirtualRoot& root : files.roots()) {
    for (const std::string& folder : root.folders) {
      if (folder.empty() || folder.front() != '/') {
        return std::nullopt;
      }
    }
  }
  return wire::SourceRoots{files.roots()};
}

/// The daemon knows virtual paths; the user knows their own.
Error in_users_words(const wire::Refusal& refusal, FileServer& files) {
  return Error(refusal.code, files.with_real_paths(refusal.message),
               files.with_real_paths(refusal.log));
}

}  // namespace

/// One order, as often as it takes: another's result may not hold for the files here.
struct DaemonCompiler::Attempt {
  const Options& options;
  const CompileJob& job;
  FileServer& files;
  const std::string order;
  const SteadyClock::duration patience = job.input.timeout + kGrace;
  const SteadyClock::time_point began = SteadyClock::now();
  SteadyClock::time_point deadline = began + patience;
  int orders = 0;
  bool again = false;  ///< all that the daemon has was looked at
  NotDone not_done;

  /// What came of it. `retry`: ask once more.
  enum class Said { outcome, failure, retry, no };
  CompileOutcome outcome;
  std::optional<Error> failure;

  Said ask_once();
  using Conversation = wire::DaemonLink::Conversation;
  Said take_entry(DaemonFrame& frame, Conversation& conversation);
  Said take_error(DaemonFrame& frame, Conversation& conversation,
                  const LocalFileProvider& provider);
  Said lost(const Error& error);
  /// It was counted as a fallback. `later`: it may do better when it is asked again.
  Said no(std::string why, bool later) {
    not_done = {std::move(why), later};
    return Said::no;
  }
  Said protocol_error(Conversation& conversation, const char* about) {
    return no(conversation.protocol_error(about).message(), false);
  }
  Said ask_again(Conversation& conversation) {
    again = true;
    if (++orders < kMaxOrders) {
      conversation.finish();
      return Said::retry;
    }
    conversation.declined();
    return no("what it has is of other files, again and again", true);
  }
  Said fail(Error error) {
    failure = std::move(error);
    return Said::failure;
  }
};

DaemonCompiler::Attempt::Said DaemonCompiler::Attempt::lost(const Error& error) {
  if (job.input.cancelled != nullptr && job.input.cancelled->load(std::memory_order_relaxed)) {
    return fail(make_error(ErrorCode::timeout, "compiling {} was cancelled", job.input.label));
  }
  if (SteadyClock::now() >= deadline) {
    return fail(make_error(ErrorCode::timeout,
                           "compiling {} took longer than {} ms; raise compile_timeout if it "
                           "needs more",
                           job.input.label, job.input.timeout.count()));
  }
  return no(error.message(), false);
}

DaemonCompiler::Attempt::Said DaemonCompiler::Attempt::ask_once() {
  auto conversation = options.link->begin();
  if (!conversation) {
    return lost(conversation.error());
  }
  auto sealed = wire::make_sealed_file({order});
  if (!sealed) {
    return lost(sealed.error());
  }
  const wire::CompileTerms terms{static_cast<std::uint32_t>(job.input.timeout.count()), again};
  if (auto sent = conversation->send(DaemonOp::compile, terms.encode(), *std::move(sealed));
      !sent) {
    return lost(sent.error());
  }
  if (conversation->greeting().watches) {
    if (const auto places = places_of(job.input.request, files)) {
      if (auto sent = conversation->send_content(DaemonOp::source_roots, places->encode()); !sent) {
        return lost(sent.error());
      }
    }
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
        if (!progress->running) {  // the limit is on a compile, not on a queue
          const auto now = SteadyClock::now();
          if (!options.link->required() && now - began > kMaxQueueing * patience) {
            conversation->declined();
            return no("its queue is too long", true);
          }
          deadline = now + patience;
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
      case DaemonOp::entry: return take_entry(*frame, *conversation);
      case DaemonOp::superseded:
        if (job.guard.still_needed && !job.guard.still_needed()) {
          conversation->finish();
          outcome.state = CompileState::superseded;
          return Said::outcome;
        }
        return ask_again(*conversation);
      case DaemonOp::error: return take_error(*frame, *conversation, provider);
      case DaemonOp::declined:
      case DaemonOp::draining: {
        conversation->declined();
        const auto declined = wire::Declined::decode(frame->body);
        return no(declined ? declined->reason : "it is about to end", !declined || declined->later);
      }
      default: return protocol_error(*conversation, "a compile's answer");
    }
  }
}

DaemonCompiler::Attempt::Said DaemonCompiler::Attempt::take_entry(DaemonFrame& frame,
                                                                  Conversation& conversation) {
  const auto terms = wire::EntryTerms::decode(frame.body);
  const auto content = wire::map_sealed_file(frame.attachment.get(), wire::kMaxAttachmentBytes);
  auto body = terms && content ? wire::EntryBody::decode(*content) : std::nullopt;
  if (!body || body->request_canonical != job.input.request.canonical() ||
      cache_key_of(body->request_canonical, body->set_canonical) != body->key) {
    return protocol_error(conversation, "an entry");
  }
  auto dependencies = DependencySet::parse(body->set_canonical);
  auto kernels = decode_kernels(body->kernels);
  if (!dependencies || !kernels) {
    return protocol_error(conversation, "an entry");
  }
  // Of this client's own compile too: what it was served must be what its result depends on.
  if (files.check(*dependencies).what != FileServer::Mismatch::What::none) {
    return terms->caused ? protocol_error(conversation, "an entry of other files")
                         : ask_again(conversation);
  }
  CompileResult& result = outcome.result;
  result.dependencies = *std::move(dependencies);
  result.cubin = {std::move(body->image), *std::move(kernels), std::move(body->log)};
  result.observed = terms->observed;
  result.uses_time = terms->uses_time;
  result.compile_us = body->compile_us;
  outcome.stored =
      terms->stored && options.shares_store && options.shares_store(conversation.greeting());
  outcome.state = terms->caused ? CompileState::done : CompileState::joined;
  conversation.finish();
  return Said::outcome;
}

/// What NVRTC said of this client's own files is final, and so is a limit that was reached. All
/// else that went wrong there may go well here.
DaemonCompiler::Attempt::Said DaemonCompiler::Attempt::take_error(
    DaemonFrame& frame, Conversation& conversation, const LocalFileProvider& provider) {
  const auto content = wire::content_of(frame);
  const auto refusal = content ? wire::Refusal::decode(*content) : std::nullopt;
  if (!refusal) {
    return protocol_error(conversation, "an error");
  }
  const bool own = refusal->set_canonical.empty();
  const bool verdict =
      own && refusal->code == ErrorCode::compile_failed && provider.refused().empty();
  const bool too_long =
      own && refusal->code == ErrorCode::timeout && SteadyClock::now() - began >= job.input.timeout;
  if (verdict || too_long || options.link->required()) {
    conversation.finish();
    return fail(provider.refused().empty()
                    ? in_users_words(*refusal, files)
                    : make_error(ErrorCode::compile_failed, "{} cannot be compiled: {}",
                                 job.input.label, provider.refused()));
  }
  if (refusal->code == ErrorCode::invalid_argument) {
    return protocol_error(conversation, refusal->message.c_str());
  }
  conversation.declined();
  return no(refusal->message, true);
}

std::optional<Result<CompileOutcome>> DaemonCompiler::ask(const CompileJob& job,
                                                          NotDone& not_done) {
  const auto known = here_->identity();
  if (!known) {
    return std::nullopt;  // the compiler here says what is wrong
  }
  Attempt attempt{options_, job, *job.files.local(), order_of(job, known->install).encode()};
  for (;;) {
    switch (attempt.ask_once()) {
      case Attempt::Said::outcome: return std::move(attempt.outcome);
      case Attempt::Said::failure: return *std::move(attempt.failure);
      case Attempt::Said::retry: continue;
      case Attempt::Said::no: not_done = std::move(attempt.not_done); return std::nullopt;
    }
  }
}

Result<CompileOutcome> DaemonCompiler::compile(const CompileJob& job) {
  if (job.input.labels == nullptr || job.files.local() == nullptr) {
    return here_->compile(job);
  }
  NotDone not_done{"none is known here"};
  const auto deadline = SteadyClock::now() + job.input.timeout;
  while (options_.link->available()) {
    if (auto outcome = ask(job, not_done)) {
      return *std::move(outcome);
    }
    if (!options_.link->required() || !not_done.later || SteadyClock::now() >= deadline) {
      break;
    }
    std::this_thread::sleep_for(kBusyPause);
  }
  if (options_.link->required()) {
    return make_error(ErrorCode::io,
                      "{} was not compiled, because daemon=require and cukilnd does not do it: {}. "
                      "Start it if it does not run (cukiln daemon start), or set daemon=auto",
                      job.input.label, not_done.why);
  }
  if (!not_done.why.empty()) {
    options_.log.info("{} is compiled here and not by cukilnd: {}", job.input.label, not_done.why);
  }
  if (options_.link->hung()) {  // its worker may hold the lock, and nothing releases it
    CompileJob alone = job;
    alone.guard.lock_path.clear();
    return here_->compile(alone);
  }
  return here_->compile(job);
}

}  // namespace cukiln
