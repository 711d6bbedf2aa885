// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {

/// What a compile returns. The numbers are stored and never change.
enum class OutputKind : std::uint8_t { cubin = 0, ptx = 1, lto_ir = 2, optix_ir = 3 };
constexpr OutputKind last_of(OutputKind /*type*/) noexcept { return OutputKind::optix_ir; }

/// Returns `cubin`, `ptx`, `lto-ir` or `optix-ir`.
constexpr const char* name_of(OutputKind kind) noexcept {
  switch (kind) {
    case OutputKind::cubin: return "cubin";
    case OutputKind::ptx: return "ptx";
    case OutputKind::lto_ir: return "lto-ir";
    case OutputKind::optix_ir: return "optix-ir";
  }
  return "unknown";
}

}  // namespace cukiln
