// SPDX-License-Identifier: Apache-2.0
// Prints, as JSON, what scripts/model-sm100 takes from the sources: the constants of each tile of
// the sm_100a GEMMs, those of the machines, which tactic the launcher's plan selects, and its
// clocks by the plan's model.
//
// usage: facts SMS (M N K EXPERTS)…    EXPERTS is 0 for a GEMM that is not grouped
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "emulator/cuda.hpp"  // first
#include "kernels/nvfp4/moe_grouped.hpp"
#include "kernels/nvfp4/sm100_plan.hpp"
#include "kernels_src/nvfp4/gemm_sm100_tile.cuh"

namespace {

using namespace cukiln::nvfp4;

/// How many stages a tile in halves has together at the end; 0: it is not in halves.
template <class Tile>
constexpr std::uint32_t together_of() {
  if constexpr (Tile::kInHalves) {
    return Tile::kTogether;
  }
  return 0;
}

/// `shared_bytes` of a launch, `stage_bytes` that a stage loads.
template <class Tile>
void print(const Sm100Kernel& kernel, std::size_t shared_bytes, std::size_t stage_bytes,
           std::uint32_t store_columns) {
  std::printf(
      "{\"name\":\"%s\",\"columns\":%u,\"ctas\":%u,\"swapped\":%s,\"grouped\":%s,"
      "\"shared_bytes\":%zu,\"stages\":%u,\"stage_bytes\":%zu,\"stage_k\":%u,\"step_k\":%u,"
      "\"rows\":%u,\"store_columns\":%u,\"overlap\":%u,\"rows_shared\":%u,"
      "\"columns_shared\":%u,\"max_splits\":%u,\"together\":%u}",
      kernel.name, Tile::kColumns, Tile::kCtas, Tile::kSwapped ? "true" : "false",
      Tile::kGrouped ? "true" : "false", shared_bytes, Tile::kStages, stage_bytes, kStageBytes * 2,
      kStepBytes * 2, Tile::kRows * Tile::kCtas, store_columns, Tile::kOverlap, Tile::kRowsShared,
      Tile::kColumnsShared, kernel.max_splits, together_of<Tile>());
  // The plan's rows are of these tiles: gemm_cases.cpp of the emulator asserts the same.
  if (kernel.columns != Tile::kColumns || kernel.ctas != Tile::kCtas ||
      kernel.swapped != Tile::kSwapped || kernel.rows_shared != Tile::kRowsShared ||
      kernel.columns_shared != Tile::kColumnsShared || kernel.rows != Tile::kRows ||
      kernel.shared_bytes != shared_bytes) {
    std::fprintf(stderr, "%s is not planned as its tile is\n", kernel.name);
    std::exit(1);
  }
}

template <class Tile>
void print(std::size_t index) {
  const Sm100TileModel& model = kSm100Models[index];
  using Stage = typename Tile::Stage;
  const std::size_t scale_bytes = sizeof(Stage::row_scales) + sizeof(Stage::column_scales);
  std::printf("%s", index == 0 ? "" : ",");
  print<Tile>(kSm100Kernels[index], sizeof(typename Tile::Shared), sizeof(Stage), Tile::kChunk);
  if (model.stages != Tile::kStages || model.scale_bytes != scale_bytes ||
      model.overlap != (Tile::kOverlap != 0) || model.together != together_of<Tile>()) {
    std::fprintf(stderr, "%s is not modelled as its tile is: %u stages, %u expected\n",
                 kSm100Kernels[index].name, model.stages, Tile::kStages);
    std::exit(1);
  }
}

/// Of moe_grouped_up, which no plan selects. A third atom of scales is loaded only where the second
/// box straddles two.
void print_grouped_up() {
  using Shared = GateUpTile::Shared;
  print<GateUpTile>(kMoeGroupedUp, offsetof(Shared, control) + sizeof(Shared::control),
                    sizeof(GateUpTile::Stage) - kSteps * kAtomBytes, kStoreColumns);
}

void print(const char* name, const Sm100Machine& machine) {
  std::printf(
      "\"%s\":{\"ghz\":%.17g,\"mma_rate\":%.17g,\"shared\":%.17g,\"memory\":%.17g,\"l2\":%.17g,"
      "\"ingress\":%.17g,\"multicast\":%.17g,\"in_flight\":%.17g,\"l2_latency\":%.17g,"
      "\"memory_latency\":%.17g,\"producer\":%.17g,"
      "\"stage\":%.17g,\"issue\":%.17g,\"wake\":%.17g,\"mma_latency\":%.17g,\"chunk\":%.17g,"
      "\"read\":%.17g,"
      "\"setup\":%.17g,"
      "\"drain\":%.17g,\"meet\":%.17g,\"swapped_setup\":%.17g,"
      "\"swapped_epilogue\":%.17g,\"swapped_column\":%.17g,"
      "\"swapped_drain\":%.17g,\"split\":%.17g,\"dsmem\":%.17g,\"launch_us\":%.17g}",
      name, machine.ghz, machine.mma_rate, machine.shared, machine.memory, machine.l2,
      machine.ingress, machine.multicast, machine.in_flight, machine.l2_latency,
      machine.memory_latency, machine.producer, machine.stage, machine.issue, machine.wake,
      machine.mma_latency, machine.chunk, machine.read, machine.setup, machine.drain, machine.meet,
      machine.swapped_setup, machine.swapped_epilogue, machine.swapped_column,
      machine.swapped_drain, machine.split, machine.dsmem, machine.launch_us);
  // A member that is new and not printed would have no source.
  static_assert(sizeof machine == 27 * sizeof(double));
}

void print(const Sm100Shape& shape, bool grouped) {
  const GemmTactic tactic = grouped ? fastest_sm100(kSm100Grouped, std::size(kSm100Kernels), shape)
                                    : select_sm100(shape.m, shape.n, shape.k, shape.num_sms);
  const auto us = [&](const Sm100Machine& machine) {
    return sm100_us(kSm100Models[tactic.tile], tactic.splits, shape, machine);
  };
  std::printf("{\"kernel\":\"%s\",\"splits\":%u,\"us\":{\"published\":%.6g,\"h100\":%.6g}}",
              kSm100Kernels[tactic.tile].name, tactic.splits, us(kSm100AsPublished),
              us(kSm100AsH100));
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("{\"kernels\":[");
  print<Sm100Tile<128, 1, false, false>>(0);
  print<Sm100Tile<256, 1, false, false>>(1);
  print<Sm100Tile<256, 2, false, false>>(2);
  print<Sm100Tile<128, 2, false, false>>(3);
  print<Sm100Tile<256, 2, false, false, 2>>(4);
  print<Sm100Tile<192, 2, false, false, 2>>(5);
  print<Sm100Tile<128, 2, false, false, 2>>(6);
  print<Sm100Tile<256, 2, false, false, 2, 128, 2>>(7);
  print<Sm100Tile<192, 2, false, false, 2, 128, 2>>(8);
  print<Sm100Tile<16, 1, true, false>>(9);
  print<Sm100Tile<32, 1, true, false>>(10);
  print<Sm100Tile<64, 1, true, false>>(11);
  print<Sm100Tile<128, 1, true, false>>(12);
  print<Sm100Tile<256, 1, true, false>>(13);
  print<Sm100Tile<64, 1, true, false, 1, 64>>(14);
  print<Sm100Tile<128, 1, false, true>>(15);
  print<Sm100Tile<256, 1, false, true>>(16);
  static_assert(std::size(kSm100Kernels) == 17);
  static_assert(kRasterRows == kSm100RasterRows && kRasterRows == 16);  // as timing_model.py has it
  std::printf("],\"grouped_up\":");
  print_grouped_up();
  std::printf(",\"splits\":[");
  for (const std::uint32_t& splits : kSm100Splits) {
    std::printf("%s%u", &splits == kSm100Splits ? "" : ",", splits);
  }
  std::printf("],\"machines\":{");
  print("published", kSm100AsPublished);
  std::printf(",");
  print("h100", kSm100AsH100);
  std::printf("},\"plan\":[");
  const long sms = argc > 1 ? std::atol(argv[1]) : 0;
  for (int i = 2; i + 3 < argc; i += 4) {
    std::printf("%s", i == 2 ? "" : ",");
    const long experts = std::atol(argv[i + 3]);
    print({std::atol(argv[i]), std::atol(argv[i + 1]), std::atol(argv[i + 2]), sms,
           std::max(experts, 1l)},
          experts > 0);
  }
  std::printf("]}\n");
}
