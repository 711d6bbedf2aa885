// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include <cukiln/export.hpp>
#include <cukiln/result.hpp>

namespace cukiln {
inline namespace v0 {

/// Returns `2 * size` lower-case hex digits.
CUKILN_API std::string hex_of_bytes(const std::uint8_t* bytes, std::size_t size);
/// Parses `2 * size` hex digits. False if `hex` is anything else.
CUKILN_API bool bytes_of_hex(std::string_view hex, std::uint8_t* bytes, std::size_t size) noexcept;

/// A BLAKE2b-256 hash. `Tag` names what is hashed: digests with different tags neither compare with
/// nor convert to each other.
template <class Tag>
struct Digest256 {
  std::array<std::uint8_t, 32> bytes{};

  /// 64 lower-case hex digits.
  std::string hex() const { return hex_of_bytes(bytes.data(), bytes.size()); }
  /// Parses 64 hex digits. Errors: invalid_argument.
  static Result<Digest256> parse(std::string_view text) {
    Digest256 digest;
    if (bytes_of_hex(text, digest.bytes.data(), digest.bytes.size())) {
      return digest;
    }
    return Error(ErrorCode::invalid_argument,
                 "invalid digest \"" + std::string(text) + "\"; expected 64 hex digits");
  }

  friend bool operator==(const Digest256& a, const Digest256& b) noexcept {
    return a.bytes == b.bytes;
  }
  friend bool operator!=(const Digest256& a, const Digest256& b) noexcept { return !(a == b); }
  friend bool operator<(const Digest256& a, const Digest256& b) noexcept {
    return a.bytes < b.bytes;
  }
};

/// Identifies a compile before it runs: the hash of the canonical request. See `cache/FORMAT.md`.
using RequestDigest = Digest256<struct RequestDigestTag>;

/// Identifies one cubin permanently: the hash of the RequestDigest and the dependency set.
using CacheKey = Digest256<struct CacheKeyTag>;

}  // namespace v0
}  // namespace cukiln

/// Digests are uniform already: their first word is the hash.  @cond
template <class Tag>
struct std::hash<cukiln::Digest256<Tag>> {
  std::size_t operator()(const cukiln::Digest256<Tag>& digest) const noexcept {
    std::size_t word = 0;
    std::memcpy(&word, digest.bytes.data(), sizeof word);
    return word;
  }
};  /// @endcond
