// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/hasher.hpp"
#include "key/compile_request.hpp"
#include "store/cubin_store.hpp"

namespace cukiln {

/// The parts of an entry as the columns of a store hold them (cache/FORMAT.md, "Tables").
struct EntryParts {
  ByteView request_canonical, dependencies, image, kernels, log;
  ByteView name, source, target, flags, compiler, signer;
  std::int64_t origin = 0;
};

/// Decodes parts that came from outside this process to an entry without source text. Checks that
/// request and set hash to `key`, and that the image is one for the target. The image is passed
/// apart because it is shared and not copied; `parts.image` is ignored. Errors: corrupt,
/// incompatible.
Result<StoreEntry> decode_entry(const CacheKey& key, EntryParts parts, SharedBytes image);
/// The same for a caller that knows the digest of `parts.request_canonical`, and what a compile of
/// it returns.
Result<StoreEntry> decode_entry(const CacheKey& key, const RequestDigest& request, OutputKind kind,
                                EntryParts parts, SharedBytes image);

/// The encoded columns of an entry. Refers to the entry, which must outlive it.
struct EncodedEntry {
  explicit EncodedEntry(const StoreEntry& entry);
  std::string dependencies;
  std::string kernels;
  EntryParts parts;  ///< views into this and into the entry
  /// The approximate size in a store: the bytes of the columns, and the slack of pages.
  std::uint64_t bytes() const noexcept;
};

/// Checks that key, request, set and image of an entry belong together. Errors: invalid_argument.
Result<void> check_consistent(const StoreEntry& entry, const EncodedEntry& encoded);

std::string compress(ByteView text);
/// Returns the digest of a request's source; nothing if it has several, or if the canonical request
/// does not hash to `request`.
std::optional<ContentHash> only_source_of(const RequestDigest& request, ByteView request_canonical);

/// Decodes stored source texts. Keeps its buffers between texts.
class SourceTextDecoder {
 public:
  SourceTextDecoder() noexcept;
  SourceTextDecoder(const SourceTextDecoder&) = delete;
  ~SourceTextDecoder();
  /// Returns a text, valid until the next call. With `digest`, a text that is not empty must have
  /// it. Errors: corrupt.
  Result<ByteView> decode(ByteView bytes, const std::optional<ContentHash>& digest);

 private:
  void* context_;  // zstd's
  std::string text_;
};

}  // namespace cukiln
