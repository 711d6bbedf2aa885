// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/nvfp4.hpp>

/// The quantisers of <cukiln/nvfp4.hpp> on a CPU: the same formulas, layouts and bytes. For tests
/// and for hosts without a GPU. Pointers are the host's; arguments are not checked.
namespace cukiln::reference {

struct GlobalScale {
  float encode;
  float decode;
};

/// bf16 [rows, columns] with `row_stride` elements between rows.
struct Bf16View {
  const std::uint16_t* data;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_stride;
};

GlobalScale amax_gsa(const Bf16View& input);

/// Packed data and scales as `nvfp4::Quantize` writes them, padding included.
void quantize(std::uint8_t* codes, std::uint8_t* scales, const Bf16View& input, GlobalScale gsa);

/// One value, computed in double, rounded to float and then to bf16. NaN stays NaN.
std::uint16_t swiglu(double gate, double up, const nvfp4::SwiGlu& activation) noexcept;

/// bf16 [rows, columns / 2] of a gate and an up matrix side by side, or in pairs; `output` dense.
void swiglu(std::uint16_t* output, const Bf16View& gate_up, nvfp4::GateUpLayout layout,
            const nvfp4::SwiGlu& activation);

/// [gate | up], dense, from either layout.
void deinterleave(std::uint16_t* output, const Bf16View& gate_up, nvfp4::GateUpLayout layout);

}  // namespace cukiln::reference
