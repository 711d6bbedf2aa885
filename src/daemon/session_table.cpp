// SPDX-License-Identifier: Apache-2.0
#include "daemon/session_table.hpp"

#include <cassert>
#include <utility>

#include "base/result.hpp"

namespace cukiln::daemon {

Result<void> SessionTable::add(std::uint64_t number, UniqueFd socket, const wire::Peer& peer,
                               const std::string& greeting) {
  if (closed_.capacity() <= sessions_.size()) {
    closed_.reserve(2 * (sessions_.size() + 1));
  }
  const auto at =
      sessions_.emplace(number, std::make_unique<Session>(number, std::move(socket), peer, shared_))
          .first;
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
    on_removed(*removed.mapped());
  }
}

void SessionTable::flush() {
  for (const auto& [number, session] : sessions_) {
    session->flush();
  }
}

}  // namespace cukiln::daemon
