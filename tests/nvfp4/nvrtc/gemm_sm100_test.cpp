// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "core/driver/cuda_types.hpp"
#include "nvfp4/host/sm100_plan.hpp"
#include "nvfp4/host/sm100_select.hpp"
#include "nvfp4/nvrtc/launch_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr std::int64_t kB200 = 148;  // SMs, as the fake driver reports

/// Kernel and splits.
std::string chosen(std::int64_t m, std::int64_t n, std::int64_t k) {
  const nvfp4::GemmTactic tactic = nvfp4::select_sm100({m, n, k, kB200});
  return std::string(nvfp4::kSm100Kernels[tactic.kernel].name) + "/" +
         std::to_string(tactic.splits);
}

// The arguments of a launch, as the kernel declares them; the maps are the fake driver's.
struct Arguments {
  TensorMap rows, columns, row_scales, column_scales, output;
  const nvfp4::GlobalScale* a_scale;
  const nvfp4::GlobalScale* b_scale;
  const std::uint16_t* bias;
  std::uint32_t m, n, k;
  std::uint32_t constant_b;  // not of grouped kernels, which have others here
};
constexpr std::size_t kCommonBytes = offsetof(Arguments, constant_b);

// Likewise, of a kernel with swapped operands.
struct SwappedArguments {
  TensorMap rows, columns, row_scales, column_scales;
  const void* output;
  const nvfp4::GlobalScale* a_scale;
  const nvfp4::GlobalScale* b_scale;
  const std::uint16_t* bias;
  std::uint32_t m, n, k;
  std::uint32_t constant_b;
};

const void* data_of(const TensorMap& map) {
  return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(map.opaque[0]));
}

using Box = std::array<std::uint64_t, 3>;

Box box_of(const TensorMap& map) { return {map.opaque[5], map.opaque[6], map.opaque[7]}; }

struct Sm100Fixture : GemmFixture {
  Sm100Fixture() : GemmFixture(100) {}

  template <class Passed = Arguments>
  Passed arguments() const {
    constexpr std::size_t kBytes = offsetof(Passed, constant_b) + sizeof(Passed::constant_b);
    const FakeLaunch last = fake.last_launch();
    REQUIRE(last.argument_bytes == kBytes);
    Passed out;
    std::memcpy(&out, last.arguments, kBytes);
    return out;
  }
};

}  // namespace

TEST_CASE("a GEMM uses the tactic that costs the least") {
  CHECK(chosen(1, 7168, 7168) == "nvfp4_gemm_swapped_16/2");
  CHECK(chosen(17, 8192, 8192) == "nvfp4_gemm_swapped_32/2");
  CHECK(chosen(16, 576, 7168) == "nvfp4_gemm_swapped_64_half/8");
  CHECK(chosen(16, 2112, 7168) == "nvfp4_gemm_swapped_16/6");
  CHECK(chosen(16, 576, 1024) == "nvfp4_gemm_swapped_16/1");  // four stages: sums take longer
  CHECK(chosen(64, 4096, 7168) == "nvfp4_gemm_swapped_64/4");
  CHECK(chosen(64, 18432, 7168) == "nvfp4_gemm_swapped_64/1");  // 144 tiles: one wave
  CHECK(chosen(8, 28672, 4096) == "nvfp4_gemm_128x256/1");      // likewise, most rows are empty
  CHECK(chosen(256, 7168, 256) == "nvfp4_gemm_swapped_64/1");   // one stage: D takes the time
  CHECK(chosen(256, 7168, 7168) == "nvfp4_gemm_256x128_x2/1");  // 56 pairs, one wave
  CHECK(chosen(2048, 2112, 7168) == "nvfp4_gemm_256x256/1");    // 72 of 74 pairs
  CHECK(chosen(1024, 9216, 7168) ==
        "nvfp4_gemm_256x192_x4/1");  // three waves of clusters: all full
  CHECK(chosen(4096, 7168, 7168) == "nvfp4_gemm_256x256_x4/1");  // seven, likewise
  // Each of these has another tactic if a constant of the cost is 0.
  CHECK(chosen(8, 576, 7168) == "nvfp4_gemm_swapped_64_half/8");
  CHECK(chosen(192, 4096, 7168) == "nvfp4_gemm_swapped_256/4");
  CHECK(chosen(512, 2112, 7168) == "nvfp4_gemm_swapped_128/2");
  CHECK(chosen(512, 7168, 7168) == "nvfp4_gemm_256x256_x4/1");
  CHECK(chosen(4096, 576, 7168) == "nvfp4_gemm_256x192_x4/1");
}

TEST_CASE("a grouped GEMM takes wide tiles where narrow ones need more waves or bytes") {
  const auto columns = [](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t experts) {
    return nvfp4::select_sm100_grouped({m, n, k, kB200, experts}).columns;
  };
  CHECK(columns(1024, 384, 7168, 8) == 128);   // 24 tiles: one wave of either
  CHECK(columns(1024, 4096, 7168, 8) == 256);  // 256 narrow tiles are two waves
  CHECK(columns(18944, 7168, 96, 32) == 128);  // one stage: D takes the time
  CHECK(columns(18944, 7168, 7168, 32) == 256);
  // Memory sets the pace of both where each 128 rows have their own weights, and D is stored later.
  CHECK(columns(4096, 4096, 2048, 5) == 256);
  CHECK(columns(4096, 4096, 2048, 32) == 128);
}

TEST_CASE("no tactic costs less than the selected one") {
  for (const std::int64_t m : {1, 16, 64, 65, 300, 4096, 100000}) {
    for (const std::int64_t n : {128, 2112, 7168}) {
      for (const std::int64_t k : {32, 512, 7168}) {
        const nvfp4::Sm100Shape shape{m, n, k, kB200};
        const nvfp4::GemmTactic best = nvfp4::select_sm100(shape);
        REQUIRE(nvfp4::applies(best, shape));
        for (std::uint32_t tile = 0; tile < nvfp4::kSm100PlainCount; ++tile) {
          for (const std::uint32_t splits : nvfp4::kSm100Splits) {
            if (nvfp4::applies({tile, splits}, shape)) {
              CHECK(nvfp4::sm100_cost(best, shape) <= nvfp4::sm100_cost({tile, splits}, shape));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a tile beyond a full wave costs a wave, and one within it next to nothing") {
  for (std::uint32_t tile = 0; tile < nvfp4::kSm100PlainCount; ++tile) {
    const nvfp4::Sm100Kernel& kernel = nvfp4::kSm100Kernels[tile];
    CAPTURE(kernel.name);
    const std::int64_t in_wave = nvfp4::wave_clusters(kernel, 1, kB200);
    const auto cost = [&](std::int64_t clusters) {
      const std::int64_t rows = kernel.rows * kernel.ctas * kernel.columns_shared;
      const std::int64_t columns = kernel.columns * kernel.rows_shared;
      const nvfp4::Sm100Shape shape =
          kernel.swapped ? nvfp4::Sm100Shape{columns, clusters * rows, 7168, kB200}
                         : nvfp4::Sm100Shape{rows, clusters * columns, 7168, kB200};
      REQUIRE(nvfp4::cluster_count(kernel, shape.m, shape.n) == clusters);
      return nvfp4::sm100_cost({tile, 1}, shape);
    };
    const double wave = cost(in_wave);
    CHECK(cost(in_wave + 1) > 1.5 * wave);
    CHECK(cost(2 * in_wave) < 1.1 * cost(in_wave + 1));
    CHECK(cost(in_wave - 1) <= wave);
    CHECK(cost(in_wave - 1) > 0.9 * wave);
    CHECK(cost(3 * in_wave) - cost(2 * in_wave) ==
          doctest::Approx(cost(2 * in_wave) - wave).epsilon(0.01));
  }
}

TEST_CASE("more of K never costs less, and a tile of more than A's rows never costs less") {
  for (const std::int64_t m : {1, 16, 100, 1000}) {
    for (std::uint32_t tile = 0; tile < nvfp4::kSm100PlainCount; ++tile) {
      CAPTURE(nvfp4::kSm100Kernels[tile].name);
      double before = 0;
      for (const std::int64_t k : {256, 512, 4096, 16384}) {
        const double cost = nvfp4::sm100_cost({tile, 1}, {m, 4096, k, kB200});
        CHECK(cost > before);
        before = cost;
      }
    }
  }
  std::uint32_t narrow = 0;
  while (std::string(nvfp4::kSm100Kernels[narrow].name) != "nvfp4_gemm_swapped_16") {
    ++narrow;
  }
  for (const std::uint32_t splits : {1u, 2u}) {
    for (std::uint32_t wide = narrow + 1; nvfp4::kSm100Kernels[wide].rows == 128; ++wide) {
      CHECK(nvfp4::sm100_cost({narrow, splits}, {16, 4096, 7168, kB200}) <
            nvfp4::sm100_cost({wide, splits}, {16, 4096, 7168, kB200}));
    }
  }
}

TEST_CASE("a cluster of several CTAs runs where a GPC has room for it") {
  nvfp4::Sm100Kernel kernel{"no module", "of no module", 64, 1, true, 218112};
  CHECK(nvfp4::wave_clusters(kernel, 1, kB200) == 148);
  CHECK(nvfp4::wave_clusters(kernel, 2, kB200) == 72);
  CHECK(nvfp4::wave_clusters(kernel, 8, kB200) == 16);  // two in each of eight GPCs
  CHECK(nvfp4::wave_clusters(kernel, 8, 8) == 1);       // at least one
  kernel.rows = 64;
  CHECK(nvfp4::cluster_count(kernel, 16, 2112) == 33);
  kernel = {"no module", "of no module", 256, 2, false, 228352};
  CHECK(nvfp4::wave_clusters(kernel, 1, kB200) == 74);  // a pair of SMs is never torn apart
  kernel.rows_shared = 2;
  CHECK(nvfp4::wave_clusters(kernel, 1, kB200) == 32);
  CHECK(nvfp4::wave_clusters(kernel, 1, 1) == 1);
  kernel.columns_shared = 2;
  CHECK(nvfp4::wave_clusters(kernel, 1, kB200) == 16);
  CHECK(nvfp4::cluster_count(kernel, 513, 264) == 2);
}

TEST_CASE("K is split where all clusters run in one wave, and each CTA has a stage") {
  std::uint32_t swapped = 0;
  while (!nvfp4::kSm100Kernels[swapped].swapped) {
    ++swapped;
  }
  CHECK(nvfp4::applies({swapped, 8}, {16, 2048, 7168, kB200}));  // two clusters in each GPC
  CHECK_FALSE(nvfp4::applies({swapped, 8}, {16, 2112, 7168, kB200}));
  CHECK_FALSE(nvfp4::applies({swapped, 3}, {16, 576, 512, kB200}));   // a CTA without a stage
  CHECK_FALSE(nvfp4::applies({0, 2}, {16, 576, 7168, kB200}));        // A's rows are the tile's
  CHECK_FALSE(nvfp4::applies({swapped, 1}, {17, 576, 7168, kB200}));  // more than its columns
}

TEST_CASE("other devices with tcgen05 have the GEMMs of sm_100a, by their own or a family target") {
  for (const int capability : {103, 107, 110}) {
    CAPTURE(capability);
    GemmFixture device(capability);
    REQUIRE(device.launch(1024, 9216, 7168));
    CHECK(std::string(device.fake.last_launch().kernel) == "nvfp4_gemm_256x192_x4");
    CHECK(nvfp4::GroupedGemm::runs_on(capability));
    CHECK(nvfp4::GroupedGemm::create(device.opened.loader, 0));
  }
  CHECK_FALSE(nvfp4::GroupedGemm::runs_on(120));
}

TEST_CASE_FIXTURE(Sm100Fixture, "a GEMM on sm_100a is one launch, planned for its shape") {
  REQUIRE(launch(1024, 9216, 7168, with_tactic(2)));
  FakeLaunch last = fake.last_launch();
  CHECK(std::string(last.kernel) == "nvfp4_gemm_256x256");
  CHECK(last.grid[0] == 148);  // 74 pairs at once
  CHECK(last.block[0] == 192);
  CHECK(last.shared_bytes == 228352);
  CHECK(last.programmatic);
  Arguments passed = arguments();
  CHECK(data_of(passed.rows) == a.data);
  CHECK(data_of(passed.columns) == b.data);
  CHECK(data_of(passed.row_scales) == a.scales);
  CHECK(data_of(passed.column_scales) == b.scales);
  CHECK(data_of(passed.output) == output);
  CHECK(passed.a_scale == a.global_scale);
  CHECK(passed.b_scale == b.global_scale);
  CHECK(passed.bias == nullptr);
  CHECK(passed.m == 1024);
  CHECK(passed.k == 7168);
  CHECK(passed.constant_b == 0);

  // A cluster of eight loads half of its rows and columns in each CTA, and takes two by two tiles.
  REQUIRE(launch(4096, 7168, 7168));
  last = fake.last_launch();
  CHECK(std::string(last.kernel) == "nvfp4_gemm_256x256_x4");
  CHECK(last.grid[0] == 128);  // 16 clusters: those of eight do not fit on all SMs
  CHECK(last.shared_bytes == 228352);
  passed = arguments();
  CHECK(box_of(passed.rows) == Box{128, 64, 0});
  CHECK(box_of(passed.row_scales) == Box{256, 2, 1});
  CHECK(box_of(passed.columns) == Box{128, 64, 0});
  CHECK(box_of(passed.column_scales) == Box{256, 2, 1});  // half of one atom's steps of K
  REQUIRE(launch(300, 264, 96, with_tactic(4)));          // two rows of tiles, each of two
  CHECK(std::string(fake.last_launch().kernel) == "nvfp4_gemm_256x256_x2");
  CHECK(fake.last_launch().grid[0] == 8);
  CHECK(box_of(arguments().columns) == Box{128, 128, 0});
  CHECK(box_of(arguments().column_scales) == Box{256, 4, 1});  // one atom of two
  REQUIRE(launch(300, 264, 96, with_tactic(3)));
  CHECK(box_of(arguments().column_scales) == Box{256, 2, 1});
  REQUIRE(launch(300, 264, 96, with_tactic(1)));
  CHECK(box_of(arguments().column_scales) == Box{256, 4, 2});
  REQUIRE(launch(513, 264, 96, with_tactic(8)));  // two clusters, of two by two tiles
  CHECK(std::string(fake.last_launch().kernel) == "nvfp4_gemm_256x192_x4");
  CHECK(fake.last_launch().grid[0] == 16);
  CHECK(box_of(arguments().columns) == Box{128, 48, 0});

  // Few rows of A: the weights' rows are the tile's, and a small GEMM takes a small grid.
  const auto* bias = address<const std::uint16_t>(0x80000);
  nvfp4::GemmOptions options;
  options.bias = {DataType::bf16, bias, 264};
  options.constant_b = true;
  REQUIRE(launch(3, 264, 96, options));
  last = fake.last_launch();
  CHECK(std::string(last.kernel) == "nvfp4_gemm_swapped_16");
  CHECK(last.grid[0] == 3);
  CHECK(last.cluster[0] == 0);
  const SwappedArguments swapped = arguments<SwappedArguments>();
  CHECK(data_of(swapped.rows) == b.data);
  CHECK(data_of(swapped.columns) == a.data);
  CHECK(data_of(swapped.row_scales) == b.scales);
  CHECK(data_of(swapped.column_scales) == a.scales);
  CHECK(swapped.output == output);
  CHECK(swapped.a_scale == a.global_scale);
  CHECK(swapped.bias == bias);
  CHECK(swapped.m == 3);
  CHECK(swapped.n == 264);
  CHECK(swapped.constant_b == 1);
}

TEST_CASE_FIXTURE(Sm100Fixture, "a GEMM of few tokens is a launch of clusters that split K") {
  REQUIRE(launch(3, 7168, 7168));
  CHECK(std::string(fake.last_launch().kernel) == "nvfp4_gemm_swapped_16");
  CHECK(fake.last_launch().grid[0] == 56 * 2);
  CHECK(fake.last_launch().cluster[0] == 2);
  CHECK(fake.last_launch().cluster[1] == 1);
  // Half of an MMA's rows.
  REQUIRE(launch(16, 576, 7168));
  CHECK(std::string(fake.last_launch().kernel) == "nvfp4_gemm_swapped_64_half");
  CHECK(fake.last_launch().grid[0] == 9 * 8);
  CHECK(fake.last_launch().shared_bytes == 222208);
  CHECK(box_of(arguments<SwappedArguments>().rows) == Box{128, 64, 0});
  CHECK(box_of(arguments<SwappedArguments>().row_scales) == Box{256, 4, 1});
  REQUIRE(launch(3, 2112, 7168));
  CHECK(fake.last_launch().grid[0] == 17 * 6);
  CHECK(fake.last_launch().cluster[0] == 6);
}

TEST_CASE_FIXTURE(Sm100Fixture,
                  "the tactics of a shape are the tiles and splits that apply to it") {
  const auto names = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    std::string all;
    for (int i = 0; i < gemm.tactics(m, n, k); ++i) {
      const auto name = gemm.tactic(m, n, k, i);
      REQUIRE(name);
      all += name->kernel.substr(std::string("nvfp4_gemm_").size()) + "/" +
             std::to_string(name->splits) + " ";
    }
    return all;
  };
  CHECK(names(17, 6144, 1024) ==
        "128x128/1 128x256/1 256x256/1 256x128/1 256x256_x2/1 256x192_x2/1 256x128_x2/1 "
        "256x256_x4/1 256x192_x4/1 "
        "swapped_32/1 swapped_32/2 swapped_32/3 swapped_64/1 "
        "swapped_64/2 swapped_64/3 swapped_128/1 swapped_128/2 swapped_128/3 swapped_256/1 "
        "swapped_256/2 swapped_256/3 swapped_64_half/1 ");
  CHECK(names(200, 128, 512) ==
        "128x128/1 128x256/1 256x256/1 256x128/1 256x256_x2/1 256x192_x2/1 256x128_x2/1 "
        "256x256_x4/1 256x192_x4/1 "
        "swapped_64/1 swapped_64/2 swapped_128/1 swapped_128/2 "
        "swapped_256/1 swapped_256/2 swapped_64_half/1 swapped_64_half/2 ");
  CHECK(gemm.tactics(1, 128, 7168) == 9 + 6 * 6);
}

TEST_CASE_FIXTURE(Sm100Fixture, "a given tactic is used, and an unknown one is refused") {
  const char* const names[] = {
      "nvfp4_gemm_128x128",        "nvfp4_gemm_128x256",     "nvfp4_gemm_256x256",
      "nvfp4_gemm_256x128",        "nvfp4_gemm_256x256_x2",  "nvfp4_gemm_256x192_x2",
      "nvfp4_gemm_256x128_x2",     "nvfp4_gemm_256x256_x4",  "nvfp4_gemm_256x192_x4",
      "nvfp4_gemm_swapped_64",     "nvfp4_gemm_swapped_128", "nvfp4_gemm_swapped_256",
      "nvfp4_gemm_swapped_64_half"};
  REQUIRE(gemm.tactics(4096, 4096, 7168) == 13);
  for (int tactic = 0; tactic < 13; ++tactic) {
    REQUIRE(launch(4096, 4096, 7168, with_tactic(tactic)));
    CHECK(std::string(fake.last_launch().kernel) == names[tactic]);
  }
  const std::size_t before = fake.launches();
  const auto refused = launch(4096, 4096, 7168, with_tactic(13));
  REQUIRE(!refused);
  CHECK(
      refused.error().message() ==
      "tactic is 13; [4096, 4096, 7168] has 13, counted from 0, and -1 selects the one expected to "
      "be fastest");
  CHECK(fake.launches() == before);
  CHECK(nvfp4::Gemm().tactics(4096, 4096, 7168) == 0);
}

TEST_CASE_FIXTURE(Sm100Fixture,
                  "a GEMM on sm_100a needs no workspace, and an empty one launches nothing") {
  CHECK(gemm.workspace_bytes(8192, 8192, 8192) == 0);
  const std::size_t before = fake.launches();
  CHECK(launch(0, 128, 128));
  CHECK(launch(128, 0, 128));
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(Sm100Fixture,
                  "a tensor map that the driver rejects is an error without a launch") {
  fake.fail("cuTensorMapEncodeTiled", kCudaInvalidValue, 1);
  const std::size_t before = fake.launches();
  const auto refused = launch(128, 128, 128);
  REQUIRE(!refused);
  CHECK(refused.error().code() == ErrorCode::driver);
  CHECK(refused.error().message().find("nvfp4_gemm_swapped_64") != std::string::npos);
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(Sm100Fixture, "a grouped GEMM is one launch, whatever the groups' experts") {
  const auto made = nvfp4::GroupedGemm::create(opened.loader, 0);
  REQUIRE_MESSAGE(made, made.error().message());
  const auto* experts = address<const std::int32_t>(0x90000);
  nvfp4::GroupedGemmOptions options;
  const auto launch_grouped = [&](std::int64_t rows, std::int64_t n, std::int64_t groups = 5) {
    a.rows = rows;
    b.rows = groups * n;
    a.columns = b.columns = 96;
    return made->launch(nullptr, {DataType::bf16, output, rows, n}, a, b,
                        {DataType::i32, experts, (rows + 127) / 128}, options);
  };
  options.a_scale_per_expert = true;
  options.group_count = address<const std::uint32_t>(0xA0000);
  REQUIRE(launch_grouped(1000, 384));
  const FakeLaunch last = fake.last_launch();
  CHECK(std::string(last.kernel) == "nvfp4_gemm_grouped_128x128");
  CHECK(last.grid[0] == 24);  // 8 groups of rows, 3 tiles each
  CHECK(last.programmatic);
  REQUIRE(last.argument_bytes == kCommonBytes + 20);
  TensorMap columns;
  std::memcpy(&columns, last.arguments + 128, sizeof columns);
  CHECK(data_of(columns) == b.data);
  CHECK(columns.opaque[3] == 5 * 384);  // the rows of every expert
  TensorMap written;
  std::memcpy(&written, last.arguments + 4 * 128, sizeof written);
  CHECK(written.opaque[2] == 384);
  const std::int32_t* passed = nullptr;
  std::uint32_t a_scales = 0;
  std::memcpy(&passed, last.arguments + kCommonBytes, sizeof passed);
  std::memcpy(&a_scales, last.arguments + kCommonBytes + 8, sizeof a_scales);
  const std::uint32_t* count = nullptr;
  std::memcpy(&count, last.arguments + kCommonBytes + 12, sizeof count);
  CHECK(passed == experts);
  CHECK(a_scales == 1);
  CHECK(count == options.group_count);

  options.a_scale_per_row = true;
  const auto both = launch_grouped(1000, 384);
  REQUIRE(!both);
  CHECK(both.error().message().find("expected one of them") != std::string::npos);
  options.a_scale_per_expert = false;
  REQUIRE(launch_grouped(1000, 384));
  const FakeLaunch by_row = fake.last_launch();
  std::memcpy(&a_scales, by_row.arguments + kCommonBytes + 8, sizeof a_scales);
  CHECK(a_scales == 2);
  options.a_scale_per_row = false;
  REQUIRE(launch_grouped(128 * 148, 384));
  const FakeLaunch wide = fake.last_launch();
  std::memcpy(&a_scales, wide.arguments + kCommonBytes + 8, sizeof a_scales);
  CHECK(a_scales == 0);
  CHECK(wide.grid[0] == 148);

  const std::size_t before = fake.launches();
  CHECK(launch_grouped(0, 384));
  const auto refused = launch_grouped(128, 192);
  REQUIRE(!refused);
  CHECK(refused.error().message() ==
        "output is [128, 192]; expected a positive multiple of 128 columns");
  CHECK(launch_grouped(128, 128, 0).error().message() ==
        "b is [0, 96]; expected a positive multiple of 128 rows, the output's columns for each "
        "expert");
  experts = nullptr;
  CHECK(launch_grouped(128, 128).error().message() ==
        "row_experts is null; expected a device pointer");
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(Sm100Fixture, "operands of a GEMM that do not fit together are refused") {
  const std::size_t before = fake.launches();
  a.rows = 16;
  b.rows = 64;
  a.columns = b.columns = 128;
  MutableMatrixView d(DataType::bf16, output, 16, 64);
  nvfp4::GemmOptions options;
  const auto refusal = [&] {
    const auto refused = gemm.launch(nullptr, d, a, b, {}, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::invalid_argument);
    return refused.error().message();
  };
  b.columns = 160;
  CHECK(refusal() == "a is [16, 128] and b [64, 160]; expected the same number of columns");
  b.columns = 128;
  d.rows = 17;
  CHECK(refusal() == "output is [17, 64]; expected 16 rows, those of a");
  d.rows = 16;
  d.columns = 56;
  CHECK(refusal() == "output is [16, 56]; expected [16, 64]");
  d = {DataType::f32, output, 16, 64};
  CHECK(refusal() == "output is f32; expected bf16");
  d = {DataType::bf16, output, 16, 64, 72};
  CHECK(refusal() == "output has a row stride of 72; expected 64: no gaps between rows");
  d = {DataType::bf16, output, 16, 64, 1, 16};
  CHECK(refusal() == "output has a column stride of 16; expected 1: contiguous rows");
  d = {DataType::bf16, output, 16, 64};
  options.bias = {DataType::bf16, output, 16};
  CHECK(refusal() == "bias is [16]; expected [64]");
  options.bias = {};
  a.global_scale = nullptr;
  CHECK(refusal() == "a.global_scale is null; expected a device pointer");
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(Sm100Fixture, "a launch in a context of another device, or in none, is refused") {
  using Push = CUresult (*)(CUcontext);
  using Pop = CUresult (*)(CUcontext*);
  const auto push = reinterpret_cast<Push>(dlsym(fake.handle, "cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<Pop>(dlsym(fake.handle, "cuCtxPopCurrent_v2"));
  const std::size_t before = fake.launches();
  CUcontext own = nullptr;
  REQUIRE(pop(&own) == 0);
  const auto without = launch(16, 64, 128);
  REQUIRE_FALSE(without);
  CHECK(without.error().message().find("no current CUDA context") != std::string::npos);
  REQUIRE(push(fake.new_context(1)) == 0);
  const auto elsewhere = launch(16, 64, 128);
  CUcontext other = nullptr;
  REQUIRE(pop(&other) == 0);
  REQUIRE_FALSE(elsewhere);
  CHECK(elsewhere.error().code() == ErrorCode::invalid_argument);
  CHECK(elsewhere.error().message() ==
        "the calling thread's current CUDA context is one of device 1; expected one of device 0, "
        "which this Gemm was created for");
  CHECK(fake.launches() == before);
  REQUIRE(push(own) == 0);
  CHECK(launch(16, 64, 128));
}

TEST_CASE_FIXTURE(Sm100Fixture, "a device that is not visible has no launchers") {
  const auto made = nvfp4::Gemm::create(opened.loader, 7);
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == ErrorCode::invalid_argument);
  CHECK(made.error().message().find("device is 7") != std::string::npos);
}

TEST_CASE_FIXTURE(Sm100Fixture, "the grouped GEMM reports the devices that support it") {
  fake.set_capability(0, 90);
  LoaderOptions options = loader_options();
  options.cuda_library = fake.path;
  const Opened hopper = open(options);
  const auto made = nvfp4::GroupedGemm::create(hopper.loader, 0);
  REQUIRE(!made);
  CHECK(made.error().code() == ErrorCode::incompatible);
}
