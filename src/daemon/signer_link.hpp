// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/logger.hpp"
#include "base/mutex.hpp"
#include "base/telemetry.hpp"
#include "wire/daemon_messages.hpp"
#include "wire/signing_messages.hpp"

namespace cukiln::daemon {

/// Offers what this daemon has compiled to the signer, a process of another user that holds the key
/// of the fleet. A thread of its own sends the offers, one after the other, from a bounded queue.
/// Offers are dropped and counted while the queue is full or the signer is away. Threads: safe.
class SignerLink {
 public:
  /// The limit for the files of one compile that are kept for an offer.
  static constexpr std::uint64_t kMaxFileBytes = wire::kMaxOfferBytes / 4;

  struct Options {
    std::string socket;
    std::size_t max_queued = 256;  ///< offers
    std::uint64_t max_queued_bytes = 256ull << 20;
    std::chrono::milliseconds answer_timeout{600'000};  ///< the signer compiles the offer again
    std::chrono::milliseconds retry_after{5'000};       ///< a failed attempt to connect
  };
  struct Offer {
    std::shared_ptr<const wire::CompileOrder> order;
    /// The files of the dependency set; nothing if they were too large to keep.
    std::optional<std::vector<SharedBytes>> files;
    std::shared_ptr<UniqueFd> entry;  ///< sealed
  };
  enum class Event { signed_entry, declined, dropped };
  struct Stats {
    std::uint64_t signed_entries = 0, declined = 0, dropped = 0, queued = 0;
    bool connected = false;
  };

  SignerLink(Options options, Logger log);
  /// Drops the offers that are not sent; `finish` waits for them.
  ~SignerLink();
  SignerLink(const SignerLink&) = delete;
  SignerLink& operator=(const SignerLink&) = delete;

  /// Queues an offer. Does not block.
  void offer(Offer offer) noexcept CUKILN_EXCLUDES(mutex_);
  /// Waits for the queued offers for at most `timeout`. True if all were answered or dropped.
  bool finish(std::chrono::milliseconds timeout) CUKILN_EXCLUDES(mutex_);
  Stats stats() const CUKILN_EXCLUDES(mutex_);

 private:
  struct Queued {
    Offer offer;
    std::uint64_t bytes = 0;
  };
  bool enqueue(Offer offer) CUKILN_EXCLUDES(mutex_);
  void run() CUKILN_EXCLUDES(mutex_);
  Event exchange(const Offer& offer);
  Result<wire::SigningVerdict> ask(const Offer& offer);
  Result<void> connect();
  void set_connected(bool is_connected, const std::string& why);

  const Options options_;
  const Logger log_;
  Counters<Event, 3> events_;

  // The thread's only.
  UniqueFd socket_;
  std::chrono::steady_clock::time_point retry_at_{};
  bool has_logged_away_ = false;

  std::atomic<bool> connected_{false};
  std::atomic<bool> stopping_{false};  ///< set with mutex_ held
  mutable Mutex mutex_;
  ConditionVariable work_, idle_;
  std::deque<Queued> queue_ CUKILN_GUARDED_BY(mutex_);
  std::uint64_t queued_bytes_ CUKILN_GUARDED_BY(mutex_) = 0;
  bool asking_ CUKILN_GUARDED_BY(mutex_) = false;
  std::thread thread_;  ///< started by the first offer
};

}  // namespace cukiln::daemon
