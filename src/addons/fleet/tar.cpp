// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/tar.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

namespace cukiln {

namespace {

// Offsets and widths of the fields: POSIX.1-2017, pax, "ustar Interchange Format".
constexpr std::size_t kNameBytes = 100;
constexpr std::size_t kModeAt = 100;
constexpr std::size_t kUserAt = 108;
constexpr std::size_t kGroupAt = 116;
constexpr std::size_t kSizeAt = 124;
constexpr std::size_t kSizeDigits = 11;
constexpr std::size_t kTimeAt = 136;
constexpr std::size_t kSumAt = 148;
constexpr std::size_t kSumBytes = 8;
constexpr std::size_t kTypeAt = 156;
constexpr std::size_t kMagicAt = 257;

void put(std::string& header, std::size_t at, ByteView text) {
  std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

std::string tar_header(const TarMember& member) {
  std::string header(kTarBlock, '\0');
  put(header, 0, member.name);
  put(header, kModeAt, member.is_folder() ? "0000755" : "0000644");
  put(header, kUserAt, "0000000");
  put(header, kGroupAt, "0000000");
  put(header, kSizeAt, fmt::format("{:011o}", member.bytes));
  put(header, kTimeAt, "00000000000");
  put(header, kSumAt, std::string(kSumBytes, ' '));
  header[kTypeAt] = member.is_folder() ? '5' : '0';
  put(header, kMagicAt,
      ByteView("ustar\0"
               "00",
               8));
  unsigned sum = 0;
  for (const char byte : header) {
    sum += static_cast<unsigned char>(byte);
  }
  put(header, kSumAt, fmt::format("{:06o}", sum) + std::string(1, '\0') + " ");
  return header;
}

std::string tar_padding(std::uint64_t bytes) {
  return std::string((kTarBlock - bytes % kTarBlock) % kTarBlock, '\0');
}

std::optional<TarMember> parse_tar_header(ByteView header) {
  if (header.size() != kTarBlock) {
    return std::nullopt;
  }
  TarMember member;
  const ByteView name = header.substr(0, kNameBytes);
  member.name = name.substr(0, name.find('\0'));
  const ByteView digits = header.substr(kSizeAt, kSizeDigits);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), member.bytes, 8);
  const bool is_number = error == std::errc{} && end == digits.data() + digits.size();
  // A header is accepted if it is exactly the one of its name and size.
  return is_number && member.bytes <= kMaxTarMember && !member.name.empty() &&
                 member.name.size() < kNameBytes && tar_header(member) == header
             ? std::optional(std::move(member))
             : std::nullopt;
}

}  // namespace cukiln
