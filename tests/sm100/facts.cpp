// SPDX-License-Identifier: Apache-2.0
// Prints, as JSON, what scripts/model-sm100 takes from the sources: the constants of each tile of
// the sm_100a GEMMs, and which kernel the launcher's plan selects.
//
// usage: facts SMS (M N)…
#include <cstdio>
#include <cstdlib>

#include "emulator/cuda.hpp"  // first
#include "kernels/nvfp4/sm100_plan.hpp"
#include "kernels_src/nvfp4/gemm_sm100_tile.cuh"

namespace {

using namespace cukiln::nvfp4;

template <class Tile>
void print(const Sm100Kernel& kernel) {
  std::printf(
      "%s{\"name\":\"%s\",\"columns\":%u,\"ctas\":%u,\"swapped\":%s,\"grouped\":%s,"
      "\"shared_bytes\":%zu,\"stages\":%u,\"stage_bytes\":%zu,\"stage_k\":%u,\"step_k\":%u,"
      "\"rows\":%u,\"store_columns\":%u,\"overlap\":%u,\"planned_stage_clocks\":%u,"
      "\"rows_shared\":%u}",
      &kernel == kSm100Kernels ? "" : ",", kernel.name, Tile::kColumns, Tile::kCtas,
      Tile::kSwapped ? "true" : "false", Tile::kGrouped ? "true" : "false",
      sizeof(typename Tile::Shared), Tile::kStages, sizeof(typename Tile::Stage), kStageBytes * 2,
      kStepBytes * 2, kTileRows * Tile::kCtas, kStoreColumns, Tile::kOverlap, kernel.stage_clocks,
      Tile::kRowsShared);
  // The plan's rows are of these tiles: gemm_cases.cpp of the emulator asserts the same.
  if (kernel.columns != Tile::kColumns || kernel.ctas != Tile::kCtas ||
      kernel.swapped != Tile::kSwapped || kernel.rows_shared != Tile::kRowsShared ||
      kernel.shared_bytes != sizeof(typename Tile::Shared)) {
    std::fprintf(stderr, "%s is not planned as its tile is\n", kernel.name);
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("{\"kernels\":[");
  print<Sm100Tile<128, 1, false, false>>(kSm100Kernels[0]);
  print<Sm100Tile<256, 1, false, false>>(kSm100Kernels[1]);
  print<Sm100Tile<256, 2, false, false>>(kSm100Kernels[2]);
  print<Sm100Tile<128, 2, false, false>>(kSm100Kernels[3]);
  print<Sm100Tile<256, 2, false, false, 2>>(kSm100Kernels[4]);
  print<Sm100Tile<64, 1, true, false>>(kSm100Kernels[5]);
  print<Sm100Tile<128, 1, false, true>>(kSm100Kernels[6]);
  print<Sm100Tile<256, 1, false, true>>(kSm100Kernels[7]);
  static_assert(std::size(kSm100Kernels) == 8 && kRasterRows == 16);  // as timing_model.py has it
  std::printf("],\"plan\":[");
  const long sms = argc > 1 ? std::atol(argv[1]) : 0;
  for (int i = 2; i + 1 < argc; i += 2) {
    std::printf("%s\"%s\"", i == 2 ? "" : ",",
                select_sm100(std::atol(argv[i]), std::atol(argv[i + 1]), sms).name);
  }
  std::printf("]}\n");
}
