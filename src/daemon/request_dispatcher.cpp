// SPDX-License-Identifier: Apache-2.0
#include "daemon/request_dispatcher.hpp"

#include <optional>

#include "base/result.hpp"
#include "loader/loader_telemetry.hpp"
#include "wire/daemon_link.hpp"

#include <cukiln/version.hpp>

namespace cukiln::daemon {

namespace {

using wire::DaemonFrame;
using wire::DaemonOp;

constexpr std::uint64_t kMaxOrderBytes = 128ull << 20;

}  // namespace

RequestDispatcher::RequestDispatcher(Parts parts)
    : parts_(std::move(parts)), reportable_(LoaderTelemetry::names()) {
  for (const char* reason : wire::kFallbacks) {
    reportable_.insert(std::string("fallbacks_") + reason);
  }
}

template <class T>
void RequestDispatcher::run_away(Session& session, std::function<Result<T>()> work,
                                 std::function<void(Session&, T)> then) {
  parts_.pool.submit<T>(
      std::move(work), [this, number = session.number(), then = std::move(then)](Result<T> result) {
        if (Session* const asked = parts_.sessions.find(number)) {
          asked->guard([&]() -> Result<void> {
            CUKILN_TRY(T value, std::move(result));
            then(*asked, std::move(value));
            asked->resume();
            return {};
          });
          parts_.loop.stay_awake();
        }
      });
  session.pause();
}

void RequestDispatcher::with_content(Session& session, DaemonFrame& frame, std::uint64_t max_bytes,
                                     std::function<void(Session&, Result<SharedBytes>)> then) {
  if (!frame.attachment) {
    return then(session, SharedBytes(std::move(frame.body)));
  }
  using Content = std::shared_ptr<Result<SharedBytes>>;
  const auto kept = std::make_shared<DaemonFrame>(std::move(frame));
  run_away<Content>(
      session,
      [kept, max_bytes]() -> Result<Content> {
        return std::make_shared<Result<SharedBytes>>(read_content(*kept, max_bytes));
      },
      [then = std::move(then)](Session& asked, const Content& content) {
        then(asked, std::move(*content));
      });
}

void RequestDispatcher::send_counted(RequestCounters& requests, const RequestHandle& to,
                                     Session& session, Reply reply) {
  requests.answered(reply.op, std::chrono::steady_clock::now() - to.since);
  session.send(reply.op, to.id, std::move(reply.body), std::move(reply.attachment));
}

void RequestDispatcher::reply(const RequestHandle& to, DaemonOp op, std::string body,
                              std::shared_ptr<UniqueFd> attachment) {
  Session* const session = parts_.sessions.find(to.session);
  if (session == nullptr) {
    return;
  }
  if (op == DaemonOp::progress || op == DaemonOp::question) {
    return session->send(op, to.id, std::move(body), std::move(attachment));
  }
  send_counted(parts_.counters.compile, to, *session, {op, std::move(body), std::move(attachment)});
}

void RequestDispatcher::hang_up(const RequestHandle& request) noexcept {
  if (Session* const session = parts_.sessions.find(request.session)) {
    session->close();
  }
}

void RequestDispatcher::on_frame(Session& session, DaemonFrame& frame) {
  switch (static_cast<DaemonOp>(frame.op)) {
    case DaemonOp::sets: return find_sets(session, frame);
    case DaemonOp::get: return give_entry(session, frame);
    case DaemonOp::compile: return compile(session, frame);
    case DaemonOp::answer: return answer(session, frame);
    case DaemonOp::source_roots: return places(session, frame);
    case DaemonOp::cancel:
      if (frame.id != 0) {
        parts_.scheduler.leave(session.request(frame.id));
      }
      return;
    case DaemonOp::state:
      return session.send(DaemonOp::state_is, frame.id, parts_.describe().encode());
    case DaemonOp::invalidate: return invalidate(session, frame);
    case DaemonOp::report: return take_report(session, frame);
    case DaemonOp::ping: return session.send(DaemonOp::pong, frame.id, std::move(frame.body));
    default: break;
  }
  const auto unknown =
      make_error(ErrorCode::invalid_argument,
                 "this daemon does not know operation {}; it is version {}", frame.op, version());
  session.send(DaemonOp::error, frame.id, wire::Refusal::of(unknown).encode());
}

void RequestDispatcher::find_sets(Session& session, DaemonFrame& frame) {
  ++parts_.counters.sets_asked;
  const auto kept = std::make_shared<DaemonFrame>(std::move(frame));
  run_away<std::optional<Reply>>(
      session,
      [&stores = parts_.stores, user = session.peer().user, kept]()
          -> Result<std::optional<Reply>> { return LookupService::find_sets(stores, user, *kept); },
      [this, to = session.request(kept->id)](Session& asked, std::optional<Reply> found) {
        if (!found) {
          return asked.misuse("sets");
        }
        send_counted(parts_.counters.sets, to, asked, *std::move(found));
      });
}

void RequestDispatcher::give_entry(Session& session, const DaemonFrame& frame) {
  using Sealed = std::shared_ptr<UniqueFd>;
  ++parts_.counters.entries_asked;
  const auto wanted = wire::EntryWanted::decode(frame.body);
  if (!wanted) {
    return session.misuse("get");
  }
  const auto give = [this, to = session.request(frame.id)](Session& asked, Sealed sealed) {
    if (sealed == nullptr) {
      return send_counted(parts_.counters.get, to, asked, {DaemonOp::miss, {}});
    }
    ++parts_.counters.entries_given;
    send_counted(parts_.counters.get, to, asked,
                 {DaemonOp::entry, wire::EntryTerms{}.encode(), std::move(sealed)});
  };
  const uid_t user = session.peer().user;
  if (Sealed cached = parts_.lookups.cached(user, wanted->key)) {
    return give(session, std::move(cached));
  }
  using Found = std::shared_ptr<Result<Sealed>>;
  run_away<Found>(
      session,
      [&stores = parts_.stores, user, key = wanted->key]() -> Result<Found> {
        return std::make_shared<Result<Sealed>>(LookupService::seal_entry(stores, user, key));
      },
      [this, give, to = session.request(frame.id), user, key = wanted->key,
       generation = parts_.lookups.cache().generation()](Session& asked, const Found& found) {
        if (!*found) {
          return send_counted(parts_.counters.get, to, asked,
                              {DaemonOp::error, wire::Refusal::of(found->error()).encode()});
        }
        if (const Sealed& sealed = **found; sealed != nullptr) {
          parts_.lookups.cache().put(user, key, sealed, generation);
        }
        give(asked, **found);
      });
}

void RequestDispatcher::compile(Session& session, DaemonFrame& frame) {
  using Submission = std::shared_ptr<CompileSubmission>;
  const auto terms = wire::CompileTerms::decode(frame.body);
  if (!terms || !frame.attachment || frame.id == 0) {
    return session.misuse("compile");
  }
  const RequestHandle request = session.request(frame.id);
  if (!parts_.scheduler.accepts(request)) {
    return;
  }
  frame.body.clear();
  const auto kept = std::make_shared<DaemonFrame>(std::move(frame));
  run_away<Submission>(
      session,
      [&stores = parts_.stores, user = session.peer().user, terms = *terms,
       kept]() -> Result<Submission> {
        // What memory is lacking for throws, and ends the session; what makes no sense is misuse.
        const auto content = read_content(*kept, kMaxOrderBytes);
        auto order = content ? wire::CompileOrder::decode(*content) : std::nullopt;
        return order ? std::make_shared<CompileSubmission>(
                           CompileSubmission::of(*std::move(order), terms, user, stores))
                     : nullptr;
      },
      [this, request](Session& asked, const Submission& submission) {
        if (submission == nullptr) {
          return asked.misuse("compile");
        }
        parts_.scheduler.compile(request, std::move(*submission));
      });
}

void RequestDispatcher::answer(Session& session, DaemonFrame& frame) {
  with_content(
      session, frame, kMaxOrderBytes,
      [this, from = session.request(frame.id)](Session& asked, const Result<SharedBytes>& content) {
        if (!content || !parts_.scheduler.answer(from, std::string(content->view()))) {
          asked.misuse("answer");
        }
      });
}

void RequestDispatcher::places(Session& session, DaemonFrame& frame) {
  with_content(
      session, frame, wire::kMaxDaemonBody,
      [this, from = session.request(frame.id)](Session& asked, const Result<SharedBytes>& content) {
        auto places = content ? wire::SourceRoots::decode(content->view()) : std::nullopt;
        if (!places) {
          return asked.misuse("places");
        }
        if (parts_.watches) {  // else it opens no client's files
          parts_.scheduler.places(from, *std::move(places));
        }
      });
}

void RequestDispatcher::invalidate(Session& session, const DaemonFrame& frame) {
  const auto wanted = wire::EntryWanted::decode(frame.body);
  if (!wanted) {
    return session.misuse("invalidate");
  }
  parts_.lookups.cache().forget(session.peer().user, wanted->key);
  session.send(DaemonOp::done, frame.id, {});
}

/// The numbers decide nothing, so a client may report any; but under known names only.
void RequestDispatcher::take_report(Session& session, const DaemonFrame& frame) {
  const auto report = wire::ClientReport::decode(frame.body);
  if (!report) {
    return session.misuse("report");
  }
  for (const auto& [name, number] : report->numbers) {
    if (reportable_.contains(name)) {
      parts_.counted.count(name, static_cast<std::int64_t>(number));  // kept in memory until later
    }
  }
}

}  // namespace cukiln::daemon
