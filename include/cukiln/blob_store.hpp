// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// A blob without its bytes, for inventories.
struct BlobSummary {
  BlobId id;
  std::string kind;
  std::string key;
  std::uint64_t bytes = 0;
  std::int64_t created_s = 0;    ///< since 1970
  std::int64_t last_used_s = 0;  ///< since 1970
  std::int64_t hits = 0;
};

/// What another compiler or cache keeps in a store: bytes under a key that it chose. A kind names
/// whose keys they are (`triton`, `cuda.core`); keys of different kinds never meet.
///
/// Blobs share the store's file, cap and eviction with entries. Every read is checked against a
/// checksum: a damaged blob is removed, counted and absent. Nothing is said about what the bytes
/// are, and they are in no bundle, no remote store and not served by cukilnd. Blobs are not kept in
/// memory: without a store on disk every `get` is a miss and every `put` an error.
///
/// Threads: safe. Lifetime: the store must outlive it.
class CUKILN_API BlobStore {
 public:
  explicit BlobStore(Store& store) noexcept;

  /// Returns the bytes; nothing if there is no such blob, or no store on disk can be read. Errors:
  /// invalid_argument (kind or key; the same holds for every other member).
  Result<std::optional<std::string>> get(std::string_view kind, std::string_view key);
  /// Whether there is such a blob. Does not count as a use, and does not read the bytes.
  Result<bool> contains(std::string_view kind, std::string_view key);
  /// Stores bytes, and replaces those that the key has. Errors: invalid_argument (more than
  /// kMaxBlobBytes, or than the store's cap), io (no store on disk, or one that cannot be written),
  /// timeout.
  Result<void> put(std::string_view kind, std::string_view key, std::string_view bytes);
  /// Removes a blob of the user's store. False if there was none. Errors: io, timeout.
  Result<bool> remove(std::string_view kind, std::string_view key);
  /// Lists the blobs of a kind (empty: of every kind) of the user's store, then those that only the
  /// system store has. Errors: io, corrupt.
  Result<std::vector<BlobSummary>> list(std::string_view kind = {});

 private:
  TieredStore* tiers_;
};

}  // namespace v0
}  // namespace cukiln
