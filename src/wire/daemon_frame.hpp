// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/bytes.hpp"
#include "base/file.hpp"

namespace cukiln::wire {

/// What a library and cukilnd say to each other (cache/WIRE.md, "Data door"). The numbers are part
/// of the protocol and never change their meaning.
enum class DaemonOp : std::uint16_t {
  // The client asks.
  hello = 1,
  sets,
  get,
  compile,
  answer,
  cancel,
  state,
  invalidate,
  ping,
  source_roots,
  report,
  // The daemon says.
  found_sets = 64,
  entry,
  miss,
  error,
  progress,
  question,
  superseded,
  declined,
  draining,
  state_is,
  pong,
  done,
};

/// One message: `u32` length of the body, `u16` op, `u16` flags, `u64` id, body; little-endian.
/// With kWithDescriptor in the flags a sealed file in memory comes along (sealed_file.hpp).
struct DaemonFrame {
  std::uint16_t op = 0;
  std::uint64_t id = 0;  ///< the client's number for a conversation; answers bear it too
  std::string body;
  UniqueFd attachment;

  bool is(DaemonOp wanted) const noexcept { return op == static_cast<std::uint16_t>(wanted); }
};

inline constexpr std::size_t kDaemonHeaderBytes = 16;
inline constexpr std::uint32_t kMaxDaemonBody = 1u << 20;
inline constexpr std::uint16_t kWithDescriptor = 1;
/// A body that is larger goes into the descriptor instead, so that no frame is long to wait for.
inline constexpr std::size_t kMaxInlineBytes = 64 << 10;
/// Of one attachment: a source (64 MiB), what it includes, or a cubin.
inline constexpr std::uint64_t kMaxAttachmentBytes = 512ull << 20;

std::string encode_header(DaemonOp op, std::uint64_t id, std::size_t body_bytes,
                          bool with_descriptor);

/// Takes a stream of bytes, and the descriptors that came with them, apart into frames. Holds what
/// arrived and no more: a length alone, from a peer that sends nothing else, reserves nothing.
class DaemonFrameParser {
 public:
  enum class Next { frame, more, malformed };

  void feed(ByteView bytes) { pending_.append(bytes); }
  void feed(UniqueFd descriptor) { descriptors_.push_back(std::move(descriptor)); }
  /// The next whole frame. After malformed the stream is of no more use; `fault()` says why.
  Next next(DaemonFrame& out);

  /// Whether a part of a frame is waiting for the rest.
  bool in_frame() const noexcept { return begin_ != pending_.size(); }
  const char* fault() const noexcept { return fault_; }

 private:
  Next malformed(const char* why) noexcept;

  std::string pending_;
  std::size_t begin_ = 0;  // where the next frame begins
  std::deque<UniqueFd> descriptors_;
  const char* fault_ = "";
};

/// The first bytes on a connection, from the daemon. 64 bytes, padded with zeros.
struct Greeting {
  std::uint16_t oldest_version = 0;  ///< of the protocol
  std::uint16_t newest_version = 0;
  bool system = false;   ///< for all users of the machine, not for one
  bool watches = false;  ///< it compiles ahead what changed, and takes `places`
  bool takes_reports = false;
  std::uint32_t process = 0;
  std::uint64_t store_device = 0;  ///< of its store's folder; with the inode: whether a client has
  std::uint64_t store_inode = 0;   ///< the same store open. Both zero: it has none on disk
  std::string build;               ///< at most 16 bytes

  std::string encode() const;
  static bool decode(ByteView bytes, Greeting& out);
};
inline constexpr std::size_t kGreetingBytes = 64;
inline constexpr std::uint16_t kDaemonProtocol = 2;

}  // namespace cukiln::wire
