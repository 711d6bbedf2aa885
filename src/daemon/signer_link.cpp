// SPDX-License-Identifier: Apache-2.0
#include "daemon/signer_link.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/result.hpp"
#include "wire/daemon_connection.hpp"
#include "wire/sealed_file.hpp"
#include "wire/unix_socket.hpp"

namespace cukiln::daemon {

namespace {

using SteadyClock = std::chrono::steady_clock;

std::uint64_t bytes_of(const SignerLink::Offer& offer) {
  std::uint64_t bytes = 0;
  for (const VirtualSource& source : offer.order->request.sources) {
    bytes += source.text.size();
  }
  for (const SharedBytes& file : *offer.files) {
    bytes += file.size();
  }
  const auto entry = wire::check_sealed_file(offer.entry->get(), wire::kMaxAttachmentBytes);
  return bytes + (entry ? *entry : 0);
}

}  // namespace

SignerLink::SignerLink(Options options, Logger log)
    : options_(std::move(options)), log_(std::move(log)) {}

SignerLink::~SignerLink() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void SignerLink::offer(Offer offer) noexcept {
  const auto queued =
      guarded([&]() -> Result<bool> { return offer.files && enqueue(std::move(offer)); });
  if (!queued || !*queued) {
    events_.add(Event::dropped);
  }
}

bool SignerLink::enqueue(Offer offer) {
  const std::uint64_t bytes = bytes_of(offer);
  {
    const MutexLock lock(mutex_);
    if (stopping_ || bytes > wire::kMaxOfferBytes || queue_.size() >= options_.max_queued ||
        queued_bytes_ + bytes > options_.max_queued_bytes) {
      return false;
    }
    queue_.push_back({std::move(offer), bytes});
    queued_bytes_ += bytes;
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
    }
  }
  work_.notify_one();
  return true;
}

void SignerLink::run() {
  MutexLock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) { return stopping_ || !queue_.empty(); });
    if (stopping_) {
      return;
    }
    const Queued next = std::move(queue_.front());
    queue_.pop_front();
    asking_ = true;
    lock.unlock();
    const auto event = guarded([&] { return Result<Event>(exchange(next.offer)); });
    events_.add(event ? *event : Event::dropped);
    lock.lock();
    asking_ = false;
    queued_bytes_ -= next.bytes;
    idle_.notify_all();
  }
}

SignerLink::Event SignerLink::exchange(const Offer& offer) {
  const std::string& module = offer.order->labels.name;
  if (SteadyClock::now() < retry_at_) {
    return Event::dropped;
  }
  const auto verdict = ask(offer);
  if (!verdict) {
    socket_.reset();
    if (!stopping_) {
      set_connected(false, verdict.error().message());
    }
    retry_at_ = SteadyClock::now() + options_.retry_after;
    return Event::dropped;
  }
  if (verdict->refusal == wire::SigningRefusal::none) {
    return Event::signed_entry;
  }
  log_.info("the signer declined {}: {} ({})", module, verdict->text,
            wire::name_of(verdict->refusal));
  return Event::declined;
}

Result<wire::SigningVerdict> SignerLink::ask(const Offer& offer) {
  CUKILN_TRY(const SharedBytes entry,
             wire::map_sealed_file(offer.entry->get(), wire::kMaxAttachmentBytes));
  const wire::SigningOffer whole{*offer.order, *offer.files, entry};
  CUKILN_TRY(const UniqueFd sealed, whole.seal());
  // A connection that an earlier signer has left behind fails at its first use.
  for (bool is_fresh = !socket_;; is_fresh = true) {
    if (!socket_) {
      CUKILN_CHECK(connect());
    }
    std::array<char, wire::kMaxVerdictBytes> datagram{};
    std::vector<UniqueFd> none;
    ssize_t got = wire::send_some(socket_.get(), {wire::kSigningDatagram}, sealed.get());
    if (got > 0) {
      const auto waited = wire::wait_for(socket_.get(), POLLIN,
                                         SteadyClock::now() + options_.answer_timeout, stopping_);
      if (waited != wire::WaitResult::ready) {
        return make_error(ErrorCode::timeout, "the signer at {} has not answered within {} s",
                          options_.socket, options_.answer_timeout.count() / 1000);
      }
      got = wire::receive_some(socket_.get(), datagram.data(), datagram.size(), none);
    }
    if (got > 0) {
      if (auto verdict = wire::SigningVerdict::decode(
              ByteView(datagram.data(), static_cast<std::size_t>(got)))) {
        return *std::move(verdict);
      }
      return make_error(ErrorCode::corrupt, "the signer at {} sent a malformed answer",
                        options_.socket);
    }
    const int why = errno;
    socket_.reset();
    if (is_fresh) {
      return make_error(ErrorCode::io, "the signer at {} has closed the connection{}",
                        options_.socket, got < 0 ? ": " + errno_text(why) : std::string());
    }
  }
}

/// Connects to the signer and checks whose process it is: it gets the users' sources.
Result<void> SignerLink::connect() {
  CUKILN_TRY(const wire::UnixAddress to, wire::unix_address(options_.socket));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) != 0) {
    return make_error(ErrorCode::io, "the signer cannot be reached at {}: {}", options_.socket,
                      errno_text(errno));
  }
  CUKILN_TRY(const wire::Listener listener,
             wire::listener_at(fd.get(), options_.socket, ::geteuid()));
  if (!listener.is_trusted) {
    return make_error(ErrorCode::io,
                      "the process that listens at {} is user {}'s, expected that of the folder's "
                      "owner, in a folder that only root can have made",
                      options_.socket, listener.user);
  }
  socket_ = std::move(fd);
  set_connected(true, {});
  return {};
}

void SignerLink::set_connected(bool is_connected, const std::string& why) {
  if (is_connected) {
    log_.info("connected to the signer at {}", options_.socket);
  } else if (!has_logged_away_) {
    log_.warn("{}; what is compiled meanwhile is not signed", why);
  }
  has_logged_away_ = !is_connected;
  connected_ = is_connected;
}

bool SignerLink::finish(std::chrono::milliseconds timeout) {
  MutexLock lock(mutex_);
  return idle_.wait_for(lock, timeout,
                        [&]() CUKILN_REQUIRES(mutex_) { return queue_.empty() && !asking_; });
}

SignerLink::Stats SignerLink::stats() const {
  Stats stats;
  stats.signed_entries = events_[Event::signed_entry];
  stats.declined = events_[Event::declined];
  stats.dropped = events_[Event::dropped];
  stats.connected = connected_;
  const MutexLock lock(mutex_);
  stats.queued = queue_.size() + (asking_ ? 1 : 0);
  return stats;
}

}  // namespace cukiln::daemon
