// SPDX-License-Identifier: Apache-2.0
// Runs the decode GEMMs on the CPU, with rings that are passed three times, and compares them with
// a GEMM in double. usage: cases SEED, of the delays of loads. Exit code 0: all agree; 1: a wrong
// result; 2: the emulator found a broken rule.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "emulator/emulator.hpp"

#include "emulator/decode_device.hpp"
#include "emulator/tensor_box.hpp"
#include "gpu/support/nvfp4_gemm.hpp"

namespace {

using namespace cukiln;
using namespace cukiln::testing;
using emulator::Pages;

constexpr std::uint16_t kUntouched = 0x7FC1;
constexpr u32 kRing = 4 * 512;  // of K

bool agrees(const emulator::DecodeKernel& kernel, u32 m, u32 n, u32 k, bool constant_b, u32 seed) {
  std::mt19937 random(m * 7 + n * 3 + k);
  const HostMatrix a = random_matrix(m, k, random);
  const HostMatrix b = random_matrix(n, k, random);
  std::vector<std::uint16_t> bf16;
  for (const float value : a.values) {  // of six significant bits: exact
    bf16.push_back(static_cast<std::uint16_t>(__builtin_bit_cast(u32, value) >> 16));
  }
  const std::vector<std::uint16_t> bias = random_bias(n, random);
  const nvfp4::GlobalScale a_global{2, 0.5f};
  const nvfp4::GlobalScale b_global{0.8f, 1.25f};
  const Pages a_data(a.data), a_scales(a.scales), a_values(bf16);
  const Pages b_data(b.data), b_scales(b.scales), given_bias(bias);
  const Pages of_a(&a_global, sizeof a_global), of_b(&b_global, sizeof b_global);
  const Pages output(std::vector<std::uint16_t>(std::size_t{m} * n, kUntouched));

  TensorBox box;  // as sm90_launch.hpp has it
  box.data = b_data.as<std::uint8_t>();
  box.size[0] = box.stride[0] = k / 2;
  box.size[1] = n;
  box.box[0] = kernel.box_bytes;
  box.box[1] = kernel.rows;
  box.swizzled = true;
  const TensorMap map = emulator::encode(box);
  emulator::Grid grid{
      (n + kernel.rows - 1) / kernel.rows, 1, kernel.threads, kernel.shared_bytes, seed,
      {&a_data, &a_scales, &a_values}};
  grid.preceding.insert(grid.preceding.end(), {&of_a, &of_b, &output});
  grid.has_tmem = false;
  if (!constant_b) {
    grid.preceding.insert(grid.preceding.end(), {&b_data, &b_scales});
  }
  const emulator::DecodeArguments arguments{
      output.as<u16>(),
      kernel.is_w4a4 ? a_data.as<void>() : a_values.as<void>(),
      &map,
      a_scales.as<const u8>(),
      b_scales.as<const u8>(),
      of_a.as<const float>(),
      of_b.as<const float>(),
      given_bias.as<const u16>(),
      m,
      n,
      k,
      constant_b};
  emulator::launch(grid, [&] { kernel.run(arguments); });

  const double alpha = (kernel.is_w4a4 ? a_global.decode : 1.0) * b_global.decode;
  std::size_t wrong = 0;
  for (u32 row = 0; row < m; ++row) {
    for (u32 column = 0; column < n; ++column) {
      const std::uint16_t given = output.as<std::uint16_t>()[std::size_t{row} * n + column];
      const double added = float_of(bias[column]);
      wrong += is_dot_product(given, a, row, b, column, alpha, added) ? 0 : 1;
    }
  }
  std::printf("%s, %u tokens a block: m %u, n %u, k %u: %zu wrong\n",
              kernel.is_w4a4 ? "W4A4" : "W4A16", kernel.tokens, m, n, k, wrong);
  std::fflush(stdout);
  return wrong == 0;
}

}  // namespace

int main(int, char** argv) {
  const u32 seed = static_cast<u32>(std::stoul(argv[1]));
  const auto& [decode_8, decode_16, w4a4] = emulator::kDecodeKernels;
  bool good = agrees(decode_8, 5, 24, 3 * kRing, true, seed);
  good = agrees(decode_16, 13, 16, 3 * kRing + 32, false, seed) && good;
  good = agrees(w4a4, 8, 16, 3 * kRing - 32, true, seed) && good;
  return good ? 0 : 1;
}
