// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/base/bytes.hpp"
#include "core/base/serial.hpp"

namespace cukiln::wire {

// The framing of both protocols: a header of `u32` length of the body, `u16` op, `u16` flags and,
// if Protocol::kHasId, `u64` id; then the body. All integers are little-endian. A Protocol also has
// kMaxBodyBytes and kFlags, the flags that it knows. Header-only, because the compile worker uses
// it and links no layer.

struct FrameHeader {
  std::uint32_t body_bytes = 0;
  std::uint16_t op = 0;
  std::uint16_t flags = 0;
  std::uint64_t id = 0;  ///< 0 in a protocol without ids
};

template <class Protocol>
inline constexpr std::size_t kFrameHeaderBytes = Protocol::kHasId ? 16 : 8;

template <class Protocol>
std::string encode_frame_header(const FrameHeader& header) {
  SerialWriter out;
  out.u32(header.body_bytes);
  out.u32(std::uint32_t{header.op} | std::uint32_t{header.flags} << 16);
  if constexpr (Protocol::kHasId) {
    out.u64(header.id);
  }
  return out.take();
}

/// Splits received bytes into frames. Grows with the bytes that have arrived: a header with a large
/// length allocates nothing. Threads: one at a time.
template <class Protocol>
class FrameBuffer {
 public:
  enum class Next { frame, more, malformed };

  void append(ByteView bytes) {
    compact();
    bytes_.resize(end_);
    bytes_.append(bytes);
    end_ = bytes_.size();
  }
  /// At least `min_bytes` of memory to receive into, of which `commit` then counts the used ones.
  char* reserve(std::size_t min_bytes) {
    compact();
    if (end_ == 0 && bytes_.size() > kMaxIdleBytes) {
      bytes_ = std::string();
    }
    if (bytes_.size() - end_ < min_bytes) {
      bytes_.resize(end_ + std::max(min_bytes, end_));
    }
    return bytes_.data() + end_;
  }
  std::size_t reserved() const noexcept { return bytes_.size() - end_; }
  void commit(std::size_t bytes) noexcept {
    assert(bytes <= reserved());
    end_ += bytes;
  }

  /// Takes the next complete frame; `more` if none has arrived. `body` is valid until the buffer
  /// changes. After malformed, for the reason `fault()`, the stream must be closed.
  Next next(FrameHeader& header, ByteView& body) noexcept {
    SerialReader in(ByteView(bytes_.data() + begin_, end_ - begin_));
    header.body_bytes = in.u32();
    const std::uint32_t op_and_flags = in.u32();
    header.op = static_cast<std::uint16_t>(op_and_flags & 0xffff);
    header.flags = static_cast<std::uint16_t>(op_and_flags >> 16);
    if constexpr (Protocol::kHasId) {
      header.id = in.u64();
    }
    if (!in.ok()) {
      return Next::more;
    }
    if (header.body_bytes > Protocol::kMaxBodyBytes) {
      fault_ = "length";
      return Next::malformed;
    }
    if ((header.flags & ~std::uint32_t{Protocol::kFlags}) != 0) {
      fault_ = "flags";
      return Next::malformed;
    }
    if (in.remaining() < header.body_bytes) {
      return Next::more;
    }
    body = in.raw(header.body_bytes);
    begin_ += kFrameHeaderBytes<Protocol> + header.body_bytes;
    return Next::frame;
  }

  /// True if no incomplete frame is buffered.
  bool empty() const noexcept { return begin_ == end_; }
  const char* fault() const noexcept { return fault_; }

 private:
  static constexpr std::size_t kMaxIdleBytes = 1 << 20;  // kept allocated between frames

  /// Moves the unread bytes to the beginning.
  void compact() noexcept {
    if (begin_ != 0) {
      std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
  }

  std::string bytes_;
  std::size_t begin_ = 0;  // the unread bytes are in [begin_, end_)
  std::size_t end_ = 0;
  const char* fault_ = "";
};

}  // namespace cukiln::wire
