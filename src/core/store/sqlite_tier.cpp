// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_tier.hpp"

namespace cukiln {

SqliteStore* SqliteTier::store_for_put() {
  SqliteStore* const before = store();
  const bool can_write = before != nullptr && !before->read_only();
  if (can_write || !opener_ || is_reopening_.exchange(true)) {
    return before;  // a put does not wait for another one that opens the store
  }
  struct Release {
    std::atomic<bool>& flag;
    ~Release() { flag.store(false); }
  } const release{is_reopening_};
  const auto now = std::chrono::steady_clock::now();
  if (now - last_attempt_ < pause_) {
    return before;
  }
  last_attempt_ = now;
  auto opened = opener_();
  if (opened && (before == nullptr || !(*opened)->read_only())) {
    open(*std::move(opened));
  }
  return store();
}

}  // namespace cukiln
