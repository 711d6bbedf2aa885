#include "compile/daemon_compiler.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "base/result.hpp"
#include "compile/file_questions.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;
using wire::DaemonFrame;
using wire::DaemonOp;

// The daemon ends a compile at its limit and says so: its word is better than ours.
constexpr std::chrono::seconds kGrace{3};
constexpr std::chrono::milliseconds kBusyPause{50};

wire::CompileOrder order_of(const CompileJob& job, const NvrtcInstall& install) {
  wire::CompileOrder order;
  order.request = *job.request;
  order.labels = *job.labels;
  order.library = install.library;
  order.builtins = install.builtins;
  order.headers = install.headers;
  return order;
}

/// Nothing: there are headers that exist in memory only, or a folder that only this process knows.
std::optional<wire::Places> places_of(const CompileJob& job) {
  if (job.files->memory_files() > job.request->sources.size()) {
    return std::nullopt;
  }
  for (const VirtualRoot& root : job.files->roots()) {
    for (const std::string& folder : root.folders) {
      if (folder.empty() || folder.front() != '/') {
        return std::nullopt;
      }
    }
  }
  return wire::Places{job.files->roots()};
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
  const std::string order;
  const SteadyClock::duration patience = job.timeout + kGrace;
  SteadyClock::time_point deadline = SteadyClock::now() + patience;
  bool again = false;  ///< all that the daemon has was looked at
  NotDone not_done;

  /// What came of it. `retry`: ask once more.
  enum class Said { outcome, failure, retry, no };
  CompileOutcome outcome;
  std::optional<Error> failure;

  Said ask_once();
  Said take_entry(DaemonFrame& frame, const wire::Greeting& greeting);
  Said take_error(DaemonFrame& frame, const FileQuestions& questions);
  Said lost(const Error& error);
  Said fail(Error error) {
    failure = std::move(error);
    return Said::failure;
  }
};

DaemonCompiler::Attempt::Said DaemonCompiler::Attempt::lost(const Error& error) {
  if (job.cancelled != nullptr && job.cancelled->load(std::memory_order_relaxed)) {
    return fail(make_error(ErrorCode::timeout, "compiling {} was cancelled", job.label));
  }
  if (SteadyClock::now() >= deadline) {
    return fail(make_error(ErrorCode::timeout,
                           "compiling {} took longer than {} ms; raise compile_timeout_ms if it "
                           "needs more",
                           job.label, job.timeout.count()));
  }
  not_done.why = error.message();
  return Said::no;
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
  const wire::CompileTerms terms{static_cast<std::uint32_t>(job.timeout.count()), again};
  if (auto sent = conversation->send(DaemonOp::compile, terms.encode(), *std::move(sealed));
      !sent) {
    return lost(sent.error());
  }
  if (conversation->greeting().watches) {
    if (const auto places = places_of(job)) {
      if (auto sent = conversation->send_content(DaemonOp::places, places->encode()); !sent) {
        return lost(sent.error());
      }
    }
  }
  FileQuestions questions(*job.request, job.request->translation_unit(), *job.files);
  for (;;) {
    auto frame = conversation->receive(deadline, job.cancelled);
    if (!frame) {
      return lost(frame.error());
    }
    switch (static_cast<DaemonOp>(frame->op)) {
      case DaemonOp::progress:
        if (const auto progress = wire::Progress::decode(frame->body);
            progress && !progress->running) {
          deadline = SteadyClock::now() + patience;  // the limit is on a compile, not on a queue
        }
        continue;
      case DaemonOp::question: {
        const std::string reply = questions.answer(frame->body).encode();
        if (auto sent = conversation->send_content(DaemonOp::answer, reply); !sent) {
          return lost(sent.error());
        }
        continue;
      }
      case DaemonOp::entry: {
        const Said said = take_entry(*frame, conversation->greeting());
        if (said == Said::no) {
          not_done.why = conversation->confused("an entry").message();
        } else {
          conversation->finish();
        }
        return said;
      }
      case DaemonOp::superseded:
        conversation->finish();
        again = true;
        if (job.still_needed && !job.still_needed()) {
          outcome.state = CompileState::superseded;
          return Said::outcome;
        }
        return Said::retry;
      case DaemonOp::error: conversation->finish(); return take_error(*frame, questions);
      case DaemonOp::declined:
      case DaemonOp::draining: {
        conversation->declined();
        const auto declined = wire::Declined::decode(frame->body);
        not_done.why = declined ? declined->reason : "it is about to end";
        not_done.later = !declined || declined->later;
        return Said::no;
      }
      default:
        not_done.why = conversation->confused("a compile's answer").message();
        return Said::no;
    }
  }
}

DaemonCompiler::Attempt::Said DaemonCompiler::Attempt::take_entry(DaemonFrame& frame,
                                                                  const wire::Greeting& greeting) {
  const auto terms = wire::EntryTerms::decode(frame.body);
  const auto content = wire::map_sealed_file(frame.attachment.get(), wire::kMaxAttachmentBytes);
  auto body = terms && content ? wire::EntryBody::decode(*content) : std::nullopt;
  if (!body || body->request_canonical != job.request->canonical() ||
      cache_key_of(body->request_canonical, body->set_canonical) != body->key) {
    return Said::no;
  }
  auto dependencies = DependencySet::parse(body->set_canonical);
  auto kernels = decode_kernels(body->kernels);
  if (!dependencies || !kernels) {
    return Said::no;
  }
  if (!terms->caused) {
    FileServer& files = *job.files;
    if (files.check(*dependencies).what != FileServer::Mismatch::What::none) {
      again = true;
      return Said::retry;
    }
  }
  CompileResult& result = outcome.result;
  result.dependencies = *std::move(dependencies);
  result.cubin = {std::move(body->image), *std::move(kernels), std::move(body->log)};
  result.observed = terms->observed;
  result.uses_time = terms->uses_time;
  result.compile_us = body->compile_us;
  outcome.stored = terms->stored && options.shares_store && options.shares_store(greeting);
  outcome.state = terms->caused ? CompileState::done : CompileState::joined;
  return Said::outcome;
}

DaemonCompiler::Attempt::Said DaemonCompiler::Attempt::take_error(DaemonFrame& frame,
                                                                  const FileQuestions& questions) {
  wire::Refusal refusal = wire::refusal_of(frame);
  if (!questions.refused().empty()) {
    return fail(make_error(ErrorCode::compile_failed, "{} cannot be compiled: {}", job.label,
                           questions.refused()));
  }
  if (!refusal.set_canonical.empty()) {
    const auto looked_at = DependencySet::parse(refusal.set_canonical);
    if (!looked_at || job.files->check(*looked_at).what != FileServer::Mismatch::What::none) {
      again = true;
      return Said::retry;
    }
  }
  return fail(in_users_words(refusal, *job.files));
}

std::optional<Result<CompileOutcome>> DaemonCompiler::ask(const CompileJob& job,
                                                          NotDone& not_done) {
  const auto known = here_->identity();
  if (!known) {
    return std::nullopt;  // the compiler here says what is wrong
  }
  Attempt attempt{options_, job, order_of(job, known->install).encode()};
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
  if (job.labels == nullptr || job.files == nullptr) {
    return here_->compile(job);
  }
  NotDone not_done{"none is known here"};
  const auto deadline = SteadyClock::now() + job.timeout;
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
                      job.label, not_done.why);
  }
  if (!not_done.why.empty()) {
    options_.log.info("{} is compiled here and not by cukilnd: {}", job.label, not_done.why);
  }
  if (options_.link->hung()) {  // its worker may have the flight's lock, and nobody to release it
    CompileJob alone = job;
    alone.flight_lock.clear();
    return here_->compile(alone);
  }
  return here_->compile(job);
}

}  // namespace cukiln
