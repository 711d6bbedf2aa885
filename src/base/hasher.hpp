#pragma once

#include <memory>

#include "base/bytes.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// XXH3-128 with seed 0, canonical byte order.
Digest128 digest_of(ByteView bytes) noexcept;

/// The same, of bytes that come in pieces.
class StreamHasher {
 public:
  StreamHasher();
  ~StreamHasher();
  StreamHasher(const StreamHasher&) = delete;
  StreamHasher& operator=(const StreamHasher&) = delete;
  void add(ByteView bytes) noexcept;
  Digest128 digest() const noexcept;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// A digest's 16 bytes as they are encoded, and back; bytes of another length give the zero digest.
ByteView view_of(const Digest128& digest) noexcept;
Digest128 digest_from(ByteView bytes) noexcept;

/// XXH3-64, for tables in memory.
std::uint64_t hash64(ByteView bytes) noexcept;

}  // namespace cukiln
