// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the sizes of a kernel's parameters from its cubin.

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace cukiln::testing {

/// The sizes in order; empty if the image has no such kernel.
inline std::vector<std::size_t> cubin_parameters(const std::string& image,
                                                 const std::string& kernel) {
  const auto read = [&](std::size_t at, auto value) {
    if (at + sizeof value <= image.size()) {
      std::memcpy(&value, image.data() + at, sizeof value);
    }
    return value;
  };
  const auto header = read(0, Elf64_Ehdr{});
  const auto section_at = [&](std::size_t index) {
    return read(header.e_shoff + index * sizeof(Elf64_Shdr), Elf64_Shdr{});
  };
  const Elf64_Shdr names = section_at(header.e_shstrndx);
  std::map<std::uint16_t, std::size_t> sizes;  // by ordinal
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr section = section_at(i);
    const std::size_t name = names.sh_offset + section.sh_name;
    if (name >= image.size() || image.c_str() + name != ".nv.info." + kernel) {
      continue;
    }
    // Entries of {u8 format, u8 attribute, u16 value or size}; with format 4 so many bytes follow.
    // A parameter: u32 index, u16 ordinal, u16 offset, u32 whose bits from 18 on are its size.
    const std::size_t end = section.sh_offset + section.sh_size;
    for (std::size_t at = section.sh_offset; at + 4 <= end;) {
      const auto format = read(at, std::uint8_t{});
      if (format == 4 && read(at + 1, std::uint8_t{}) == 0x17) {
        sizes[read(at + 8, std::uint16_t{})] = read(at + 12, std::uint32_t{}) >> 18;
      }
      at += 4 + std::size_t{format == 4 ? read(at + 2, std::uint16_t{}) : std::uint16_t{}};
    }
  }
  std::vector<std::size_t> all;
  for (const auto& [ordinal, size] : sizes) {
    all.push_back(size);
  }
  return all;
}

}  // namespace cukiln::testing
