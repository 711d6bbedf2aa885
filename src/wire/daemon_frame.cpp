// SPDX-License-Identifier: Apache-2.0
#include "wire/daemon_frame.hpp"

#include <algorithm>
#include <utility>

#include "base/serial.hpp"

namespace cukiln::wire {

namespace {

constexpr std::string_view kMagic = "CKD1";
constexpr std::uint32_t kSystemBit = 1;
constexpr std::uint32_t kWatchesBit = 2;
constexpr std::uint32_t kReportsBit = 4;
constexpr std::size_t kBuildBytes = 16;
// One for the current frame, and one that came with the first bytes of the next.
constexpr std::size_t kMaxPendingDescriptors = 2;

}  // namespace

std::string encode_header(DaemonOp op, std::uint64_t id, std::size_t body_bytes,
                          bool with_descriptor) {
  SerialWriter out;
  const std::uint32_t flags = with_descriptor ? kWithDescriptor : 0;
  out.u32(static_cast<std::uint32_t>(body_bytes));
  out.u32(static_cast<std::uint32_t>(op) | flags << 16).u64(id);
  return out.take();
}

DaemonFrameParser::Next DaemonFrameParser::malformed(const char* why) noexcept {
  fault_ = why;
  return Next::malformed;
}

DaemonFrameParser::Next DaemonFrameParser::next(DaemonFrame& out) {
  if (descriptors_.size() > kMaxPendingDescriptors) {
    return malformed("descriptors");
  }
  const ByteView unread = ByteView(pending_).substr(begin_);
  if (unread.empty()) {
    pending_.clear();
    begin_ = 0;
    return descriptors_.empty() ? Next::more : malformed("descriptors");
  }
  SerialReader header(unread);
  const std::uint32_t size = header.u32();
  const std::uint32_t op_and_flags = header.u32();
  const std::uint64_t id = header.u64();
  if (header.ok()) {
    const std::uint32_t flags = op_and_flags >> 16;
    if (size > kMaxDaemonBody) {
      return malformed("length");
    }
    if ((flags & ~std::uint32_t{kWithDescriptor}) != 0) {
      return malformed("flags");
    }
    if (header.remaining() >= size) {
      UniqueFd attachment;
      if (flags != 0) {
        if (descriptors_.empty()) {
          return malformed("descriptors");
        }
        attachment = std::move(descriptors_.front());
        descriptors_.pop_front();
      }
      out.op = static_cast<std::uint16_t>(op_and_flags & 0xffff);
      out.id = id;
      out.body = header.raw(size);
      out.attachment = std::move(attachment);
      begin_ += kDaemonHeaderBytes + size;
      return Next::frame;
    }
  }
  pending_.erase(0, begin_);
  begin_ = 0;
  return Next::more;
}

std::string Greeting::encode() const {
  SerialWriter out;
  out.raw(kMagic);
  out.u32(std::uint32_t{oldest_version} | std::uint32_t{newest_version} << 16);
  out.u32((system ? kSystemBit : 0) | (watches ? kWatchesBit : 0) |
          (takes_reports ? kReportsBit : 0));
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
  out.system = (flags & kSystemBit) != 0;
  out.watches = (flags & kWatchesBit) != 0;
  out.takes_reports = (flags & kReportsBit) != 0;
  out.process = in.u32();
  out.store_device = in.u64();
  out.store_inode = in.u64();
  const ByteView build = in.raw(kBuildBytes);
  out.build = build.substr(0, std::min(build.find('\0'), build.size()));
  return in.ok() && out.oldest_version <= out.newest_version;
}

}  // namespace cukiln::wire
