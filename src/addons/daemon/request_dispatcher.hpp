// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "addons/daemon/blocking_pool.hpp"
#include "addons/daemon/compile_scheduler.hpp"
#include "addons/daemon/counters.hpp"
#include "addons/daemon/lookup_service.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"
#include "addons/daemon/session.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::daemon {

/// Dispatches clients' frames, one function for each operation, and sends replies to their
/// sessions. Threads: the loop's only.
class RequestDispatcher final : public Session::Handler, public ReplySink {
 public:
  /// What it uses. All of it outlives the dispatcher.
  struct Parts {
    EventLoop& loop;
    SessionTable& sessions;
    BlockingPool& pool;
    LookupService& lookups;
    CompileScheduler& scheduler;
    TieredStore& store;
    DaemonCounters& counters;
    std::function<wire::DaemonSnapshot()> describe;
    RemoteTier* remote = nullptr;  ///< of blobs; may be null
  };
  explicit RequestDispatcher(Parts parts);

  void on_frame(Session& session, wire::DaemonFrame& frame) override;
  void on_closed(Session& session) noexcept override { parts_.sessions.note_closed(session); }
  void reply(const RequestHandle& to, wire::DaemonOp op, std::string body,
             std::shared_ptr<UniqueFd> attachment) override;
  void discard(UniqueFd file) noexcept override;
  void hang_up(const RequestHandle& request) noexcept override;

 private:
  void dispatch(Session& session, wire::DaemonFrame& frame);
  void obtain(Session& session, wire::DaemonFrame& frame);
  void give_entry(Session& session, const RequestHandle& to, const CacheKey& key);
  void compile(Session& session, wire::DaemonFrame& frame);
  void answer(Session& session, wire::DaemonFrame& frame);
  void invalidate(Session& session, const wire::DaemonFrame& frame);
  void take_report(Session& session, const wire::DaemonFrame& frame);
  void give_blob(Session& session, const wire::DaemonFrame& frame);
  void take_blob(Session& session, wire::DaemonFrame& frame);
  /// The handle of a request that gets `progress` until end_blob_request or its session's end.
  RequestHandle begin_blob_request(Session& session, std::uint64_t id);
  void end_blob_request(const RequestHandle& request);
  /// Tells those that wait for a blob that the daemon is alive: a remote store, and the writing of
  /// a large blob, may be slow.
  void send_progress();

  /// Runs `work` in the pool, then `then` on the loop if the session is still open. The session is
  /// paused until then.
  template <class T>
  void run_in_pool(Session& session, std::function<Result<T>()> work,
                   std::function<void(Session&, T)> then);
  wire::DaemonOp send_counted(RequestCounters& requests, const RequestHandle& to, Session& session,
                              Reply reply);

  const Parts parts_;
  std::set<std::string, std::less<>> reportable_;  // the counters that clients may report
  std::vector<RequestHandle> blob_requests_;       // that have no reply yet
  EventLoop::Timer progress_;
};

}  // namespace cukiln::daemon
