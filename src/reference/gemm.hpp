// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/nvfp4.hpp>
#include <cukiln/nvfp4_moe.hpp>

/// NVFP4 GEMMs on a CPU, with the formulas of <cukiln/nvfp4.hpp> and <cukiln/nvfp4_moe.hpp>. The
/// dot product of a block of 16 is exact, and blocks are summed in double: a result is the exact
/// value rounded once, and does not depend on the number of rows. Pointers are the host's;
/// arguments are not checked.
namespace cukiln::reference {

/// bf16 [m, n] = A · Bᵀ + bias; `bias` may be null.
void gemm(std::uint16_t* output, const nvfp4::Matrix& a, const nvfp4::Matrix& b,
          const std::uint16_t* bias, std::int64_t m, std::int64_t n, std::int64_t k);

/// `rounds_products`: the results of both GEMMs are rounded to bf16 before they are used, as
/// MoeGemm does with many tokens on sm_100a.
void moe_gemm(std::uint16_t* output, const nvfp4::MoeShape& shape, const nvfp4::MoeInput& input,
              const nvfp4::MoeWeights& up, const nvfp4::MoeWeights& down,
              const float* activation_gsa, nvfp4::GateUpLayout layout,
              const nvfp4::SwiGlu& activation, bool rounds_products = false);

}  // namespace cukiln::reference
