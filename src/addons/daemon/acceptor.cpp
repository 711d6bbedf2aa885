// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/acceptor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

constexpr int kMaxAccepts = 64;
constexpr std::chrono::milliseconds kRetryDelay{100};

/// Any descriptor does. An eventfd needs no file system.
UniqueFd make_spare() { return UniqueFd(::eventfd(0, EFD_CLOEXEC)); }

UniqueFd accept_one(int listener) {
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

}  // namespace

Acceptor::Acceptor(EventLoop& loop, IpcListener listener)
    : loop_(loop), listener_(std::move(listener)), spare_fd_(make_spare()), retry_(loop, [this] {
        if (!watch()) {
          retry_.set_after(kRetryDelay);
        }
      }) {}

Result<void> Acceptor::begin(std::function<void(UniqueFd)> accepted,
                             std::function<void(UniqueFd)> rejected) {
  accepted_ = std::move(accepted);
  rejected_ = std::move(rejected);
  return watch();
}

Result<void> Acceptor::watch() {
  CUKILN_TRY(watch_,
             loop_.watch(listener_.socket.get(), EPOLLIN, [this](std::uint32_t) { accept(); }));
  loop_.put_first(watch_);  // a client waits for its greeting for 50 ms only
  return {};
}

void Acceptor::stop() noexcept {
  watch_.reset();
  retry_.cancel();
}

void Acceptor::accept() {
  for (int i = 0; i < kMaxAccepts; ++i) {
    UniqueFd socket = accept_one(listener_.socket.get());
    if (socket) {
      accepted_(std::move(socket));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      return reject_pending();
    }
    if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Acceptor::reject_pending() {
  spare_fd_.reset();
  for (int i = 0; i < kMaxAccepts; ++i) {
    UniqueFd socket = accept_one(listener_.socket.get());
    if (!socket) {
      break;
    }
    rejected_(std::move(socket));
  }
  spare_fd_ = make_spare();
  if (!spare_fd_) {  // the next pending connection could not be rejected: retry later
    watch_.reset();
    retry_.set_after(kRetryDelay);
  }
}

}  // namespace cukiln::daemon
