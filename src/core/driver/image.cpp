// SPDX-License-Identifier: Apache-2.0
#include "core/driver/image.hpp"

#include <cassert>
#include <cstring>

#include "core/base/elf_image.hpp"
#include "core/base/result.hpp"

namespace cukiln {
namespace {

bool is_inside(ByteView image, std::uint64_t offset, std::uint64_t size) noexcept {
  return offset <= image.size() && size <= image.size() - offset;
}

Error truncated(ByteView image, const char* what, std::uint64_t offset, std::uint64_t size) {
  return make_error(ErrorCode::corrupt,
                    "the cubin is truncated: its {} has {} bytes at offset {}, the image has {}",
                    what, size, offset, image.size());
}

}  // namespace

Result<void> check_bounds(ByteView image) {
  const auto found = elf_header(image);
  if (!found) {
    return make_error(ErrorCode::corrupt, "{} bytes are not a cubin: expected an ELF file",
                      image.size());
  }
  const Elf64_Ehdr& header = *found;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA) {
    return make_error(ErrorCode::corrupt,
                      "the image is an ELF file for machine {}, expected {} (CUDA)",
                      header.e_machine, EM_CUDA);
  }
  const std::uint64_t programs = std::uint64_t{header.e_phnum} * header.e_phentsize;
  if (header.e_phnum != 0 &&
      (header.e_phentsize != sizeof(Elf64_Phdr) || !is_inside(image, header.e_phoff, programs))) {
    return truncated(image, "program table", header.e_phoff, programs);
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr program;
    std::memcpy(&program, image.data() + header.e_phoff + i * sizeof program, sizeof program);
    if (!is_inside(image, program.p_offset, program.p_filesz)) {
      return truncated(image, "segment", program.p_offset, program.p_filesz);
    }
  }
  const std::uint64_t sections = std::uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shnum != 0 &&
      (header.e_shentsize != sizeof(Elf64_Shdr) || !is_inside(image, header.e_shoff, sections))) {
    return truncated(image, "section table", header.e_shoff, sections);
  }
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image.data() + header.e_shoff + i * sizeof section, sizeof section);
    // Sections of NVIDIA's own types may reserve memory without having bytes in the file.
    const bool has_bytes = section.sh_type != SHT_NOBITS && section.sh_type < SHT_LOOS;
    if (has_bytes && !is_inside(image, section.sh_offset, section.sh_size)) {
      return truncated(image, "section", section.sh_offset, section.sh_size);
    }
  }
  return {};
}

int image_capability(ByteView image) noexcept {
  const auto header = elf_header(image);
  assert(header);
  return header ? sm_version(*header) : 0;
}

std::string image_compiler_release(ByteView image) {
  constexpr ByteView kBefore = "Cuda compilation tools, release ";
  const std::size_t at = image.find(kBefore);
  if (at == ByteView::npos) {
    return {};
  }
  const ByteView rest = image.substr(at + kBefore.size(), 16);
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789.")));
}

}  // namespace cukiln
