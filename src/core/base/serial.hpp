// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.hpp"

namespace cukiln {

/// Writes the canonical encoding: little-endian integers, and byte strings preceded by a 32-bit
/// length. All keys, stored rows and frames are encoded with it. Header-only, because the compile
/// worker uses it too and links no layer.
class SerialWriter {
 public:
  SerialWriter& u8(std::uint8_t value) { return put(value); }
  SerialWriter& u32(std::uint32_t value) { return put(value); }
  SerialWriter& u64(std::uint64_t value) { return put(value); }
  SerialWriter& bytes(ByteView value) {
    assert(value.size() <= UINT32_MAX);
    u32(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
    return *this;
  }
  SerialWriter& raw(ByteView value) {
    out_.append(value);
    return *this;
  }
  /// A 32-bit count, then each string as `bytes`.
  SerialWriter& strings(const std::vector<std::string>& values) {
    u32(static_cast<std::uint32_t>(values.size()));
    for (const std::string& value : values) {
      bytes(value);
    }
    return *this;
  }
  ByteView view() const noexcept { return out_; }
  std::string take() { return std::move(out_); }

 private:
  template <class T>
  SerialWriter& put(T value) {
    char buffer[sizeof value];  // every platform of the CUDA driver is little-endian
    std::memcpy(buffer, &value, sizeof value);
    out_.append(buffer, sizeof value);
    return *this;
  }
  std::string out_;
};

/// Reads what SerialWriter wrote. If the input is too short, `ok()` becomes false and all further
/// reads return zero or empty values. Never reads out of bounds.
class SerialReader {
 public:
  explicit SerialReader(ByteView in) noexcept : in_(in) {}

  std::uint8_t u8() noexcept { return get<std::uint8_t>(); }
  std::uint32_t u32() noexcept { return get<std::uint32_t>(); }
  std::uint64_t u64() noexcept { return get<std::uint64_t>(); }
  ByteView bytes() noexcept { return raw(u32()); }
  ByteView raw(std::size_t count) noexcept {
    if (!ok_ || count > in_.size()) {
      ok_ = false;
      return {};
    }
    const ByteView out = in_.substr(0, count);
    in_.remove_prefix(count);
    return out;
  }
  std::vector<std::string> strings() {
    std::vector<std::string> values;
    const std::uint32_t count = u32();
    for (std::uint32_t i = 0; i < count && ok_; ++i) {
      values.emplace_back(bytes());
    }
    return values;
  }
  bool ok() const noexcept { return ok_; }
  bool at_end() const noexcept { return ok_ && in_.empty(); }
  std::size_t remaining() const noexcept { return in_.size(); }

 private:
  template <class T>
  T get() noexcept {
    T value{};
    const ByteView from = raw(sizeof value);
    if (ok_) {
      std::memcpy(&value, from.data(), sizeof value);
    }
    return value;
  }
  ByteView in_;
  bool ok_ = true;
};

/// The decoded message if the input was read exactly to its end; nothing if it was too short or has
/// bytes left over.
template <class Message>
std::optional<Message> whole(const SerialReader& in, Message message) {
  if (!in.at_end()) {
    return std::nullopt;
  }
  return message;
}

}  // namespace cukiln
