// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/wire/frame_codec.hpp"

namespace cukiln::wire {

/// The messages between a client and cukilnd (cache/WIRE.md). The numbers are part of the protocol
/// and never change their meaning.
enum class DaemonOp : std::uint16_t {
  // From the client.
  hello = 1,
  answer = 5,
  cancel,
  state,
  invalidate,
  ping,
  report = 11,
  get_blob,
  put_blob,
  obtain,
  // From the daemon.
  miss = 66,
  error,
  progress,
  question,
  superseded,
  declined,
  draining,
  state_is,
  pong,
  done,
  still_needed = 77,
  object,
};

inline constexpr std::uint16_t kWithDescriptor = 1;
inline constexpr std::uint32_t kMaxDaemonBody = 1u << 20;

/// The protocol between a client and cukilnd: frames with the client's id for the conversation.
/// With the flag kWithDescriptor a sealed memory file (sealed_file.hpp) comes with the frame's
/// first byte.
struct DaemonProtocol {
  static constexpr std::uint32_t kMaxBodyBytes = kMaxDaemonBody;
  static constexpr std::uint16_t kFlags = kWithDescriptor;
  static constexpr bool kHasId = true;
};

/// One message between a client and cukilnd.
struct DaemonFrame {
  std::uint16_t op = 0;
  std::uint64_t id = 0;  ///< the client's number for the conversation; replies have the same
  std::string body;
  UniqueFd attachment;

  bool is(DaemonOp wanted) const noexcept { return op == static_cast<std::uint16_t>(wanted); }
};

inline constexpr std::size_t kDaemonHeaderBytes = kFrameHeaderBytes<DaemonProtocol>;
/// A larger body is sent as an attachment, so that no frame takes long to transfer.
inline constexpr std::size_t kMaxInlineBytes = 64 << 10;
/// The limit for an attachment: a source (64 MiB) with files sent ahead, or a cubin.
inline constexpr std::uint64_t kMaxAttachmentBytes = 512ull << 20;

std::string encode_header(DaemonOp op, std::uint64_t id, std::size_t body_bytes,
                          bool with_descriptor);

/// Splits a stream of bytes, with the descriptors that came with it, into frames. See FrameBuffer.
class DaemonFrameParser {
 public:
  using Next = FrameBuffer<DaemonProtocol>::Next;

  void feed(ByteView bytes) { received_.append(bytes); }
  void feed(UniqueFd descriptor) { descriptors_.push_back(std::move(descriptor)); }
  /// Takes the next complete frame; `more` if none has arrived. After malformed, for the reason
  /// `fault()`, the stream must be closed.
  Next next(DaemonFrame& out);

  /// Whether an incomplete frame is buffered.
  bool in_frame() const noexcept { return !received_.empty(); }
  const char* fault() const noexcept { return fault_; }
  /// Takes the descriptors that belong to no frame yet.
  std::deque<UniqueFd> take_descriptors() noexcept { return std::exchange(descriptors_, {}); }

 private:
  Next malformed(const char* why) noexcept;

  FrameBuffer<DaemonProtocol> received_;
  std::deque<UniqueFd> descriptors_;
  const char* fault_ = "";
};

/// The first 64 bytes on a connection, sent by the daemon and padded with zeros.
struct Greeting {
  std::uint16_t oldest_version = 0;  ///< of the protocol
  std::uint16_t newest_version = 0;
  bool takes_reports = false;  ///< it accepts `report`
  bool keeps_blobs = false;    ///< it accepts `get_blob` and `put_blob`
  bool shares_blobs = false;   ///< it has a remote store for them
  bool takes_totals = false;   ///< it counts the hits and misses in a `report`
  std::uint32_t process = 0;
  /// Device and inode of its store's folder: a client can tell whether it has the same store open.
  /// Both are zero if the daemon has no store on disk.
  std::uint64_t store_device = 0;
  std::uint64_t store_inode = 0;
  std::string build;  ///< at most 16 bytes

  std::string encode() const;
  static bool decode(ByteView bytes, Greeting& out);
};
inline constexpr std::size_t kGreetingBytes = 64;
inline constexpr std::uint16_t kDaemonProtocol = 4;

}  // namespace cukiln::wire
