// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/remote_leases.hpp"

#include <sodium.h>

#include "addons/fleet/envelope.hpp"
#include "core/base/serial.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kHolderBytes = 16;

std::string key_of(const ObjectName& name) { return std::string(view_of(name)); }

}  // namespace

PeerLease::PeerLease(const RemoteStoreOptions& options, ByteView request_canonical)
    : options_(options), name_(ObjectName::of_lease(ObjectName::of_sets(request_canonical))) {}

bool PeerLease::is_alive(ByteView token, SteadyTime now) {
  Rejection why = Rejection::none;
  const auto opened = open_envelope(token, {&options_.trusted, &name_, false}, why);
  if (opened && opened->payload.size() == kHolderBytes + sizeof(std::uint64_t)) {
    SerialReader in(ByteView(opened->payload).substr(kHolderBytes));
    const std::uint64_t renewals = in.u64();
    std::uint64_t& known = renewals_[opened->payload.substr(0, kHolderBytes)];
    if (renewals > known) {
      known = renewals;
      believed_until_ = now + options_.lease;
    }
  }
  if (!believed_until_) {
    believed_until_ = now + options_.lease;
  }
  return now < *believed_until_;
}

std::string RemoteLeases::token_of(const Lease& lease) const {
  EnvelopeHead head;
  head.name = ObjectName::of_lease(ObjectName::of_sets(lease.request_canonical));
  return seal_envelope(std::move(head), SerialWriter().raw(lease.holder).u64(lease.renewals).view(),
                       options_.key ? &*options_.key : nullptr);
}

RemoteLeases::~RemoteLeases() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  renew_.notify_all();
  if (renewer_.joinable()) {
    renewer_.join();
  }
}

RemoteLeases::Attempt RemoteLeases::acquire(RemoteServer& server, ByteView request_canonical,
                                            Claim& claim) {
  const ObjectName name = ObjectName::of_sets(request_canonical);
  const auto request = [&](const auto& ask) { return server.send(RemoteOp::lease, ask); };
  const auto query = [&](RemoteEndpoint& endpoint) {
    return endpoint.query_lease(name, deadline());
  };
  // A machine that cannot upload does not acquire the lease: no other machine should wait for it.
  if (!options_.may_sign()) {
    RemoteAnswer answer = request(query);
    return answer.status == RemoteStatus::ok ? Attempt{State::held_by_peer, std::move(answer.body)}
           : answer.status == RemoteStatus::absent ? Attempt{State::free, {}}
                                                   : Attempt{State::unknown, {}};
  }
  if (claim.token.empty()) {
    claim.holder.resize(kHolderBytes);
    ::randombytes_buf(claim.holder.data(), claim.holder.size());
  }
  Lease lease{std::string(request_canonical), &server, false, claim.holder, 1};
  if (claim.token.empty()) {
    claim.token = token_of(lease);
  }
  const RemoteAnswer answer = request([&](RemoteEndpoint& endpoint) {
    return endpoint.acquire_lease(name, claim.token, options_.lease, deadline());
  });
  if (answer.status == RemoteStatus::absent) {
    RemoteAnswer peer = request(query);
    return {State::held_by_peer, std::move(peer.body)};
  }
  if (answer.status != RemoteStatus::ok) {
    return {State::unknown, {}};
  }
  const MutexLock lock(mutex_);
  if (!renewer_.joinable()) {  // first, because a lease that is not renewed expires
    renewer_ = std::thread([this] { run_renewals(); });
  }
  leases_[key_of(name)] = std::move(lease);
  renew_.notify_one();
  return {State::acquired, {}};
}

void RemoteLeases::send_release(RemoteServer& server, const ObjectName& name) {
  static_cast<void>(server.send(RemoteOp::lease, [&](RemoteEndpoint& endpoint) {
    return endpoint.release_lease(name, deadline());
  }));
}

void RemoteLeases::release(ByteView request_canonical) {
  const ObjectName name = ObjectName::of_sets(request_canonical);
  RemoteServer* server = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto at = leases_.find(key_of(name));
    if (at == leases_.end() || at->second.uploading) {
      return;
    }
    server = at->second.server;
    leases_.erase(at);
  }
  send_release(*server, name);
}

void RemoteLeases::set_uploading(ByteView request_canonical, bool uploading) {
  const MutexLock lock(mutex_);
  const auto at = leases_.find(key_of(ObjectName::of_sets(request_canonical)));
  if (at != leases_.end()) {
    at->second.uploading = uploading;
  }
}

void RemoteLeases::begin_upload(ByteView request_canonical) {
  set_uploading(request_canonical, true);
}

void RemoteLeases::cancel_upload(ByteView request_canonical) {
  set_uploading(request_canonical, false);
}

void RemoteLeases::end_upload(ByteView request_canonical) {
  set_uploading(request_canonical, false);
  release(request_canonical);
}

void RemoteLeases::run_renewals() {
  MutexLock lock(mutex_);
  for (;;) {
    renew_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) { return stopping_ || !leases_.empty(); });
    renew_.wait_for(lock, options_.lease / 3, [&]() CUKILN_REQUIRES(mutex_) { return stopping_; });
    if (stopping_) {
      return;
    }
    for (auto& [bytes, lease] : leases_) {
      ++lease.renewals;
    }
    const Leases held = leases_;
    lock.unlock();
    for (const auto& [bytes, lease] : held) {
      const ObjectName name = ObjectName::of_sets(lease.request_canonical);
      const std::string token = token_of(lease);
      static_cast<void>(lease.server->send(RemoteOp::lease, [&](RemoteEndpoint& endpoint) {
        return endpoint.renew_lease(name, token, options_.lease, deadline());
      }));
    }
    lock.lock();
  }
}

}  // namespace cukiln
