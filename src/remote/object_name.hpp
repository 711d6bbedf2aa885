#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.hpp"

namespace cukiln {

/// BLAKE2b-256: what leaves the user's own files is named by a cryptographic hash, because somebody
/// may gain from two things that share a name.
struct Blake2b256 {
  std::array<std::uint8_t, 32> bytes{};
  std::string hex() const;  ///< 64 lower-case digits
  ByteView view() const noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  friend bool operator==(const Blake2b256&, const Blake2b256&) = default;
};

Blake2b256 blake2b_of(ByteView bytes) noexcept;

/// What an object is called wherever it is kept.
struct ObjectName : Blake2b256 {
  /// Of the list of a request's dependency sets: H("sets" ‖ request).
  static ObjectName of_sets(ByteView request_canonical);
  /// Of one entry: H of what its CacheKey is the hash of.
  static ObjectName of_entry(ByteView request_canonical, ByteView set_canonical);
};

}  // namespace cukiln
