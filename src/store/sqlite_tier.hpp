// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <chrono>
#include <memory>
#include <utility>

#include "base/breaker.hpp"
#include "store/sqlite_store.hpp"

namespace cukiln {

/// An SQLite store as a tier that may be missing, and its circuit breaker: after failures the store
/// is not used for a while, so that a service does not wait for the same broken disk for every
/// kernel. Threads: safe once it is opened.
class SqliteTier {
 public:
  static constexpr std::chrono::seconds kPause{30};

  void open(std::unique_ptr<SqliteStore> store) {
    assert(store_ == nullptr);  // readers hold pointers to it
    store_ = std::move(store);
  }
  SqliteStore* store() const noexcept { return store_.get(); }

  /// True if the store is open and may be used now. Every admitted operation must be followed by
  /// `succeeded()` or `failed()`.
  bool allows() { return store_ != nullptr && breaker_.allows(std::chrono::steady_clock::now()); }
  void succeeded() { breaker_.succeeded(); }
  /// True if this failure opened the circuit, so that the caller logs it once.
  bool failed(const Error& error) {
    // A timeout opens it alone: it has cost its whole deadline, and the next would cost it again.
    const int weight = error.code() == ErrorCode::timeout ? kFailuresToOpen : 1;
    return breaker_.failed(std::chrono::steady_clock::now(), weight);
  }
  /// True if the circuit is closed. Admits no operation.
  bool is_closed() const {
    return breaker_.state(std::chrono::steady_clock::now()) == Breaker::State::closed;
  }

 private:
  static constexpr int kFailuresToOpen = 3;

  std::unique_ptr<SqliteStore> store_;
  Breaker breaker_{{kFailuresToOpen, 0, {kPause, kPause, 0}}};
};

}  // namespace cukiln
