// SPDX-License-Identifier: Apache-2.0
#include "daemon/acceptor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/result.hpp"

namespace cukiln::daemon {

namespace {

constexpr int kAcceptsAtOnce = 64;
constexpr std::chrono::milliseconds kPause{100};

/// Any descriptor: an eventfd is of no file system.
UniqueFd make_spare() { return UniqueFd(::eventfd(0, EFD_CLOEXEC)); }

UniqueFd accept_one(int listener) {
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

}  // namespace

Acceptor::Acceptor(EventLoop& loop, Listener listener)
    : loop_(loop), listener_(std::move(listener)), spare_(make_spare()), again_(loop, [this] {
        if (!watch()) {
          again_.set_after(kPause);
        }
      }) {}

Result<void> Acceptor::begin(std::function<void(UniqueFd)> accepted,
                             std::function<void()> refused) {
  accepted_ = std::move(accepted);
  refused_ = std::move(refused);
  return watch();
}

Result<void> Acceptor::watch() {
  CUKILN_TRY(watch_,
             loop_.watch(listener_.socket.get(), EPOLLIN, [this](std::uint32_t) { accept(); }));
  return {};
}

void Acceptor::stop() noexcept {
  watch_.reset();
  again_.cancel();
}

void Acceptor::accept() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    UniqueFd socket = accept_one(listener_.socket.get());
    if (socket) {
      accepted_(std::move(socket));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      return refuse_waiting();
    }
    if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Acceptor::refuse_waiting() {
  spare_.reset();
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (!accept_one(listener_.socket.get())) {
      break;
    }
    refused_();
  }
  spare_ = make_spare();
  if (!spare_) {  // not even that: look again in a while
    watch_.reset();
    again_.set_after(kPause);
  }
}

}  // namespace cukiln::daemon
