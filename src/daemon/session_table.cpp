// SPDX-License-Identifier: Apache-2.0
#include "daemon/session_table.hpp"

#include <cassert>
#include <utility>

#include "base/result.hpp"

namespace cukiln::daemon {

std::size_t SessionTable::size_of(uid_t user) const {
  const auto at = of_user_.find(user);
  return at != of_user_.end() ? at->second : 0;
}

bool SessionTable::has_room_for(uid_t user) const {
  return limit_.allows(size_of(user), sessions_.size()) && !shared_.closer.is_full(user);
}

Result<void> SessionTable::add(UniqueFd socket, const wire::Peer& peer,
                               const std::string& greeting) {
  const std::uint64_t number = ++last_number_;
  if (closed_.capacity() <= sessions_.size()) {
    closed_.reserve(2 * (sessions_.size() + 1));
  }
  std::size_t& of_user = of_user_[peer.user];
  const auto at =
      sessions_.emplace(number, std::make_unique<Session>(number, std::move(socket), peer, shared_))
          .first;
  ++of_user;
  auto begun = guarded([&] { return at->second->begin(greeting); });
  if (!begun) {
    at->second->close();
  }
  return begun;
}

Session* SessionTable::find(std::uint64_t number) {
  const auto at = sessions_.find(number);
  return at != sessions_.end() && !at->second->closed() ? at->second.get() : nullptr;
}

void SessionTable::note_closed(const Session& session) noexcept {
  assert(closed_.size() < closed_.capacity());
  closed_.push_back(session.number());
}

void SessionTable::remove_closed(const std::function<void(const Session&)>& on_removed) {
  while (!closed_.empty()) {
    const auto removed = sessions_.extract(closed_.back());
    closed_.pop_back();
    const uid_t user = removed.mapped()->peer().user;
    if (--of_user_[user] == 0) {
      of_user_.erase(user);
    }
    on_removed(*removed.mapped());
  }
}

void SessionTable::flush() {
  for (const auto& [number, session] : sessions_) {
    session->flush();
  }
}

}  // namespace cukiln::daemon
