// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/fair_share.hpp"
#include "daemon/session.hpp"

namespace cukiln::daemon {

/// The sessions of a daemon, and their number for each user. Threads: the loop's only.
class SessionTable {
 public:
  SessionTable(const FairShare& limit, Session::Shared& shared) : limit_(limit), shared_(shared) {}

  bool has_room_for(uid_t user) const;
  /// Starts a session. Errors: io.
  Result<void> add(UniqueFd socket, const wire::Peer& peer, const std::string& greeting);
  /// Null if there is none, or if it is closed.
  Session* find(std::uint64_t number);
  std::size_t size_of(uid_t user) const;
  std::size_t size() const noexcept { return sessions_.size(); }

  /// Marks a closed session for the next `remove_closed`. Allocates nothing.
  void note_closed(const Session& session) noexcept;
  /// Destroys closed sessions; calls `on_removed` for each before that.
  void remove_closed(const std::function<void(const Session&)>& on_removed);
  /// Sends pending replies to the clients that read.
  void flush();

 private:
  const FairShare limit_;
  Session::Shared& shared_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<uid_t, std::size_t> of_user_;
  std::vector<std::uint64_t> closed_;  // with capacity for all sessions
  std::uint64_t last_number_ = 0;
};

}  // namespace cukiln::daemon
