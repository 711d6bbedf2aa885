// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cukiln/nvfp4.hpp>
#include <cukiln/nvfp4_moe.hpp>

/// Products of NVFP4 matrices on a CPU, with the formulas of <cukiln/nvfp4.hpp> and
/// <cukiln/nvfp4_moe.hpp>. Products within a block of 16 are exact, blocks are added in double: a
/// result is the rounded true one, and a row's does not depend on how many rows there are.
/// Arguments are trusted.
namespace cukiln::reference {

/// Pointers are the host's.
void gemm(std::uint16_t* output, const nvfp4::Matrix& a, const nvfp4::Matrix& b,
          const std::uint16_t* bias, std::int64_t m, std::int64_t n, std::int64_t k);

/// `rounds_products`: both products become bf16 before they are used, as by MoeGemm with many
/// tokens on sm_100a.
void moe_gemm(std::uint16_t* output, const nvfp4::MoeShape& shape, const nvfp4::MoeInput& input,
              const nvfp4::MoeWeights& up, const nvfp4::MoeWeights& down,
              const float* activation_gsa, nvfp4::GateUpLayout layout,
              const nvfp4::SwiGlu& activation, bool rounds_products = false);

}  // namespace cukiln::reference
