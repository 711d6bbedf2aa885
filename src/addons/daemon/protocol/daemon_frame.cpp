// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/protocol/daemon_frame.hpp"

#include <algorithm>
#include <utility>

#include "core/base/serial.hpp"

namespace cukiln::wire {

namespace {

constexpr std::string_view kMagic = "CKD1";
constexpr std::uint32_t kReportsBit = 4;
constexpr std::uint32_t kBlobsBit = 8;
constexpr std::uint32_t kSharedBlobsBit = 16;
constexpr std::uint32_t kTotalsBit = 32;
constexpr std::size_t kBuildBytes = 16;
// One for the current frame, and one that came with the first bytes of the next.
constexpr std::size_t kMaxPendingDescriptors = 2;

}  // namespace

std::string encode_header(DaemonOp op, std::uint64_t id, std::size_t body_bytes,
                          bool with_descriptor) {
  return encode_frame_header<DaemonProtocol>(
      {static_cast<std::uint32_t>(body_bytes), static_cast<std::uint16_t>(op),
       with_descriptor ? kWithDescriptor : std::uint16_t{0}, id});
}

DaemonFrameParser::Next DaemonFrameParser::malformed(const char* why) noexcept {
  fault_ = why;
  return Next::malformed;
}

DaemonFrameParser::Next DaemonFrameParser::next(DaemonFrame& out) {
  if (descriptors_.size() > kMaxPendingDescriptors ||
      (received_.empty() && !descriptors_.empty())) {
    return malformed("descriptors");
  }
  FrameHeader header;
  ByteView body;
  const Next next = received_.next(header, body);
  if (next == Next::malformed) {
    return malformed(received_.fault());
  }
  if (next == Next::more) {
    return next;
  }
  UniqueFd attachment;
  if ((header.flags & kWithDescriptor) != 0) {
    if (descriptors_.empty()) {
      return malformed("descriptors");
    }
    attachment = std::move(descriptors_.front());
    descriptors_.pop_front();
  }
  out.op = header.op;
  out.id = header.id;
  out.body = body;
  out.attachment = std::move(attachment);
  return next;
}

std::string Greeting::encode() const {
  SerialWriter out;
  out.raw(kMagic);
  out.u32(std::uint32_t{oldest_version} | std::uint32_t{newest_version} << 16);
  out.u32((takes_reports ? kReportsBit : 0) | (keeps_blobs ? kBlobsBit : 0) |
          (shares_blobs ? kSharedBlobsBit : 0) | (takes_totals ? kTotalsBit : 0));
  out.u32(process).u64(store_device).u64(store_inode);
  std::string bytes = out.take();
  bytes += ByteView(build).substr(0, kBuildBytes);
  bytes.resize(kGreetingBytes, '\0');
  return bytes;
}

bool Greeting::decode(ByteView bytes, Greeting& out) {
  SerialReader in(bytes);
  if (bytes.size() != kGreetingBytes || in.raw(kMagic.size()) != kMagic) {
    return false;
  }
  const std::uint32_t versions = in.u32();
  out.oldest_version = static_cast<std::uint16_t>(versions & 0xffff);
  out.newest_version = static_cast<std::uint16_t>(versions >> 16);
  const std::uint32_t flags = in.u32();
  out.takes_reports = (flags & kReportsBit) != 0;
  out.keeps_blobs = (flags & kBlobsBit) != 0;
  out.shares_blobs = (flags & kSharedBlobsBit) != 0;
  out.takes_totals = (flags & kTotalsBit) != 0;
  out.process = in.u32();
  out.store_device = in.u64();
  out.store_inode = in.u64();
  const ByteView build = in.raw(kBuildBytes);
  out.build = build.substr(0, std::min(build.find('\0'), build.size()));
  return in.ok() && out.oldest_version <= out.newest_version;
}

}  // namespace cukiln::wire
