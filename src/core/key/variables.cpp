// SPDX-License-Identifier: Apache-2.0
#include "core/key/variables.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

#include "core/base/elf_image.hpp"

namespace cukiln {

namespace {

// In place of a number of registers, of which a kernel has at most 255: the entry is a variable.
constexpr std::uint32_t kVariableMark = std::numeric_limits<std::uint32_t>::max();
// In place of spill_bytes.
constexpr std::uint32_t kIsGlobal = 0;
constexpr std::uint32_t kIsConstant = 1;

void mark(const ElfImage& image, const Elf64_Shdr& table, const Elf64_Sym& symbol,
          std::vector<KernelInfo>& symbols) {
  const std::string_view name = image.text(table.sh_link, symbol.st_name);
  if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || name.empty()) {
    return;
  }
  const bool is_constant = image.section_name(symbol.st_shndx).starts_with(".nv.constant");
  for (KernelInfo& known : symbols) {
    if (known.lowered == name && known.registers == 0) {
      known.registers = kVariableMark;
      known.shared_bytes = static_cast<std::uint32_t>(symbol.st_size);
      known.local_bytes = static_cast<std::uint32_t>(symbol.st_size >> 32);
      known.spill_bytes = is_constant ? kIsConstant : kIsGlobal;
    }
  }
}

}  // namespace

void mark_variables(ByteView image, std::vector<KernelInfo>& symbols) {
  // ptxas reports the registers of every kernel.
  if (std::none_of(symbols.begin(), symbols.end(),
                   [](const KernelInfo& one) { return one.registers == 0; })) {
    return;
  }
  const ElfImage elf(image);
  for (const Elf64_Shdr& table : elf.sections()) {
    if (table.sh_type != SHT_SYMTAB) {
      continue;
    }
    const std::uint64_t count =
        std::min<std::uint64_t>(table.sh_size, image.size()) / sizeof(Elf64_Sym);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto symbol = elf.at<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym));
      if (!symbol) {
        break;
      }
      mark(elf, table, *symbol, symbols);
    }
  }
}

bool is_variable(const KernelInfo& symbol) noexcept { return symbol.registers == kVariableMark; }

std::vector<KernelInfo> kernels_among(const std::vector<KernelInfo>& symbols) {
  std::vector<KernelInfo> kernels;
  std::copy_if(symbols.begin(), symbols.end(), std::back_inserter(kernels),
               [](const KernelInfo& one) { return !is_variable(one); });
  return kernels;
}

std::vector<VariableInfo> variables_among(const std::vector<KernelInfo>& symbols) {
  std::vector<VariableInfo> variables;
  for (const KernelInfo& one : symbols) {
    if (is_variable(one)) {
      variables.push_back({one.name, one.lowered,
                           one.shared_bytes | std::uint64_t{one.local_bytes} << 32,
                           one.spill_bytes == kIsConstant});
    }
  }
  return variables;
}

}  // namespace cukiln
