// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/nvfp4/moe.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

/// NVFP4 GEMMs on a CPU, with the formulas of <cukiln/nvfp4/nvfp4.hpp> and <cukiln/nvfp4/moe.hpp>.
/// The dot product of a block of 16 is exact, and blocks are summed in double: a result is the
/// exact value rounded once, and does not depend on the number of rows. Views are of host memory.
/// Arguments are not checked.
namespace cukiln::reference {

/// Computes A · Bᵀ + bias; `bias` may be absent.
void gemm(const MutableMatrixView& output, const nvfp4::QuantizedMatrix& a,
          const nvfp4::QuantizedMatrix& b, const VectorView& bias = {});

/// The same for an A that is not quantised, bf16 [m, k], summed in double.
void gemm(const MutableMatrixView& output, const MatrixView& a, const nvfp4::QuantizedMatrix& b,
          const VectorView& bias = {});

/// `rounds_gemms`: the results of both GEMMs are rounded to bf16 before they are used, as MoeGemm
/// does with many tokens on sm_100a. W4A16 (a layer without activation_scale): those of the second.
void moe_gemm(const MutableMatrixView& output, const nvfp4::MoeInput& input,
              const nvfp4::MoeLayer& layer, bool rounds_gemms = false);

}  // namespace cukiln::reference
