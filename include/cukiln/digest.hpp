#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <cukiln/export.hpp>

namespace cukiln {

/// 128 bits of XXH3, canonical (big-endian) byte order. Against accidents, not against attackers.
struct CUKILN_API Digest128 {
  std::array<std::uint8_t, 16> bytes{};

  /// 32 lower-case hex digits.
  std::string hex() const;
  static std::optional<Digest128> from_hex(std::string_view text) noexcept;

  friend bool operator==(const Digest128& a, const Digest128& b) noexcept {
    return a.bytes == b.bytes;
  }
  friend bool operator!=(const Digest128& a, const Digest128& b) noexcept { return !(a == b); }
  friend bool operator<(const Digest128& a, const Digest128& b) noexcept {
    return a.bytes < b.bytes;
  }
};

/// What is known of a compile before it runs: H(canonical request). See `cache/FORMAT.md`.
struct CUKILN_API RequestDigest : Digest128 {};

/// Names one cubin for ever: H(canonical request ‖ dependency set).
struct CUKILN_API CacheKey : Digest128 {};

}  // namespace cukiln

/// Digests are uniform already: their first word is the hash.
template <>
struct std::hash<cukiln::Digest128> {
  std::size_t operator()(const cukiln::Digest128& d) const noexcept {
    std::size_t word = 0;
    std::memcpy(&word, d.bytes.data(), sizeof word);
    return word;
  }
};
template <>
struct std::hash<cukiln::RequestDigest> : std::hash<cukiln::Digest128> {};
template <>
struct std::hash<cukiln::CacheKey> : std::hash<cukiln::Digest128> {};
