// SPDX-License-Identifier: Apache-2.0
#include "core/base/hasher.hpp"

#include <sodium/crypto_generichash_blake2b.h>

#define XXH_STATIC_LINKING_ONLY  // declares XXH3_state_t, whose size is needed
#include <xxhash.h>

#include <cstring>
#include <new>

namespace cukiln {

namespace {

// libsodium's BLAKE2b works without `sodium_init`, which would make it 5 % faster but draw random
// numbers in the host. These calls cannot fail, as their sizes are valid constants.
crypto_generichash_blake2b_state* blake2b(unsigned char* bytes) noexcept {
  return reinterpret_cast<crypto_generichash_blake2b_state*>(bytes);
}

XXH3_state_t* xxh3(unsigned char* bytes) noexcept { return reinterpret_cast<XXH3_state_t*>(bytes); }
const XXH3_state_t* xxh3(const unsigned char* bytes) noexcept {
  return reinterpret_cast<const XXH3_state_t*>(bytes);
}

Checksum in_canonical_order(XXH128_hash_t hash) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Checksum checksum;
  static_assert(sizeof canonical.digest == sizeof checksum.bytes);
  std::memcpy(checksum.bytes.data(), canonical.digest, sizeof canonical.digest);
  return checksum;
}

}  // namespace

ContentHasher::ContentHasher() noexcept {
  static_assert(sizeof(crypto_generichash_blake2b_state) <= sizeof state_);
  static_assert(alignof(crypto_generichash_blake2b_state) <= 64);
  ::crypto_generichash_blake2b_init(blake2b(state_.data()), nullptr, 0, ContentHash{}.bytes.size());
}

ContentHasher& ContentHasher::add(ByteView bytes) noexcept {
  ::crypto_generichash_blake2b_update(
      blake2b(state_.data()), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return *this;
}

void ContentHasher::finish(std::array<std::uint8_t, 32>& out) noexcept {
  ::crypto_generichash_blake2b_final(blake2b(state_.data()), out.data(), out.size());
}

Checksummer::Checksummer() noexcept {
  static_assert(sizeof(XXH3_state_t) <= sizeof state_ && alignof(XXH3_state_t) <= 64);
  XXH3_128bits_reset(new (state_.data()) XXH3_state_t);
}

Checksummer& Checksummer::add(ByteView bytes) noexcept {
  XXH3_128bits_update(xxh3(state_.data()), bytes.data(), bytes.size());
  return *this;
}

Checksummer& Checksummer::add_sized(ByteView bytes) noexcept {
  return add_number(bytes.size()).add(bytes);
}

Checksummer& Checksummer::add_number(std::uint64_t number) noexcept {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  return add({bytes, sizeof bytes});
}

Checksum Checksummer::finish() const noexcept {
  return in_canonical_order(XXH3_128bits_digest(xxh3(state_.data())));
}

Checksum checksum_of(ByteView bytes) noexcept {
  return in_canonical_order(XXH3_128bits(bytes.data(), bytes.size()));
}

std::uint64_t hash64(ByteView bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace cukiln
