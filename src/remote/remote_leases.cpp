// SPDX-License-Identifier: Apache-2.0
#include "remote/remote_leases.hpp"

namespace cukiln {

namespace {

std::string key_of(const ObjectName& name) { return std::string(view_of(name)); }

}  // namespace

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

RemoteLeases::State RemoteLeases::acquire(RemoteServer& server, ByteView request_canonical) {
  const ObjectName name = ObjectName::of_sets(request_canonical);
  const bool writes = options_.key.has_value();
  // A machine that cannot upload does not acquire the lease: no other machine should wait for it.
  const RemoteAnswer answer = server.send(RemoteOp::lease, [&](RemoteEndpoint& endpoint) {
    return writes ? endpoint.acquire_lease(name, options_.lease, deadline())
                  : endpoint.query_lease(name, deadline());
  });
  if (answer.status != RemoteStatus::ok && answer.status != RemoteStatus::absent) {
    return State::unknown;
  }
  if ((answer.status == RemoteStatus::ok) != writes) {
    return State::held_by_peer;
  }
  if (!writes) {
    return State::free;
  }
  const MutexLock lock(mutex_);
  if (!renewer_.joinable()) {  // first, because a lease that is not renewed expires
    renewer_ = std::thread([this] { run_renewals(); });
  }
  leases_[key_of(name)] = {std::string(request_canonical), &server, false};
  renew_.notify_one();
  return State::acquired;
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
    const Leases held = leases_;
    lock.unlock();
    for (const auto& [bytes, lease] : held) {
      const ObjectName name = ObjectName::of_sets(lease.request_canonical);
      static_cast<void>(lease.server->send(RemoteOp::lease, [&](RemoteEndpoint& endpoint) {
        return endpoint.renew_lease(name, options_.lease, deadline());
      }));
    }
    lock.lock();
  }
}

}  // namespace cukiln
