// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/bytes.hpp"

namespace cukiln {

/// Reads a structure at an offset of an image; nothing if it does not lie within.
template <class T>
std::optional<T> read_at(ByteView image, std::uint64_t offset) noexcept {
  T value{};
  if (offset > image.size() || sizeof value > image.size() - offset) {
    return std::nullopt;
  }
  std::memcpy(&value, image.data() + offset, sizeof value);
  return value;
}

/// Returns the header of an ELF file, as that of a 64-bit one; nothing for another file.
inline std::optional<Elf64_Ehdr> elf_header(ByteView image) noexcept {
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  return header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 ? header : std::nullopt;
}

/// Returns the SM version of a cubin, 90 or 100. ABI 7 (up to CUDA 12) has it in the low byte of
/// the flags, ABI 8 (CUDA 13) in bits 8 to 15. Source: cubins of NVRTC 12.9, 13.0 and 13.5.
inline int sm_version(const Elf64_Ehdr& header) noexcept {
  constexpr unsigned char kAbiVersionWithWideFlags = 8;
  const bool wide = header.e_ident[EI_ABIVERSION] >= kAbiVersionWithWideFlags;
  return static_cast<int>((wide ? header.e_flags >> 8 : header.e_flags) & 0xff);
}

/// The sections of an ELF image, which may be damaged: everything is read within its bounds. A
/// table that is not whole has the sections before its end.
class ElfImage {
 public:
  explicit ElfImage(ByteView image) : image_(image) {
    const auto header = elf_header(image);
    if (!header || header->e_shentsize != sizeof(Elf64_Shdr)) {
      return;
    }
    for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
      const auto section = at<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr));
      if (!section) {
        return;
      }
      sections_.push_back(*section);
    }
    names_ = header->e_shstrndx;
  }

  const std::vector<Elf64_Shdr>& sections() const noexcept { return sections_; }

  std::string_view section_name(std::size_t index) const {
    return index < sections_.size() ? text(names_, sections_[index].sh_name) : std::string_view();
  }

  /// A text of a string table; empty if it is not within.
  std::string_view text(std::size_t table, std::uint64_t offset) const {
    if (table >= sections_.size()) {
      return {};
    }
    const Elf64_Shdr& strings = sections_[table];
    if (strings.sh_offset > image_.size() || strings.sh_size > image_.size() - strings.sh_offset ||
        offset >= strings.sh_size) {
      return {};
    }
    const std::string_view rest = image_.substr(strings.sh_offset, strings.sh_size).substr(offset);
    return rest.substr(0, rest.find('\0'));
  }

  template <class T>
  std::optional<T> at(std::uint64_t offset) const noexcept {
    return read_at<T>(image_, offset);
  }

 private:
  ByteView image_;
  std::vector<Elf64_Shdr> sections_;
  std::size_t names_ = 0;
};

}  // namespace cukiln
