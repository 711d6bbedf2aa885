// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>

#include "core/base/bytes.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// Identifies a file, a text or a library by its bytes: plain BLAKE2b-256, as `b2sum -l 256` prints
/// it.
using ContentHash = Digest256<struct ContentHashTag>;

/// XXH3-128 with seed 0 in canonical byte order. Detects accidental damage only and must not
/// identify anything: a second preimage takes milliseconds to find.
struct Checksum {
  std::array<std::uint8_t, 16> bytes{};
  friend bool operator==(const Checksum&, const Checksum&) = default;
};

/// Incremental BLAKE2b-256.
class ContentHasher {
 public:
  ContentHasher() noexcept;
  ContentHasher& add(ByteView bytes) noexcept;
  /// Must be the last call.
  template <class Digest = ContentHash>
  Digest finish() noexcept {
    Digest digest;
    finish(digest.bytes);
    return digest;
  }

 private:
  void finish(std::array<std::uint8_t, 32>& out) noexcept;
  alignas(64) std::array<unsigned char, 384> state_;  // libsodium's, which is opaque
};

/// The hash of the concatenated parts.
template <class Digest = ContentHash>
Digest hash_of(std::initializer_list<ByteView> parts) noexcept {
  ContentHasher hasher;
  for (const ByteView part : parts) {
    hasher.add(part);
  }
  return hasher.finish<Digest>();
}
template <class Digest = ContentHash>
Digest hash_of(ByteView bytes) noexcept {
  return hash_of<Digest>({bytes});
}

/// Incremental XXH3-128.
class Checksummer {
 public:
  Checksummer() noexcept;
  Checksummer& add(ByteView bytes) noexcept;
  /// Adds the size and then the bytes, so that boundaries between parts count.
  Checksummer& add_sized(ByteView bytes) noexcept;
  Checksummer& add_number(std::uint64_t number) noexcept;
  Checksum finish() const noexcept;

 private:
  alignas(64) std::array<unsigned char, 576> state_;  // xxHash's
};

Checksum checksum_of(ByteView bytes) noexcept;

/// The encoded bytes of a digest or checksum.
template <class Digest>
ByteView view_of(const Digest& digest) noexcept {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

/// A digest or checksum from its encoded bytes; all zero if their length is wrong.
template <class Digest>
Digest digest_from(ByteView bytes) noexcept {
  Digest digest;
  if (bytes.size() == digest.bytes.size()) {
    std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  }
  return digest;
}

/// XXH3-64, for hash tables in memory.
std::uint64_t hash64(ByteView bytes) noexcept;

}  // namespace cukiln
