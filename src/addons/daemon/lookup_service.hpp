// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "addons/daemon/blocking_pool.hpp"
#include "addons/daemon/event_loop.hpp"
#include "addons/daemon/protocol/daemon_frame.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"
#include "addons/daemon/sealed_entry_cache.hpp"
#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/store/remote_tier.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::daemon {

/// A reply to a client.
struct Reply {
  wire::DaemonOp op = wire::DaemonOp::error;
  std::string body;
  std::shared_ptr<UniqueFd> attachment{};
};

/// Returns a frame's body or, if the body is empty, reads its attachment. Errors: invalid_argument
/// (not sealed, or too large), io.
Result<SharedBytes> read_content(wire::DaemonFrame& frame, std::uint64_t max_bytes);

/// Looks up dependency sets, entries and blobs. Access to the store blocks and is done in threads
/// of a BlockingPool; the loop finds only entries that are cached in memory.
class LookupService {
 public:
  /// The arguments outlive the service.
  LookupService(TieredStore& store, BlockingPool& pool, EventLoop& loop,
                std::uint64_t cached_bytes);

  // For threads of the pool.

  /// Finds the recorded sets of the request that an `obtain` frame looks up. Null if the frame is
  /// malformed.
  static std::shared_ptr<Result<SetTree>> find_sets(TieredStore& store, wire::DaemonFrame& frame);
  /// Returns the reply with the entry: `object`, `miss` or `error`.
  static Reply read_entry(TieredStore& store, const CacheKey& key);
  /// Returns the reply with the blob, as read_entry. One that the store does not have is put there
  /// if the remote store has it. `remote` may be null.
  static Reply read_blob(TieredStore& store, RemoteTier* remote, const wire::BlobWanted& wanted);
  /// Stores the blob of a `put_blob` frame, and uploads it in the background. The attachment is
  /// mapped and not copied, but for an upload. `remote` may be null. The reply; nothing if the
  /// frame is malformed.
  static std::optional<Reply> store_blob(TieredStore& store, RemoteTier* remote,
                                         const wire::DaemonFrame& frame);

  // For the loop's thread.

  /// The sealed entry if it is cached; null if the store must be read.
  std::shared_ptr<UniqueFd> cached(const CacheKey& key);
  SealedEntryCache& cache() noexcept { return cache_; }
  /// Writes uses of cached entries and the store's counters, within a second, in a thread.
  void flush_soon();
  /// Records uses of cached entries in the store. Blocks: called after the loop has ended.
  void flush_uses();

 private:
  static void record_uses(TieredStore& store, const std::vector<CacheKey>& uses);

  TieredStore& store_;
  BlockingPool& pool_;
  SealedEntryCache cache_;
  EventLoop::Timer flush_timer_;
};

}  // namespace cukiln::daemon
