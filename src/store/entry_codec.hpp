// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/hasher.hpp"
#include "key/compile_request.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

/// An entry as the stores' columns hold it. cache/FORMAT.md, "Entries".
struct EntryParts {
  ByteView request_canonical, dependencies, image, kernels, log;
  ByteView name, source, target, flags, compiler, signer;
  std::int64_t origin = 0;
};

/// Parts that came from outside this process, back to an entry (without its source text). Checks
/// that request and set hash to `key`, and the image, which is apart because it is not copied
/// (`parts.image` is not looked at). Errors: corrupt, incompatible.
Result<StoreEntry> decode_entry(const CacheKey& key, EntryParts parts, SharedBytes image);
/// The same where it is known what `parts.request_canonical` hashes to.
Result<StoreEntry> decode_entry(const CacheKey& key, const RequestDigest& request, EntryParts parts,
                                SharedBytes image);

/// A whole entry in this process: what its checks and its size need.
struct EncodedEntry {
  explicit EncodedEntry(const StoreEntry& entry);
  std::string dependencies;
  std::string kernels;
  EntryParts parts;  ///< views into this and into the entry
  /// What it takes in a store, roughly: every byte of its columns, and the pages' slack.
  std::uint64_t bytes() const noexcept;
};

/// Whether an entry fits together: key, request and set, image. Errors: invalid_argument.
Result<void> check_consistent(const StoreEntry& entry, const EncodedEntry& encoded);

std::string compress(ByteView text);
/// Errors: corrupt; more than `kMaxSourceBytes` is corrupt too.
Result<std::string> decompress(ByteView bytes);

/// Whether texts can be decompressed: many, for less than each alone.
class TextCheck {
 public:
  TextCheck() noexcept;
  TextCheck(const TextCheck&) = delete;
  ~TextCheck();
  /// Errors: corrupt.
  Result<void> check(ByteView bytes);

 private:
  void* context_;  // zstd's
  std::string text_;
};

}  // namespace cukiln
