// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/nvfp4/nvfp4.hpp>

/// The quantisers of <cukiln/nvfp4/nvfp4.hpp> on a CPU: the same formulas, layouts and bytes. For
/// tests and for hosts without a GPU. Views are of host memory. Arguments are not checked.
namespace cukiln::reference {

nvfp4::GlobalScale compute_global_scale(const MatrixView& input,
                                        float divisor = nvfp4::kMaxDivisor);

/// Writes packed data and block scales as `nvfp4::Quantize` does, padding included. Reads
/// `*output.global_scale`.
void quantize(const nvfp4::MutableQuantizedMatrix& output, const MatrixView& input);

/// Computes one value in double, and rounds it to float and then to bf16. NaN stays NaN.
std::uint16_t swiglu(double gate, double up, const nvfp4::SwiGlu& activation) noexcept;

/// Writes bf16 [rows, columns / 2] of a gate and an up matrix that are one input; `output` dense.
void swiglu(const MutableMatrixView& output, const MatrixView& gate_up, nvfp4::GateUpLayout layout,
            const nvfp4::SwiGlu& activation);

/// Writes [gate | up] from either layout; `output` dense.
void deinterleave(const MutableMatrixView& output, const MatrixView& gate_up,
                  nvfp4::GateUpLayout layout);

}  // namespace cukiln::reference
