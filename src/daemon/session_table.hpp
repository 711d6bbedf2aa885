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

#include "daemon/session.hpp"

namespace cukiln::daemon {

/// The sessions of a daemon. Threads: the loop's only.
class SessionTable {
 public:
  SessionTable(std::size_t limit, Session::Shared& shared) : limit_(limit), shared_(shared) {}

  bool has_room() const { return sessions_.size() < limit_ && !shared_.closing.is_full(); }
  /// Starts a session, whose number none has had before. Errors: io.
  Result<void> add(std::uint64_t number, UniqueFd socket, const wire::Peer& peer,
                   const std::string& greeting);
  /// Null if there is none, or if it is closed.
  Session* find(std::uint64_t number);
  std::size_t size() const noexcept { return sessions_.size(); }

  /// Marks a closed session for the next `remove_closed`. Allocates nothing.
  void note_closed(const Session& session) noexcept;
  /// Destroys closed sessions; calls `on_removed` for each before that.
  void remove_closed(const std::function<void(const Session&)>& on_removed);
  /// Sends pending replies to the clients that read.
  void flush();

 private:
  const std::size_t limit_;
  Session::Shared& shared_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::vector<std::uint64_t> closed_;  // with capacity for all sessions
};

}  // namespace cukiln::daemon
