// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <cukiln/cancel_token.hpp>
#include <cukiln/digest.hpp>
#include <cukiln/export.hpp>
#include <cukiln/result.hpp>
#include <cukiln/store.hpp>

namespace cukiln {

class TieredStore;

inline namespace v0 {

/// Identifies a blob: the hash of its kind and key. Commands take a prefix of its digits.
using BlobId = Digest256<struct BlobIdTag>;

/// A kind consists of letters, digits, dots, underscores and hyphens.
inline constexpr std::size_t kMaxBlobKindBytes = 64;
inline constexpr std::size_t kMaxBlobKeyBytes = 4096;
inline constexpr std::uint64_t kMaxBlobBytes = 256ull << 20;
/// How long a caller waits for another one that produces the same blob.
inline constexpr std::chrono::milliseconds kBlobWait{60'000};

/// A blob without its bytes, for inventories.
struct BlobSummary {
  // schema: BlobSummary. Written by src/schema/generate.py
  BlobId id;
  std::string kind;
  std::string key;
  std::uint64_t size_bytes = 0;
  std::int64_t created_s = 0;    ///< since 1970
  std::int64_t last_used_s = 0;  ///< since 1970
  std::int64_t hits = 0;
  /// the keys that signed it on its way here, `name:base64` or `unsigned`, separated by spaces, the
  /// last one last; empty if it was made here
  std::string signer;
  // end of schema
};

/// The right to produce a blob that the store lacks (single flight): as long as it lives, callers
/// of `get_or_lease` wait, in all threads and processes. Ended by `put`, `drop`, the destructor or
/// the end of the process; another thread may end it. `put` needs the store.
class CUKILN_API BlobLease {
 public:
  BlobLease(BlobLease&& other) noexcept;
  BlobLease& operator=(BlobLease&& other) noexcept;
  ~BlobLease();

  /// True if other callers wait. False if this caller is one of several that may produce the blob:
  /// it waited too long, has a lease already, or locks do not work; and after the end.
  bool exclusive() const noexcept;
  /// Stores the bytes, if that is possible, and ends the lease. Errors: those of BlobStore::put;
  /// invalid_argument (the lease has ended).
  Result<void> put(std::string_view bytes);
  /// Ends the lease without bytes. Those that wait now produce the blob themselves, concurrently;
  /// later callers wait for one of their own again.
  void drop() noexcept;

 private:
  friend class BlobStore;
  struct State;
  explicit BlobLease(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// What `get_or_lease` gives: the bytes, or the lease to produce them.
using BlobOrLease = std::variant<std::string, BlobLease>;

/// What another compiler or cache keeps in a store: bytes under a key that it chose. A kind names
/// whose keys they are (`triton`, `cuda.core`); keys of different kinds never meet.
///
/// Blobs share the store's file, cap and eviction with entries. Every read is checked against a
/// checksum: a damaged blob is removed, counted and absent, and so is one that a revoked key
/// signed. Nothing is said about what the bytes are. `cukiln export` writes blobs to bundles. Where
/// cukilnd runs with another store or with a remote store, it keeps the blobs of its user's
/// processes too: `put` also goes there, and `get` looks there last. It uploads them to the remote
/// store if it has a key to sign them, and gets from there what it lacks. Blobs are not kept in
/// memory: without a store on disk and without cukilnd every `get` is a miss and every `put` an
/// error.
///
/// Threads: safe. Lifetime: the store must outlive it.
class CUKILN_API BlobStore {
 public:
  explicit BlobStore(Store& store) noexcept;

  /// Returns the bytes; nothing if there is no such blob, or no store on disk can be read. Errors:
  /// invalid_argument (kind or key; the same holds for every other member).
  Result<std::optional<std::string>> get(std::string_view kind, std::string_view key);
  /// Returns the bytes, or a lease to the caller that is to produce them. Waits while another
  /// caller has a lease, and no longer than `wait`, counted from the beginning of that lease: what
  /// is never put delays no other caller for longer. A thread that has a lease does not wait, so
  /// that it cannot wait for itself. Errors: timeout (cancelled).
  Result<BlobOrLease> get_or_lease(std::string_view kind, std::string_view key,
                                   std::chrono::milliseconds wait = kBlobWait,
                                   std::optional<CancelToken> cancel = {});
  /// Returns the bytes; if there are none, those of `make`, a `Result<std::string>()`, which are
  /// then stored if that is possible. Of all callers one runs `make` (see get_or_lease). Errors:
  /// those of `make` and of get_or_lease.
  template <class Make>
  Result<std::string> get_or_make(std::string_view kind, std::string_view key, Make&& make,
                                  std::chrono::milliseconds wait = kBlobWait) {
    auto blob = get_or_lease(kind, key, wait);
    if (!blob) {
      return std::move(blob).error();
    }
    if (std::string* const bytes = std::get_if<std::string>(&*blob)) {
      return std::move(*bytes);
    }
    Result<std::string> produced = std::forward<Make>(make)();
    if (produced) {
      static_cast<void>(std::get<BlobLease>(*blob).put(*produced));
    }
    return produced;
  }
  /// Whether a store on disk has such a blob. Does not count as a use, and does not read the bytes.
  Result<bool> contains(std::string_view kind, std::string_view key);
  /// Stores bytes, and replaces those that the key has. Errors: invalid_argument (more than
  /// kMaxBlobBytes, or than the store's cap), io (no store on disk, or one that cannot be written),
  /// timeout.
  Result<void> put(std::string_view kind, std::string_view key, std::string_view bytes);
  /// Removes a blob of the user's store, and none of cukilnd's. False if there was none. Errors:
  /// io, timeout.
  Result<bool> remove(std::string_view kind, std::string_view key);
  /// Lists the blobs of a kind (empty: of every kind) of the user's store, then those that only the
  /// system store has. Errors: io, corrupt.
  Result<std::vector<BlobSummary>> list(std::string_view kind = {});

 private:
  TieredStore* tiers_;
};

}  // namespace v0
}  // namespace cukiln
