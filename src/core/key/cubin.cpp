// SPDX-License-Identifier: Apache-2.0
#include "core/key/cubin.hpp"

#include <ar.h>

#include <algorithm>
#include <charconv>

#include "core/base/elf_image.hpp"
#include "core/base/result.hpp"
#include "core/base/serial.hpp"

namespace cukiln {

namespace {

DeviceCode device_code_in_object(ByteView image) {
  const auto header = elf_header(image);
  if (!header) {
    return DeviceCode::relocatable;
  }
  if (header->e_machine == EM_CUDA) {
    return header->e_type == ET_EXEC ? DeviceCode::executable : DeviceCode::relocatable;
  }
  const ElfImage elf(image);
  if (elf.sections().empty() || elf.sections().size() != header->e_shnum) {
    return DeviceCode::relocatable;
  }
  DeviceCode found = DeviceCode::none;
  for (std::size_t i = 0; i < elf.sections().size(); ++i) {
    if (elf.section_name(i) == "__nv_relfatbin") {
      return DeviceCode::relocatable;
    }
    found = elf.section_name(i) == ".nv_fatbin" ? DeviceCode::executable : found;
  }
  return found;
}

}  // namespace

Result<void> check_image(ByteView image, Target target) {
  if (image.size() < sizeof(Elf64_Ehdr)) {
    return make_error(ErrorCode::corrupt, "{} bytes are not a cubin: expected an ELF file",
                      image.size());
  }
  const auto header = elf_header(image);
  if (!header || header->e_ident[EI_CLASS] != ELFCLASS64) {
    return make_error(ErrorCode::corrupt,
                      "the image is not a cubin: expected the header of a 64-bit ELF file");
  }
  if (header->e_machine != EM_CUDA) {
    return make_error(ErrorCode::corrupt,
                      "the image is an ELF file for machine {}, expected {} (CUDA)",
                      header->e_machine, EM_CUDA);
  }
  const std::uint64_t sections_end =
      header->e_shoff + std::uint64_t{header->e_shnum} * header->e_shentsize;
  if (header->e_shoff > image.size() || sections_end > image.size()) {
    return make_error(ErrorCode::corrupt,
                      "the cubin is truncated: its section table ends at byte {}, the image has {}",
                      sections_end, image.size());
  }
  const int sm = sm_version(*header);
  if (sm != target.capability) {
    return make_error(ErrorCode::incompatible, "the cubin is for sm_{}, expected {}", sm,
                      target.name());
  }
  return {};
}

DeviceCode device_code_in(ByteView image) {
  if (!image.starts_with(ByteView(ARMAG, SARMAG))) {
    return device_code_in_object(image);
  }
  DeviceCode found = DeviceCode::none;
  std::uint64_t at = SARMAG;
  while (const auto header = read_at<ar_hdr>(image, at)) {
    const ByteView name(header->ar_name, sizeof header->ar_name);
    const char* const digits_end = header->ar_size + sizeof header->ar_size;
    std::uint64_t size = 0;
    if (std::from_chars(header->ar_size, digits_end, size).ec != std::errc()) {
      return DeviceCode::relocatable;
    }
    const bool is_table = name.starts_with("/ ") || name.starts_with("//") ||
                          name.starts_with("/SYM64/");  // of symbols, of long names
    if (!is_table) {
      found = std::max(found, device_code_in_object(image.substr(at + sizeof(ar_hdr), size)));
    }
    at += sizeof(ar_hdr) + size + size % 2;
  }
  return found;
}

Result<void> check_output(ByteView image, Target target, OutputKind kind) {
  constexpr std::string_view kContainer = "\xed\x43\x4e\x7f";  // of NVRTC 12.8 to 13.5
  switch (kind) {
    case OutputKind::cubin: return check_image(image, target);
    case OutputKind::ptx:
      if (image.find("\n.version ") == ByteView::npos || image.find('\0') != ByteView::npos) {
        return make_error(ErrorCode::corrupt, "{} bytes are not PTX: expected text with .version",
                          image.size());
      }
      return {};
    case OutputKind::lto_ir:
    case OutputKind::optix_ir:
      if (image.substr(0, kContainer.size()) != kContainer) {
        return make_error(ErrorCode::corrupt, "{} bytes are not {}: expected a container of NVVM",
                          image.size(), name_of(kind));
      }
      return {};
    case OutputKind::failure:
      return image.empty() ? make_error(ErrorCode::corrupt, "a failure has no log")
                           : Result<void>();
  }
  return make_error(ErrorCode::corrupt, "an output of an unknown kind");
}

std::string encode_kernels(const std::vector<KernelInfo>& kernels) {
  SerialWriter out;
  out.u32(static_cast<std::uint32_t>(kernels.size()));
  for (const auto& [name, lowered, registers, shared_bytes, local_bytes, spill_bytes] : kernels) {
    out.bytes(name).bytes(lowered);
    out.u32(registers).u32(shared_bytes).u32(local_bytes).u32(spill_bytes);
  }
  return out.take();
}

Result<std::vector<KernelInfo>> decode_kernels(ByteView bytes) {
  SerialReader in(bytes);
  const std::uint32_t count = in.u32();
  std::vector<KernelInfo> kernels;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    KernelInfo kernel;
    kernel.name = in.bytes();
    kernel.lowered = in.bytes();
    kernel.registers = in.u32();
    kernel.shared_bytes = in.u32();
    kernel.local_bytes = in.u32();
    kernel.spill_bytes = in.u32();
    kernels.push_back(std::move(kernel));
  }
  if (!in.at_end()) {
    return make_error(ErrorCode::corrupt,
                      "the stored kernel list of {} bytes cannot be decoded: it is damaged",
                      bytes.size());
  }
  return kernels;
}

}  // namespace cukiln
