// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/request_dispatcher.hpp"

#include <optional>

#include "addons/daemon/client/daemon_client.hpp"
#include "core/base/result.hpp"
#include "core/loader/loader_telemetry.hpp"

#include <cukiln/version.hpp>

namespace cukiln::daemon {

namespace {

using wire::DaemonFrame;
using wire::DaemonOp;

constexpr std::uint64_t kMaxOrderBytes = 128ull << 20;
constexpr std::size_t kMaxPingBytes = 1 << 10;
constexpr std::chrono::milliseconds kProgressInterval{500};

}  // namespace

RequestDispatcher::RequestDispatcher(Parts parts)
    : parts_(std::move(parts)),
      reportable_(LoaderTelemetry::names()),
      progress_(parts_.loop, [this] { send_progress(); }) {
  for (const char* reason : kFallbacks) {
    reportable_.insert(std::string("fallbacks_") + reason);
  }
}

template <class T>
void RequestDispatcher::run_in_pool(Session& session, std::function<Result<T>()> work,
                                    std::function<void(Session&, T)> then) {
  parts_.pool.submit<T>(
      std::move(work), [this, number = session.number(), then = std::move(then)](Result<T> result) {
        if (Session* const client = parts_.sessions.find(number)) {
          client->guard([&]() -> Result<void> {
            CUKILN_TRY(T value, std::move(result));
            then(*client, std::move(value));
            client->resume();
            return {};
          });
          parts_.loop.stay_awake();
        }
      });
  session.pause();
}

DaemonOp RequestDispatcher::send_counted(RequestCounters& requests, const RequestHandle& to,
                                         Session& session, Reply reply) {
  const DaemonOp sent =
      session.send(reply.op, to.id, std::move(reply.body), std::move(reply.attachment));
  requests.count_reply(sent, std::chrono::steady_clock::now() - to.since);
  return sent;
}

void RequestDispatcher::reply(const RequestHandle& to, DaemonOp op, std::string body,
                              std::shared_ptr<UniqueFd> attachment) {
  Session* const session = parts_.sessions.find(to.session);
  if (session == nullptr) {
    return;
  }
  if (op == DaemonOp::progress || op == DaemonOp::question || op == DaemonOp::still_needed) {
    session->send(op, to.id, std::move(body), std::move(attachment));
    return;
  }
  send_counted(parts_.counters.obtain, to, *session, {op, std::move(body), std::move(attachment)});
}

void RequestDispatcher::hang_up(const RequestHandle& request) noexcept {
  if (Session* const session = parts_.sessions.find(request.session)) {
    session->close();
  }
}

void RequestDispatcher::discard(UniqueFd file) noexcept {
  // Without memory it is closed here.
  static_cast<void>(guarded([&]() -> Result<void> {
    parts_.pool.submit<bool>(
        [held = std::make_shared<UniqueFd>(std::move(file))] { return Result<bool>(true); },
        [](const Result<bool>&) {});
    return {};
  }));
}

void RequestDispatcher::on_frame(Session& session, DaemonFrame& frame) {
  dispatch(session, frame);
  if (frame.attachment && !session.closed()) {  // not used: a client has one at a time discarded
    run_in_pool<bool>(
        session,
        [held = std::make_shared<UniqueFd>(std::move(frame.attachment))] {
          return Result<bool>(true);
        },
        [](Session&, bool) {});
  }
}

void RequestDispatcher::dispatch(Session& session, DaemonFrame& frame) {
  switch (static_cast<DaemonOp>(frame.op)) {
    case DaemonOp::obtain: return obtain(session, frame);
    case DaemonOp::answer: return answer(session, frame);
    case DaemonOp::cancel:
      if (frame.id != 0) {
        parts_.scheduler.drop(session.request(frame.id));
      }
      return;
    case DaemonOp::state:
      session.send(DaemonOp::state_is, frame.id, parts_.describe().encode());
      return;
    case DaemonOp::invalidate: return invalidate(session, frame);
    case DaemonOp::report: return take_report(session, frame);
    case DaemonOp::get_blob: return give_blob(session, frame);
    case DaemonOp::put_blob: return take_blob(session, frame);
    case DaemonOp::ping:
      if (frame.body.size() > kMaxPingBytes) {
        return session.protocol_error("ping");
      }
      session.send(DaemonOp::pong, frame.id, std::move(frame.body));
      return;
    default: break;
  }
  const auto unknown =
      make_error(ErrorCode::invalid_argument, "unknown operation {}: this daemon is version {}",
                 frame.op, version());
  session.send(DaemonOp::error, frame.id, wire::Refusal::of(unknown).encode());
}

void RequestDispatcher::obtain(Session& session, DaemonFrame& frame) {
  if (frame.attachment && !frame.body.empty()) {
    return compile(session, frame);
  }
  using Sets = std::shared_ptr<Result<SetTree>>;
  ++parts_.counters.lookup_requests;
  const auto shared_frame = std::make_shared<DaemonFrame>(std::move(frame));
  run_in_pool<Sets>(
      session,
      [&store = parts_.store, shared_frame]() -> Result<Sets> {
        return LookupService::find_sets(store, *shared_frame);
      },
      [this, to = session.request(shared_frame->id)](Session& client, const Sets& sets) {
        if (sets == nullptr) {
          return client.protocol_error("obtain");
        }
        if (!*sets) {
          send_counted(parts_.counters.obtain, to, client,
                       {DaemonOp::error, wire::Refusal::of(sets->error()).encode()});
          return;
        }
        const SetTree& tree = **sets;
        const std::vector<SetTree::Leaf> leaves = tree.leaves();
        if (leaves.size() == 1) {  // the client checks it whole: a question would cost a round trip
          return give_entry(client, to, leaves.front().key);
        }
        if (leaves.empty()) {
          send_counted(parts_.counters.obtain, to, client, {DaemonOp::miss, {}});
          return;
        }
        client.send(DaemonOp::question, to.id, std::string(tree.encoded()));
      });
}

void RequestDispatcher::give_entry(Session& session, const RequestHandle& to, const CacheKey& key) {
  const auto give = [this, to](Session& client, Reply reply) {
    if (send_counted(parts_.counters.obtain, to, client, std::move(reply)) == DaemonOp::object) {
      ++parts_.counters.entries_sent;
    }
  };
  if (auto cached = parts_.lookups.cached(key)) {
    return give(session, {DaemonOp::object, wire::EntryTerms{}.encode(), std::move(cached)});
  }
  run_in_pool<Reply>(
      session,
      [&store = parts_.store, key]() -> Result<Reply> {
        return LookupService::read_entry(store, key);
      },
      [this, give, key, generation = parts_.lookups.cache().generation()](Session& client,
                                                                          Reply reply) {
        if (reply.attachment != nullptr) {
          parts_.lookups.cache().put(key, reply.attachment, generation);
        }
        give(client, std::move(reply));
      });
}

void RequestDispatcher::give_blob(Session& session, const DaemonFrame& frame) {
  const auto wanted = wire::BlobWanted::decode(frame.body);
  if (!wanted) {
    return session.protocol_error("get_blob");
  }
  run_in_pool<Reply>(
      session,
      [&store = parts_.store, remote = parts_.remote, wanted = *wanted]() -> Result<Reply> {
        return LookupService::read_blob(store, remote, wanted);
      },
      [this, to = begin_blob_request(session, frame.id)](Session& client, Reply reply) {
        end_blob_request(to);
        send_counted(parts_.counters.get_blob, to, client, std::move(reply));
      });
}

RequestHandle RequestDispatcher::begin_blob_request(Session& session, std::uint64_t id) {
  blob_requests_.push_back(session.request(id));
  if (!progress_.is_set()) {
    progress_.set_after(kProgressInterval);
  }
  return blob_requests_.back();
}

void RequestDispatcher::end_blob_request(const RequestHandle& request) {
  std::erase_if(blob_requests_, [&](const RequestHandle& one) {
    return one.session == request.session && one.id == request.id;
  });
}

void RequestDispatcher::send_progress() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(blob_requests_, [&](const RequestHandle& one) {
    Session* const client = parts_.sessions.find(one.session);
    if (client != nullptr) {
      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - one.since);
      const wire::Progress progress{true, static_cast<std::uint32_t>(waited.count())};
      client->send(DaemonOp::progress, one.id, progress.encode());
    }
    return client == nullptr;
  });
  if (!blob_requests_.empty()) {
    progress_.set_after(kProgressInterval);
  }
}

void RequestDispatcher::take_blob(Session& session, DaemonFrame& frame) {
  if (!frame.attachment || !frame.body.empty()) {
    return session.protocol_error("put_blob");
  }
  const auto shared_frame = std::make_shared<DaemonFrame>(std::move(frame));
  run_in_pool<std::optional<Reply>>(
      session,
      [&store = parts_.store, remote = parts_.remote,
       shared_frame]() -> Result<std::optional<Reply>> {
        return LookupService::store_blob(store, remote, *shared_frame);
      },
      [this, to = begin_blob_request(session, shared_frame->id)](Session& client,
                                                                 std::optional<Reply> reply) {
        end_blob_request(to);
        if (!reply) {
          return client.protocol_error("put_blob");
        }
        send_counted(parts_.counters.put_blob, to, client, *std::move(reply));
      });
}

void RequestDispatcher::compile(Session& session, DaemonFrame& frame) {
  using Submission = std::shared_ptr<CompileSubmission>;
  const auto terms = wire::ObtainTerms::decode(frame.body);
  if (!terms || terms->timeout_ms == 0 || frame.id == 0) {
    return session.protocol_error("obtain");
  }
  const RequestHandle request = session.request(frame.id);
  if (!parts_.scheduler.accepts(request)) {
    return;
  }
  frame.body.clear();
  const auto shared_frame = std::make_shared<DaemonFrame>(std::move(frame));
  run_in_pool<Submission>(
      session,
      [timeout = std::chrono::milliseconds(terms->timeout_ms),
       shared_frame]() -> Result<Submission> {
        // Null for a malformed order. Without memory this throws, which closes the session.
        const auto content = read_content(*shared_frame, kMaxOrderBytes);
        auto order = content ? wire::CompileOrder::decode(*content) : std::nullopt;
        return order ? std::make_shared<CompileSubmission>(CompileSubmission::of(
                           *std::move(order), content->view().size(), timeout))
                     : nullptr;
      },
      [this, request](Session& client, const Submission& submission) {
        if (submission == nullptr) {
          return client.protocol_error("obtain");
        }
        parts_.scheduler.compile(request, std::move(*submission));
      });
}

void RequestDispatcher::answer(Session& session, DaemonFrame& frame) {
  using Content = std::shared_ptr<Result<SharedBytes>>;
  const auto pass_on = [this, from = session.request(frame.id)](Session& client,
                                                                const Content& content) {
    if (*content && parts_.scheduler.answer(from, std::string((*content)->view()))) {
      return;
    }
    // A lookup has no state here: any key is served, and the client checks its entry.
    const auto chosen = *content ? wire::EntryKey::decode(**content) : std::nullopt;
    if (!chosen) {
      return client.protocol_error("answer");
    }
    give_entry(client, from, chosen->key);
  };
  const auto shared_frame = std::make_shared<DaemonFrame>(std::move(frame));
  const auto read = [shared_frame]() -> Result<Content> {
    return std::make_shared<Result<SharedBytes>>(read_content(*shared_frame, kMaxOrderBytes));
  };
  if (!shared_frame->attachment) {  // nothing that blocks
    return pass_on(session, *read());
  }
  run_in_pool<Content>(session, read, pass_on);
}

void RequestDispatcher::invalidate(Session& session, const DaemonFrame& frame) {
  const auto wanted = wire::EntryKey::decode(frame.body);
  if (!wanted) {
    return session.protocol_error("invalidate");
  }
  parts_.lookups.cache().forget(wanted->key);
  session.send(DaemonOp::done, frame.id, {});
}

/// Adds a client's counters, of known names only. Nothing depends on their values.
void RequestDispatcher::take_report(Session& session, const DaemonFrame& frame) {
  const auto report = wire::ClientReport::decode(frame.body);
  if (!report) {
    return session.protocol_error("report");
  }
  for (const auto& [name, number] : report->numbers) {
    if (reportable_.contains(name)) {
      // Does not block: the store keeps counters in memory until its next write.
      parts_.store.count(name, static_cast<std::int64_t>(number));
    }
  }
  parts_.lookups.flush_soon();
}

}  // namespace cukiln::daemon
