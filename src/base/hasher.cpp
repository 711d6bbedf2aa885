#include "base/hasher.hpp"

#define XXH_STATIC_LINKING_ONLY  // the size of a state
#include <xxhash.h>

#include <cstring>

namespace cukiln {

namespace {

Digest128 in_canonical_order(XXH128_hash_t hash) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest128 digest;
  static_assert(sizeof canonical.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), canonical.digest, sizeof canonical.digest);
  return digest;
}

}  // namespace

Digest128 digest_of(ByteView bytes) noexcept {
  return in_canonical_order(XXH3_128bits(bytes.data(), bytes.size()));
}

struct StreamHasher::State {
  XXH3_state_t xxh;  // aligned as it asks for
};

StreamHasher::StreamHasher() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}
StreamHasher::~StreamHasher() = default;

void StreamHasher::add(ByteView bytes) noexcept {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Digest128 StreamHasher::digest() const noexcept {
  return in_canonical_order(XXH3_128bits_digest(&state_->xxh));
}

ByteView view_of(const Digest128& digest) noexcept {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

Digest128 digest_from(ByteView bytes) noexcept {
  Digest128 digest;
  if (bytes.size() == digest.bytes.size()) {
    std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  }
  return digest;
}

std::uint64_t hash64(ByteView bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace cukiln
