// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/base/bytes.hpp"
#include "core/base/hasher.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Compresses a text to one zstd frame with its content size and checksum. Empty if that fails.
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
