// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "daemon/blocking_pool.hpp"
#include "daemon/compile_scheduler.hpp"
#include "daemon/counters.hpp"
#include "daemon/lookup_service.hpp"
#include "daemon/session_table.hpp"
#include "store/tiered_store.hpp"
#include "wire/daemon_messages.hpp"

namespace cukiln::daemon {

/// Takes what clients ask to what knows the answer, one function an operation, and brings answers
/// back to their sessions. Threads: the loop's only.
class RequestDispatcher final : public Session::Handler, public ReplySink {
 public:
  /// All of it outlives this.
  struct Parts {
    EventLoop& loop;
    SessionTable& sessions;
    BlockingPool& pool;
    LookupService& lookups;
    CompileScheduler& scheduler;
    UserStores& stores;
    TieredStore& counted;  ///< takes what clients report
    DaemonCounters& counters;
    std::function<wire::DaemonSnapshot()> describe;
    bool watches = false;  ///< `places` are of interest
  };
  explicit RequestDispatcher(Parts parts);

  void on_frame(Session& session, wire::DaemonFrame& frame) override;
  void on_closed(Session& session) noexcept override { parts_.sessions.note_closed(session); }
  void reply(const RequestHandle& to, wire::DaemonOp op, std::string body,
             std::shared_ptr<UniqueFd> attachment) override;
  void hang_up(const RequestHandle& request) noexcept override;

 private:
  void find_sets(Session& session, wire::DaemonFrame& frame);
  void give_entry(Session& session, const wire::DaemonFrame& frame);
  void compile(Session& session, wire::DaemonFrame& frame);
  void answer(Session& session, wire::DaemonFrame& frame);
  void places(Session& session, wire::DaemonFrame& frame);
  void invalidate(Session& session, const wire::DaemonFrame& frame);
  void take_report(Session& session, const wire::DaemonFrame& frame);

  /// Runs `work` in the pool, then `then` on the loop if the session is still there. Until then the
  /// session takes no other frame.
  template <class T>
  void run_away(Session& session, std::function<Result<T>()> work,
                std::function<void(Session&, T)> then);
  /// `then` with what came with the frame: at once, or where that must be read, after that.
  void with_content(Session& session, wire::DaemonFrame& frame, std::uint64_t max_bytes,
                    std::function<void(Session&, Result<SharedBytes>)> then);
  void send_counted(RequestCounters& requests, const RequestHandle& to, Session& session,
                    Reply reply);

  const Parts parts_;
  std::set<std::string, std::less<>> reportable_;  // names that clients may report
};

}  // namespace cukiln::daemon
