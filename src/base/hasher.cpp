#include "base/hasher.hpp"

#include <xxhash.h>

namespace cukiln {

Digest128 digest_of(ByteView bytes) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest128 digest;
  static_assert(sizeof canonical.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), canonical.digest, sizeof canonical.digest);
  return digest;
}

std::uint64_t hash64(ByteView bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace cukiln
