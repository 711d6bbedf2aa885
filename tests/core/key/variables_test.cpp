// SPDX-License-Identifier: Apache-2.0
#include "core/key/variables.hpp"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/key/cubin.hpp"

namespace cukiln {
namespace {

template <class T>
void append(std::string& image, const T& value) {
  image.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// An image with the kernel `k`, the constant `c` of 20 bytes and the variable `big` of 5 GiB.
std::string image() {
  const std::string names("\0k\0c\0big\0", 9);
  const std::string section_names("\0.text.k\0.nv.constant3\0.nv.global\0", 34);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 6;
  header.e_shstrndx = 5;
  const auto symbol = [](std::uint32_t name, unsigned char type, std::uint16_t section,
                         std::uint64_t size) {
    Elf64_Sym one{};
    one.st_name = name;
    one.st_info = ELF64_ST_INFO(STB_LOCAL, type);
    one.st_shndx = section;
    one.st_size = size;
    return one;
  };
  std::string out(sizeof header, '\0');
  const std::uint64_t symbols_at = out.size();
  append(out, symbol(1, STT_FUNC, 0, 128));
  append(out, symbol(3, STT_OBJECT, 1, 20));
  append(out, symbol(5, STT_OBJECT, 2, 5ull << 30));
  const std::uint64_t names_at = out.size();
  out += names;
  const std::uint64_t section_names_at = out.size();
  out += section_names;
  header.e_shoff = out.size();
  const auto section = [&](std::uint32_t name, std::uint32_t type, std::uint64_t offset,
                           std::uint64_t size, std::uint32_t link) {
    Elf64_Shdr one{};
    one.sh_name = name;
    one.sh_type = type;
    one.sh_offset = offset;
    one.sh_size = size;
    one.sh_link = link;
    append(out, one);
  };
  section(1, SHT_PROGBITS, 0, 0, 0);
  section(9, SHT_PROGBITS, 0, 0, 0);
  section(23, SHT_NOBITS, 0, 0, 0);
  section(0, SHT_SYMTAB, symbols_at, 3 * sizeof(Elf64_Sym), 4);
  section(0, SHT_STRTAB, names_at, names.size(), 0);
  section(0, SHT_STRTAB, section_names_at, section_names.size(), 0);
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

std::vector<KernelInfo> symbols() {
  std::vector<KernelInfo> all(4);
  all[0] = {"big<int>", "big", 0, 0, 0, 0};
  all[1] = {"c", "c", 0, 0, 0, 0};
  all[2] = {"k", "k", 16, 4, 8, 0};
  all[3] = {"elsewhere", "elsewhere", 0, 0, 0, 0};
  return all;
}

TEST_CASE(
    "variables are distinguished from kernels by the image, and stay so when they are stored") {
  std::vector<KernelInfo> all = symbols();
  mark_variables(image(), all);
  const auto stored = decode_kernels(encode_kernels(all));
  REQUIRE(stored);
  for (const std::vector<KernelInfo>& list : {all, *stored}) {
    const std::vector<KernelInfo> kernels = kernels_among(list);
    REQUIRE(kernels.size() == 2);
    CHECK(kernels[0].name == "k");
    CHECK(kernels[0].registers == 16);
    CHECK(kernels[1].name == "elsewhere");
    const std::vector<VariableInfo> variables = variables_among(list);
    REQUIRE(variables.size() == 2);
    CHECK(variables[0].name == "big<int>");
    CHECK(variables[0].lowered == "big");
    CHECK(variables[0].size_bytes == 5ull << 30);
    CHECK_FALSE(variables[0].is_constant);
    CHECK(variables[1].size_bytes == 20);
    CHECK(variables[1].is_constant);
  }
  std::vector<KernelInfo> again = all;
  mark_variables("", again);
  CHECK(encode_kernels(again) == encode_kernels(all));
}

TEST_CASE("a damaged or truncated image marks what is whole, and nothing else") {
  const std::string whole = image();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    std::vector<KernelInfo> all = symbols();
    mark_variables(ByteView(whole).substr(0, length), all);
    CHECK(variables_among(all).size() <= 2);
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {'\xff', '\x7f', '\0'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      std::vector<KernelInfo> all = symbols();
      mark_variables(damaged, all);
      CHECK(all.size() == 4);
      CHECK(all[2].registers == 16);
    }
  }
}

}  // namespace
}  // namespace cukiln
