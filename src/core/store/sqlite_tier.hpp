// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/breaker.hpp"
#include "core/store/sqlite_store.hpp"

namespace cukiln {

/// An SQLite store as a tier that may be missing, and its circuit breaker: after failures the store
/// is not used for a while, so that a service does not wait for the same broken disk for every
/// kernel. Threads: safe, except for `open` and `reopen_by`.
class SqliteTier {
 public:
  static constexpr std::chrono::seconds kPause{30};
  using Opener = std::function<Result<std::unique_ptr<SqliteStore>>()>;
  /// Learns of a failure of `op`: `find`, `get` or `put`. `opened`: it opened the circuit.
  using OnFailure =
      std::function<void(SqliteStore& store, const char* op, const Error& error, bool opened)>;

  explicit SqliteTier(OnFailure on_failure) : on_failure_(std::move(on_failure)) {}

  /// `store` may be null.
  void open(std::unique_ptr<SqliteStore> store) {
    stores_.push_back(std::move(store));
    current_.store(stores_.back().get(), std::memory_order_release);
  }
  SqliteStore* store() const noexcept { return current_.load(std::memory_order_acquire); }

  /// Has a store that could not be opened, or not to be written, opened again by `opener` for a
  /// put: what was in the way, as a lack of descriptors, may have gone. At most once in `pause`.
  void reopen_by(Opener opener, std::chrono::milliseconds pause) {
    opener_ = std::move(opener);
    pause_ = pause;
    last_attempt_ = std::chrono::steady_clock::now();
  }
  /// Returns the store for a put; null if there is none.
  SqliteStore* store_for_put();

  /// True if the store is open and may be used now. Every admitted operation must be followed by
  /// `succeeded()` or `failed()`.
  bool allows() { return store() != nullptr && breaker_.allows(std::chrono::steady_clock::now()); }
  void succeeded() { breaker_.succeeded(); }
  void failed(const char* op, const Error& error) {
    // A timeout opens it alone: it has cost its whole deadline, and the next would cost it again.
    const int weight = error.code() == ErrorCode::timeout ? kFailuresToOpen : 1;
    on_failure_(*store(), op, error, breaker_.failed(std::chrono::steady_clock::now(), weight));
  }
  /// Runs a query on the store. Nothing if it is missing, its circuit is open, or it fails.
  template <class Query>
  auto query(const char* op, Query&& query)
      -> std::optional<typename decltype(query(std::declval<SqliteStore&>()))::value_type> {
    if (!allows()) {
      return std::nullopt;
    }
    auto answer = query(*store());
    if (!answer) {
      failed(op, answer.error());
      return std::nullopt;
    }
    succeeded();
    return *std::move(answer);
  }
  /// True if the circuit is closed. Admits no operation.
  bool is_closed() const {
    return breaker_.state(std::chrono::steady_clock::now()) == Breaker::State::closed;
  }

 private:
  static constexpr int kFailuresToOpen = 3;

  std::vector<std::unique_ptr<SqliteStore>> stores_;  // the last one is used; readers may have
                                                      // pointers to those before
  std::atomic<SqliteStore*> current_{nullptr};
  OnFailure on_failure_;
  Opener opener_;
  std::chrono::milliseconds pause_{0};
  std::atomic<bool> is_reopening_{false};  // guards the next member, and a change of `stores_`
  std::chrono::steady_clock::time_point last_attempt_;
  Breaker breaker_{{kFailuresToOpen, 0, {kPause, kPause, 0}}};
};

}  // namespace cukiln
