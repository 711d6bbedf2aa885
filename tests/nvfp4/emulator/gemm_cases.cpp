// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of nvfp4_gemm.cu on the CPU and compares them with a GEMM in double.
// usage: cases [--seed N] [NAME]
// Without a name: every case; else those whose name contains it. The seed is that of the delays of
// loads and MMAs; with 0 they are performed when they are issued. Exit code 0: all agree; 1: a
// wrong result; 2: the emulator found a broken rule.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/emulator.hpp"
#include "emulator/kernels.hpp"
#include "emulator/tensor_box.hpp"
#include "gpu/support/nvfp4_gemm.hpp"
#include "kernels_src/nvfp4/gemm_sm100_tile.cuh"
#include "nvfp4/host/sm100_plan.hpp"

namespace {

using namespace cukiln;
using namespace cukiln::testing;
using nvfp4::Sm100Kernel;

// A kernel that is not grouped.
struct Plain {
  GemmKernel* kernel = nullptr;
  SwappedGemmKernel* swapped = nullptr;
  Plain(std::nullptr_t) {}
  Plain(GemmKernel* of) : kernel(of) {}
  Plain(SwappedGemmKernel* of) : swapped(of) {}
};

struct Case {
  std::int64_t m, n, k;
  int num_sms;  // few, so that a CTA computes several tiles
  bool bias;
  const Sm100Kernel* kernel;
  Plain run = nullptr;
  GroupedGemmKernel* run_grouped = nullptr;
  std::vector<int> experts = {};  // of each 128 rows; grouped only
  bool constant_b = true;         // not of grouped ones
  u32 splits = 1;                 // of K
  u32 row_tiles = 0;              // that there are; 0: all
  bool scale_of_rows = false;     // A's, else of experts; grouped only
  bool cancels = false;           // sums of K are 0 if they are added up in order, see below
};
constexpr int kExperts = 3;

constexpr const Sm100Kernel* kernel_named(std::string_view name) {
  const Sm100Kernel* found = std::begin(nvfp4::kSm100Kernels);
  while (found->name != name) {
    ++found;
  }
  return found;
}

constexpr const Sm100Kernel* k128x128 = kernel_named("nvfp4_gemm_128x128");
constexpr const Sm100Kernel* k128x256 = kernel_named("nvfp4_gemm_128x256");
constexpr const Sm100Kernel* k256x256 = kernel_named("nvfp4_gemm_256x256");
constexpr const Sm100Kernel* k256x128 = kernel_named("nvfp4_gemm_256x128");
constexpr const Sm100Kernel* k256x256x2 = kernel_named("nvfp4_gemm_256x256_x2");
constexpr const Sm100Kernel* k256x192x2 = kernel_named("nvfp4_gemm_256x192_x2");
constexpr const Sm100Kernel* k256x128x2 = kernel_named("nvfp4_gemm_256x128_x2");
constexpr const Sm100Kernel* k256x256x4 = kernel_named("nvfp4_gemm_256x256_x4");
constexpr const Sm100Kernel* k256x192x4 = kernel_named("nvfp4_gemm_256x192_x4");
constexpr const Sm100Kernel* kSwapped16 = kernel_named("nvfp4_gemm_swapped_16");
constexpr const Sm100Kernel* kSwapped32 = kernel_named("nvfp4_gemm_swapped_32");
constexpr const Sm100Kernel* kSwapped64 = kernel_named("nvfp4_gemm_swapped_64");
constexpr const Sm100Kernel* kSwapped128 = kernel_named("nvfp4_gemm_swapped_128");
constexpr const Sm100Kernel* kSwapped256 = kernel_named("nvfp4_gemm_swapped_256");
constexpr const Sm100Kernel* kHalf64 = kernel_named("nvfp4_gemm_swapped_64_half");
constexpr const Sm100Kernel* kGrouped128 = kernel_named("nvfp4_gemm_grouped_128x128");
constexpr const Sm100Kernel* kGrouped256 = kernel_named("nvfp4_gemm_grouped_128x256");

template <class Tile>
constexpr bool is_planned(const Sm100Kernel& kernel) {
  return kernel.columns == Tile::kColumns && kernel.ctas == Tile::kCtas &&
         kernel.swapped == Tile::kSwapped && kernel.rows_shared == Tile::kRowsShared &&
         kernel.columns_shared == Tile::kColumnsShared && kernel.rows == Tile::kRows &&
         kernel.shared_bytes == sizeof(typename Tile::Shared);
}
static_assert(nvfp4::kSm100BlockThreads == nvfp4::kSm100Threads);
static_assert(nvfp4::kSm100StageK == nvfp4::kStageBytes * 2);
static_assert(*(std::end(nvfp4::kSm100Splits) - 1) == nvfp4::kMaxSplits);
static_assert(is_planned<nvfp4::Sm100Tile<256, 2, false, false>>(*k256x256));
static_assert(is_planned<nvfp4::Sm100Tile<256, 2, false, false, 2>>(*k256x256x2));
static_assert(is_planned<nvfp4::Sm100Tile<192, 2, false, false, 2>>(*k256x192x2));
static_assert(is_planned<nvfp4::Sm100Tile<128, 2, false, false, 2>>(*k256x128x2));
static_assert(is_planned<nvfp4::Sm100Tile<256, 2, false, false, 2, 128, 2>>(*k256x256x4));
static_assert(is_planned<nvfp4::Sm100Tile<192, 2, false, false, 2, 128, 2>>(*k256x192x4));
static_assert(is_planned<nvfp4::Sm100Tile<128, 2, false, false>>(*k256x128));
static_assert(is_planned<nvfp4::Sm100Tile<256, 1, false, false>>(*k128x256));
static_assert(is_planned<nvfp4::Sm100Tile<128, 1, false, false>>(*k128x128));
static_assert(is_planned<nvfp4::Sm100Tile<16, 1, true, false>>(*kSwapped16));
static_assert(is_planned<nvfp4::Sm100Tile<32, 1, true, false>>(*kSwapped32));
static_assert(is_planned<nvfp4::Sm100Tile<64, 1, true, false>>(*kSwapped64));
static_assert(is_planned<nvfp4::Sm100Tile<128, 1, true, false>>(*kSwapped128));
static_assert(is_planned<nvfp4::Sm100Tile<256, 1, true, false>>(*kSwapped256));
static_assert(is_planned<nvfp4::Sm100Tile<64, 1, true, false, 1, 64>>(*kHalf64));
static_assert(is_planned<nvfp4::Sm100Tile<128, 1, false, true>>(*kGrouped128));
static_assert(is_planned<nvfp4::Sm100Tile<256, 1, false, true>>(*kGrouped256));

Case split(Case of, u32 splits) {
  of.splits = splits;
  return of;
}

// Only the first three row tiles are there.
Case count_of_three(Case of) {
  of.row_tiles = 3;
  return of;
}

Case scale_of_rows(Case of) {
  of.scale_of_rows = true;
  return of;
}

// Of three stages of K, one for each part, the first has sums of 2^-4, the second of some 2^25 and
// the third their negatives: floats that are added up in this order are 0, and in another 2^-4.
Case cancels(Case of) {
  of.cancels = true;
  of.splits = 3;
  return of;
}

const Case kCases[] = {
    {128, 128, 256, 1, false, k128x128, nvfp4_gemm_128x128},
    {130, 136, 96, 1, true, k128x128, nvfp4_gemm_128x128},
    {300, 264, 576, 2, true, k128x128, nvfp4_gemm_128x128},
    {257, 384, 1600, 1, false, k128x128, nvfp4_gemm_128x128},
    {200, 520, 320, 1, true, k128x256, nvfp4_gemm_128x256},
    {384, 256, 1120, 1, false, k128x256, nvfp4_gemm_128x256},
    {300, 600, 320, 2, true, k256x256, nvfp4_gemm_256x256},
    {512, 256, 1600, 2, false, k256x256, nvfp4_gemm_256x256},
    {300, 328, 320, 2, true, k256x128, nvfp4_gemm_256x128},
    {257, 392, 1856, 2, false, k256x128, nvfp4_gemm_256x128},
    {300, 264, 320, 4, true, k256x256x2, nvfp4_gemm_256x256_x2},  // the second tile has 8 columns
    {513, 600, 608, 4, false, k256x256x2,
     nvfp4_gemm_256x256_x2},  // and is empty in half of the clusters
    {256, 256, 1600, 8, false, k256x256x2, nvfp4_gemm_256x256_x2},
    // The second and fourth tiles begin in the middle of an atom of scales; the fourth has 8
    // columns.
    {300, 584, 320, 4, true, k256x192x2, nvfp4_gemm_256x192_x2},
    {257, 384, 1376, 4, false, k256x192x2, nvfp4_gemm_256x192_x2},
    {300, 264, 352, 4, true, k256x128x2, nvfp4_gemm_256x128_x2},
    // Two by two tiles: those below have 44 rows, those on the right 8 columns.
    {300, 264, 320, 8, true, k256x256x4, nvfp4_gemm_256x256_x4},
    {512, 512, 1600, 8, false, k256x256x4, nvfp4_gemm_256x256_x4},
    // Four tiles of two stages of K each, and three of three.
    {260, 1544, 352, 8, true, k256x256x4, nvfp4_gemm_256x256_x4},
    {270, 1032, 608, 8, false, k256x256x4, nvfp4_gemm_256x256_x4},
    // Half of the clusters have no tiles below, and half none on the right.
    {520, 776, 608, 8, false, k256x192x4, nvfp4_gemm_256x192_x4},
    {1, 8, 32, 1, true, kSwapped16, nvfp4_gemm_swapped_16},
    {13, 392, 2592, 1, true, kSwapped16, nvfp4_gemm_swapped_16},
    {29, 264, 2400, 1, true, kSwapped32, nvfp4_gemm_swapped_32},
    {17, 264, 608, 1, true, kSwapped64, nvfp4_gemm_swapped_64},
    {64, 256, 1856, 1, false, kSwapped64, nvfp4_gemm_swapped_64},
    {210, 264, 608, 1, true, kSwapped64, nvfp4_gemm_swapped_64},
    {150, 264, 352, 1, true, kSwapped128, nvfp4_gemm_swapped_128},
    {300, 136, 864, 1, true, kSwapped256, nvfp4_gemm_swapped_256},
    {17, 328, 608, 1, true, kHalf64, nvfp4_gemm_swapped_64_half},  // the last tile has 8 rows
    {130, 200, 1888, 2, false, kHalf64, nvfp4_gemm_swapped_64_half},
    split({5, 264, 2016, 1, true, kSwapped16, nvfp4_gemm_swapped_16}, 2),
    split({16, 136, 2048, 1, false, kSwapped16, nvfp4_gemm_swapped_16}, 6),
    split({6, 136, 1120, 1, true, kSwapped16, nvfp4_gemm_swapped_16}, 5),  // a stage for each part
    split({7, 136, 2848, 1, true, kSwapped16, nvfp4_gemm_swapped_16}, 7),
    // Two whole stages: the third CTA has none.
    split({4, 136, 512, 1, true, kSwapped16, nvfp4_gemm_swapped_16}, 3),
    split({29, 136, 2400, 1, true, kSwapped32, nvfp4_gemm_swapped_32}, 8),
    split({70, 264, 608, 1, true, kSwapped64, nvfp4_gemm_swapped_64}, 4),
    split({150, 128, 1120, 1, false, kSwapped128, nvfp4_gemm_swapped_128}, 3),
    split({150, 136, 1376, 1, true, kSwapped256, nvfp4_gemm_swapped_256}, 4),
    split({33, 232, 1184, 1, true, kHalf64, nvfp4_gemm_swapped_64_half}, 4),
    {640, 128, 352, 2, true, kGrouped128, nullptr, nvfp4_gemm_grouped_128x128, {2, 0, -1, 0, 1}},
    {512, 384, 288, 1, true, kGrouped256, nullptr, nvfp4_gemm_grouped_128x256, {0, -1, -1, 2}},
    {96, 136, 1600, 1, true, k128x128, nvfp4_gemm_128x128, nullptr, {}, false},
    {160, 256, 320, 2, false, k256x256, nvfp4_gemm_256x256, nullptr, {}, false},
    {5, 264, 608, 1, true, kSwapped64, nvfp4_gemm_swapped_64, nullptr, {}, false},
    split({13, 136, 2336, 1, true, kSwapped16, nvfp4_gemm_swapped_16, nullptr, {}, false}, 3),
    count_of_three(
        {500, 256, 96, 2, false, kGrouped128, nullptr, nvfp4_gemm_grouped_128x128, {1, 0, 2, 0}}),
    scale_of_rows(
        {300, 256, 96, 1, true, kGrouped256, nullptr, nvfp4_gemm_grouped_128x256, {0, 2, 1}}),
    {2250, 136, 32, 2, true, k128x128, nvfp4_gemm_128x128},  // two groups of the raster
    cancels({15, 136, 768, 1, false, kSwapped16, nvfp4_gemm_swapped_16}),
};

HostMatrix cancelling_matrix(std::int64_t rows, std::int64_t k, bool is_a, std::mt19937& random) {
  HostMatrix made = random_matrix(rows, k, random);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < k; i += 2) {
      const std::int64_t stage = i / nvfp4::kSm100StageK;
      made.data[static_cast<std::size_t>(row * k + i) / 2] = is_a && stage == 2 ? 0xAA : 0x22;
      const auto block = static_cast<std::size_t>(i / 16);
      made.scales[nvfp4::scale_offset(static_cast<std::size_t>(row), block,
                                      static_cast<std::size_t>(k))] = stage == 0 ? 0x08 : 0x7E;
    }
  }
  return made;
}

std::string name_of(const Case& c) {
  return std::string(c.kernel->name) + " m " + std::to_string(c.m) + ", n " + std::to_string(c.n) +
         ", k " + std::to_string(c.k) + (c.bias ? ", bias" : "") +
         (c.splits == 1 ? "" : ", splits " + std::to_string(c.splits)) +
         (c.constant_b ? "" : ", b not constant") + (c.scale_of_rows ? ", scale of rows" : "") +
         (c.cancels ? ", cancels" : "");
}

bool agrees(const Case& c, u32 seed) {
  std::mt19937 random(static_cast<unsigned>(c.m * 7 + c.n * 3 + c.k));
  const auto matrix = [&](std::int64_t rows, bool is_a) {
    return c.cancels ? cancelling_matrix(rows, c.k, is_a, random)
                     : random_matrix(rows, c.k, random);
  };
  const HostMatrix a = matrix(c.m, true);
  const bool grouped = c.run_grouped != nullptr;
  const bool early = c.constant_b && !grouped;  // B may be loaded before the wait
  const std::int64_t experts = grouped ? kExperts : 1;
  const HostMatrix b = matrix(c.n * experts, false);
  std::vector<nvfp4::GlobalScale> a_scales = {{2, 0.5f}, {1, 0.75f}, {9, 2}};
  for (std::int64_t row = kExperts; c.scale_of_rows && row < c.m; ++row) {
    a_scales.push_back({5, 0.25f + static_cast<float>(row) / 256});
  }
  const nvfp4::GlobalScale b_scales[kExperts] = {{0.8f, 1.25f}, {7, 3}, {5, 0.375f}};
  const std::vector<std::uint16_t> bias = random_bias(c.n * experts, random);
  // A frame around D shows a store that misses it.
  constexpr std::size_t kFrame = 64;
  constexpr std::uint16_t kUntouched = 0x7FC1;
  const std::size_t frame_size = static_cast<std::size_t>(c.m * c.n) + 2 * kFrame;
  const emulator::Pages frame_pages(std::vector<std::uint16_t>(frame_size, kUntouched));
  auto* const frame = frame_pages.as<std::uint16_t>();
  std::uint16_t* const d = frame + kFrame;

  using emulator::Pages;
  const Pages a_data(a.data), a_blocks(a.scales), b_data(b.data), b_blocks(b.scales);
  const Pages a_global(a_scales), b_global(b_scales, sizeof b_scales);
  const Pages given_bias(bias), given_experts(c.experts), given_count(&c.row_tiles, sizeof(u32));
  const auto view = [](const HostMatrix& of, const Pages& data, const Pages& blocks) {
    return nvfp4::QuantizedMatrix{data.as<std::uint8_t>(), blocks.as<std::uint8_t>(), nullptr,
                                  of.rows, of.k};
  };
  const nvfp4::Sm100Plan plan = plan_sm100(*c.kernel, view(a, a_data, a_blocks),
                                           view(b, b_data, b_blocks), d, c.n, c.num_sms, c.splits);
  const TensorMap maps[] = {emulator::encode(plan.rows), emulator::encode(plan.columns),
                            emulator::encode(plan.row_scales), emulator::encode(plan.column_scales),
                            emulator::encode(plan.output)};
  emulator::Grid grid{plan.grid,
                      c.kernel->cluster() * c.splits,
                      nvfp4::kSm100Threads,
                      c.kernel->shared_bytes,
                      seed,
                      {&a_data, &a_blocks, &a_global, &b_global, &given_bias, &given_experts,
                       &given_count, &frame_pages}};
  if (!early) {
    grid.preceding.insert(grid.preceding.end(), {&b_data, &b_blocks});
  }
  const std::uint16_t* given = c.bias ? given_bias.as<const std::uint16_t>() : nullptr;
  const u32 m = static_cast<u32>(c.m), n = static_cast<u32>(c.n), k = static_cast<u32>(c.k);
  const u32 early_loads = emulator::launch(grid, [&] {
    if (grouped) {
      c.run_grouped(maps[0], maps[1], maps[2], maps[3], maps[4], a_global.as<const float>(),
                    b_global.as<const float>(), given, m, n, k, given_experts.as<const int>(),
                    c.scale_of_rows ? nvfp4::kScaleOfRow : nvfp4::kScaleOfExpert,
                    c.row_tiles != 0 ? given_count.as<const u32>() : nullptr);
    } else if (c.kernel->swapped) {
      c.run.swapped(maps[0], maps[1], maps[2], maps[3], d, a_global.as<const float>(),
                    b_global.as<const float>(), given, m, n, k, u32{c.constant_b});
    } else {
      c.run.kernel(maps[0], maps[1], maps[2], maps[3], maps[4], a_global.as<const float>(),
                   b_global.as<const float>(), given, m, n, k, u32{c.constant_b});
    }
  });

  // Of B, in each CTA: data and scales of its stages of the first tile, as many as the ring has.
  constexpr std::int64_t kSmallestRing = 3;
  const std::int64_t stages = std::min((c.k + 255) / 256 / c.splits, kSmallestRing);
  std::int64_t wrong =
      static_cast<std::int64_t>(early ? early_loads < 2 * stages * plan.grid : early_loads != 0);
  const auto at = [](std::int64_t row, std::int64_t width, std::int64_t column) {
    return static_cast<std::size_t>(row * width + column);
  };
  for (std::int64_t row = 0; row < c.m; ++row) {
    const bool is_absent = c.row_tiles != 0 && row / 128 >= c.row_tiles;
    const int expert = is_absent ? -1
                       : grouped ? c.experts[static_cast<std::size_t>(row / 128)]
                                 : 0;
    const auto of_a = static_cast<std::size_t>(c.scale_of_rows ? row : expert);
    const double alpha = expert < 0 ? 0 : double{a_scales[of_a].decode} * b_scales[expert].decode;
    for (std::int64_t column = 0; column < c.n; ++column) {
      if (expert < 0) {  // padding rows, which stay untouched
        wrong += static_cast<std::int64_t>(d[at(row, c.n, column)] != kUntouched);
        continue;
      }
      if (c.cancels) {
        wrong += static_cast<std::int64_t>(d[at(row, c.n, column)] != 0);
        continue;
      }
      const std::int64_t of_b = expert * c.n + column;
      const double added = c.bias ? float_of(bias[static_cast<std::size_t>(of_b)]) : 0;
      wrong += static_cast<std::int64_t>(
          !is_dot_product(d[at(row, c.n, column)], a, row, b, of_b, alpha, added));
    }
  }
  for (std::size_t i = 0; i < kFrame; ++i) {
    wrong += static_cast<std::int64_t>(frame[i] != kUntouched) +
             static_cast<std::int64_t>(frame[frame_size - 1 - i] != kUntouched);
  }
  std::printf("%s, grid %u: %ld wrong\n", name_of(c).c_str(), plan.grid, wrong);
  std::fflush(stdout);
  return wrong == 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool good = true;
  std::size_t run = 0;
  u32 seed = 1;
  if (argc > 2 && std::string(argv[1]) == "--seed") {
    seed = static_cast<u32>(std::stoul(argv[2]));
    argc -= 2;
    argv += 2;
  }
  for (const Case& c : kCases) {
    if (argc < 2 || name_of(c).find(argv[1]) != std::string::npos) {
      good = agrees(c, seed) && good;
      ++run;
    }
  }
  if (run == 0) {
    std::fprintf(stderr, "no case is called like %s\n", argv[1]);
    return 1;
  }
  return good ? 0 : 1;
}
