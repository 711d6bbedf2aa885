#include "base/hasher.hpp"

#include <xxhash.h>

#include <cstring>

namespace cukiln {

Digest128 digest_of(ByteView bytes) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest128 digest;
  static_assert(sizeof canonical.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), canonical.digest, sizeof canonical.digest);
  return digest;
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
