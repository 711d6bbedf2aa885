// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {

/// What a compile returns. The numbers are stored and never change. `failure` is the log of a
/// program that NVRTC refuses: no compile is asked for it, so no message has it.
enum class OutputKind : std::uint8_t { cubin = 0, ptx = 1, lto_ir = 2, optix_ir = 3, failure = 4 };
constexpr OutputKind last_of(OutputKind /*type*/) noexcept { return OutputKind::optix_ir; }

/// Returns `cubin`, `ptx`, `lto-ir`, `optix-ir` or `failure`.
constexpr const char* name_of(OutputKind kind) noexcept {
  switch (kind) {
    case OutputKind::cubin: return "cubin";
    case OutputKind::ptx: return "ptx";
    case OutputKind::lto_ir: return "lto-ir";
    case OutputKind::optix_ir: return "optix-ir";
    case OutputKind::failure: return "failure";
  }
  return "unknown";
}

}  // namespace cukiln
