// SPDX-License-Identifier: Apache-2.0

// GEMMs launched a thousand times in one stream, alone and beside a kernel that saturates the load
// unit: the circumstances in which a kernel that reads shared memory too late, or too early, is
// wrong. Everything is made and compared on the device.

#include <cstdio>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/moe.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/nvfp4/matrices.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"
#include "gpu/support/test_loader.hpp"

namespace cukiln::testing {
namespace {

constexpr unsigned kLaunches = 1000;
constexpr unsigned kGatherEvery = 8;  // launches
constexpr std::size_t kGathered = 64 << 20;
// Every ring is passed three times: the longest has 15 stages of 128, in each of four CTAs that
// split K.
constexpr std::int64_t kLongK = 3 * 4 * 15 * 128;

constexpr const char* kSource = R"(
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;

__device__ u32 hash(u64 value) {
  value = (value ^ value >> 31) * 0x7FB5D329728EA185ull;
  value = (value ^ value >> 27) * 0x81DADEF4BC2DD44Dull;
  return static_cast<u32>(value >> 32);
}

// Random bytes: base + [0, range).
extern "C" __global__ void fill_bytes(u8* to, u64 count, u32 base, u32 range, u32 seed) {
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += u64{gridDim.x} * blockDim.x) {
    to[i] = static_cast<u8>(base + hash(u64{seed} << 40 | i) % range);
  }
}

// Random bf16 in [-2, 2).
extern "C" __global__ void fill_bf16(u16* to, u64 count, u32 seed) {
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += u64{gridDim.x} * blockDim.x) {
    const float value = static_cast<int>(hash(u64{seed} << 40 | i)) * 0x1p-30f;
    to[i] = static_cast<u16>(__float_as_uint(value) >> 16);
  }
}

__device__ double quantized(const u8* data, const u8* scales, u64 row, u32 column, u32 columns) {
  const u32 code = data[(row * columns + column) / 2] >> column % 2 * 4;
  const u32 magnitude = code & 7;
  const double value = magnitude < 4 ? magnitude * 0.5 : (2 + magnitude % 2) << (magnitude / 2 - 2);
  const u32 block = column / 16;
  const u32 byte = scales[(row / 128 * ((columns + 63) / 64) + block / 4) * 512 + row % 32 * 16 + row / 32 % 4 * 4 + block % 4];
  const double scale = scalbn(8.0 + (byte & 7), static_cast<int>(byte >> 3) - 10);  // no subnormals are made
  return (code & 8 ? -value : value) * scale;
}

// A warp one element of A * B^T: its value, and the sum of the products' magnitudes. A is bf16 if `a_scales` is null.
extern "C" __global__ void reference(double2* to, const u8* a, const u8* a_scales, const u8* b, const u8* b_scales,
                                     u32 m, u32 n, u32 k, float alpha) {
  const u64 i = (u64{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (i >= u64{m} * n) return;
  double sum = 0, size = 0;
  for (u32 c = threadIdx.x % 32; c < k; c += 32) {
    const double of_a = a_scales == nullptr
        ? __uint_as_float(u32{reinterpret_cast<const u16*>(a)[i / n * k + c]} << 16)
        : quantized(a, a_scales, i / n, c, k);
    const double term = of_a * quantized(b, b_scales, i % n, c, k);
    sum += term;
    size += fabs(term);
  }
  for (u32 lanes = 16; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(~0u, sum, lanes);
    size += __shfl_xor_sync(~0u, size, lanes);
  }
  if (threadIdx.x % 32 == 0) to[i] = make_double2(sum * alpha, size * alpha);
}

// Counts results that are not within one rounding to bf16 and float's of such a sum.
extern "C" __global__ void count_inexact(u32* wrong, const u16* given, const double2* expected, u64 count) {
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += u64{gridDim.x} * blockDim.x) {
    const double value = __uint_as_float(u32{given[i]} << 16);
    if (!(fabs(value - expected[i].x) <= fabs(expected[i].x) * 0x1p-8 + expected[i].y * 0x1p-18)) atomicAdd(wrong, 1);
  }
}

// A thread block one launch: whether its bytes are the expected ones.
extern "C" __global__ void count_different(u32* wrong, const uint4* given, const uint4* expected, u64 vectors) {
  int different = 0;
  for (u64 i = threadIdx.x; i < vectors; i += blockDim.x) {
    const uint4 a = given[blockIdx.x * vectors + i];
    const uint4 b = expected[i];
    different |= a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w;
  }
  if (__syncthreads_or(different) && threadIdx.x == 0) atomicAdd(wrong, 1);
}

// Loads from random addresses, as many at a time as the load unit takes.
extern "C" __global__ void gather(float* sums, const float* from, u32 mask, u32 round) {
  const u64 thread = u64{round} << 32 | (blockIdx.x * blockDim.x + threadIdx.x);
  float sum = 0;
#pragma unroll
  for (u32 i = 0; i < 16; ++i) sum += from[hash(thread * 16 + i) & mask];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
)";

struct Matrix {
  Matrix(std::int64_t row_count, std::int64_t column_count)
      : rows(row_count),
        columns(column_count),
        data(nvfp4::data_bytes(rows, columns)),
        scales(nvfp4::scales_bytes(rows, columns)),
        global_scale(on_device({1 / kDecode, kDecode})) {}

  nvfp4::QuantizedMatrix view() const {
    return {data.data(), scales.data(), global_scale.data(), rows, columns};
  }

  static constexpr float kDecode = 0x1p-6f;
  std::int64_t rows;
  std::int64_t columns;
  DeviceBuffer<std::uint8_t> data;
  DeviceBuffer<std::uint8_t> scales;
  DeviceBuffer<nvfp4::GlobalScale> global_scale;
};

struct Double2 {
  double x, y;
};

template <class... Args>
TypedKernel<Args...> typed(TestLoader& loader, const char* name) {
  auto made = TypedKernel<Args...>::create(loader.get(name, kSource));
  REQUIRE_MESSAGE(made, made.error().message());
  return *std::move(made);
}

/// The kernels above, what they compare, and the stream of the GEMMs.
struct DeviceSide {
  DeviceSide() : gathered(kGathered), sums(kGatherBlocks * 256), wrong(std::vector<unsigned>{0}) {
    gathered.fill_bytes(0);
  }

  void fill(const Matrix& matrix) {
    const auto bytes = [&](const DeviceBuffer<std::uint8_t>& of, unsigned base, unsigned range) {
      require_ok(
          fill_bytes.launch(stream, {{2048}, {256}}, of.data(), of.size(), base, range, ++seed));
    };
    bytes(matrix.data, 0, 256);
    bytes(matrix.scales, 0x30, 16);  // 0.5 to 1.875
  }
  void fill(const DeviceBuffer<std::uint16_t>& values) {
    require_ok(fill_bf16.launch(stream, {{2048}, {256}}, values.data(), values.size(), ++seed));
  }

  unsigned take_wrong() {
    const unsigned count = wrong.download().front();
    wrong.fill_bytes(0, stream);
    return count;
  }

  TestLoader loader;
  TypedKernel<std::uint8_t*, std::uint64_t, unsigned, unsigned, unsigned> fill_bytes =
      typed<std::uint8_t*, std::uint64_t, unsigned, unsigned, unsigned>(loader, "fill_bytes");
  TypedKernel<std::uint16_t*, std::uint64_t, unsigned> fill_bf16 =
      typed<std::uint16_t*, std::uint64_t, unsigned>(loader, "fill_bf16");
  TypedKernel<Double2*, const std::uint8_t*, const std::uint8_t*, const std::uint8_t*,
              const std::uint8_t*, unsigned, unsigned, unsigned, float>
      reference =
          typed<Double2*, const std::uint8_t*, const std::uint8_t*, const std::uint8_t*,
                const std::uint8_t*, unsigned, unsigned, unsigned, float>(loader, "reference");
  TypedKernel<unsigned*, const std::uint16_t*, const Double2*, std::uint64_t> count_inexact =
      typed<unsigned*, const std::uint16_t*, const Double2*, std::uint64_t>(loader,
                                                                            "count_inexact");
  TypedKernel<unsigned*, const std::uint16_t*, const std::uint16_t*, std::uint64_t>
      count_different = typed<unsigned*, const std::uint16_t*, const std::uint16_t*, std::uint64_t>(
          loader, "count_different");
  TypedKernel<float*, const float*, unsigned, unsigned> gather =
      typed<float*, const float*, unsigned, unsigned>(loader, "gather");

  static constexpr unsigned kGatherBlocks = 2048;
  TestStream stream;
  TestStream beside;
  DeviceBuffer<float> gathered;
  DeviceBuffer<float> sums;
  DeviceBuffer<unsigned> wrong;
  unsigned seed = 0;
};

/// A family's launcher, and its A.
struct W4a4 {
  static constexpr const char* kName = "W4A4";
  W4a4(DeviceSide& on, std::int64_t m, std::int64_t k) : a(m, k) { on.fill(a); }
  const std::uint8_t* values() const { return a.data.data(); }
  const std::uint8_t* scales() const { return a.scales.data(); }
  static float alpha() { return Matrix::kDecode * Matrix::kDecode; }
  nvfp4::QuantizedMatrix view() const { return a.view(); }

  using Gemm = nvfp4::Gemm;
  Matrix a;
};

struct W4a16 {
  static constexpr const char* kName = "W4A16";
  W4a16(DeviceSide& on, std::int64_t m, std::int64_t k)
      : rows(m), columns(k), a(static_cast<std::size_t>(m * k)) {
    on.fill(a);
  }
  const std::uint8_t* values() const { return reinterpret_cast<const std::uint8_t*>(a.data()); }
  static const std::uint8_t* scales() { return nullptr; }
  static float alpha() { return Matrix::kDecode; }
  MatrixView view() const { return bf16(a.data(), rows, columns); }

  using Gemm = nvfp4::W4a16Gemm;
  std::int64_t rows;
  std::int64_t columns;
  DeviceBuffer<std::uint16_t> a;
};

struct Different {
  unsigned alone;
  unsigned beside;
};

/// How many of kLaunches of `launch(output, i)` in a row give other bytes than `expected`.
template <class Launch>
Different count_different(DeviceSide& on, const DeviceBuffer<std::uint16_t>& expected,
                          DeviceBuffer<std::uint16_t>& outputs, const Launch& launch) {
  const std::size_t count = expected.size();
  unsigned different[2];
  for (const bool busy : {false, true}) {
    outputs.fill_bytes(0xA5, on.stream);
    on.stream.synchronize();
    for (unsigned i = 0; i < kLaunches; ++i) {
      if (busy && i % kGatherEvery == 0) {
        require_ok(on.gather.launch(on.beside, {{DeviceSide::kGatherBlocks}, {256}}, on.sums.data(),
                                    on.gathered.data(), static_cast<unsigned>(kGathered - 1), i));
      }
      launch(outputs.data() + i * count, i);
    }
    require_ok(on.count_different.launch(on.stream, {{kLaunches}, {256}}, on.wrong.data(),
                                         outputs.data(), expected.data(), count / 8));
    different[busy ? 1 : 0] = on.take_wrong();
  }
  return {different[0], different[1]};
}

/// Launches every tactic of A [m, k] and B whose kernel has `part` in its name.
template <class Family>
void repeat_tactics(DeviceSide& on, const typename Family::Gemm& gemm, const Matrix& b,
                    std::int64_t m, const std::string& part) {
  const std::int64_t n = b.rows;
  const std::int64_t k = b.columns;
  const Family a(on, m, k);
  const auto count = static_cast<std::size_t>(m * n);
  const DeviceBuffer<Double2> exact(count);
  require_ok(on.reference.launch(on.stream, {{static_cast<unsigned>((count + 7) / 8)}, {256}},
                                 exact.data(), a.values(), a.scales(), b.data.data(),
                                 b.scales.data(), static_cast<unsigned>(m),
                                 static_cast<unsigned>(n), static_cast<unsigned>(k), a.alpha()));
  DeviceBuffer<std::uint16_t> expected(count);
  DeviceBuffer<std::uint16_t> outputs(kLaunches * count);
  const DeviceBuffer<std::uint8_t> space(gemm.workspace_bytes(m, n, k));
  for (int tactic = 0; tactic < gemm.tactics(m, n, k); ++tactic) {
    const auto name = gemm.tactic(m, n, k, tactic);
    REQUIRE(name);
    if (name->kernel.find(part) == std::string::npos) continue;
    const auto launch = [&](std::uint16_t* output, unsigned i) {
      require_ok(gemm.launch(on.stream, bf16(output, m, n), a.view(), b.view(),
                             {space.data(), space.bytes()},
                             {.constant_b = i % 2 == 0, .tactic = tactic}));
    };
    expected.fill_bytes(0xA5, on.stream);
    launch(expected.data(), 1);
    require_ok(on.count_inexact.launch(on.stream, {{256}, {256}}, on.wrong.data(), expected.data(),
                                       exact.data(), count));
    const unsigned inexact = on.take_wrong();
    const Different different = count_different(on, expected, outputs, launch);
    std::printf("%s m %lld n %lld k %lld, %s/%d: of %u launches %u differ alone, %u beside loads\n",
                Family::kName, static_cast<long long>(m), static_cast<long long>(n),
                static_cast<long long>(k), name->kernel.c_str(), name->splits, kLaunches,
                different.alone, different.beside);
    std::fflush(stdout);
    CAPTURE(Family::kName);
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    CAPTURE(name->kernel);
    CAPTURE(name->splits);
    CHECK(inexact == 0);
    CHECK(different.alone == 0);
    CHECK(different.beside == 0);
  }
}

}  // namespace

// fault 320
TEST_CASE("a thousand launches of every decode GEMM give the same bytes, alone and beside loads") {
  DeviceSide on;
  const auto w4a4 = create<nvfp4::Gemm>();
  const auto w4a16 = create<nvfp4::W4a16Gemm>();
  struct Shape {
    std::int64_t n, k;
  };
  for (const Shape shape : {Shape{8192, 3584},
                            {4096, 4096},
                            {5120, 8192},
                            {7168, 7168},
                            {2880, 2880},
                            {6144, 4096},
                            {1024, 8192},
                            {2112, 7168},
                            {28672, 4096},
                            {18432, 7168},
                            {3072, 8192},
                            {12288, 4096}}) {
    const Matrix b(shape.n, shape.k);
    on.fill(b);
    for (const std::int64_t m : {8, 16, 1}) {
      repeat_tactics<W4a16>(on, w4a16, b, m, "decode");
      repeat_tactics<W4a4>(on, w4a4, b, m, "decode");
    }
  }
}

// fault 320
TEST_CASE(
    "a thousand launches of every tactic that passes its ring three times give the same bytes") {
  DeviceSide on;
  const auto w4a4 = create<nvfp4::Gemm>();
  const auto w4a16 = create<nvfp4::W4a16Gemm>();
  const Matrix b(2112, kLongK);
  on.fill(b);
  for (const std::int64_t m : {1, 8, 16, 24, 32, 64, 128, 300}) {
    repeat_tactics<W4a16>(on, w4a16, b, m, "");
    repeat_tactics<W4a4>(on, w4a4, b, m, "");
  }
}

// fault 320
TEST_CASE("a thousand launches of every mixture of experts give the same bytes") {
  DeviceSide on;
  const auto moe = create<nvfp4::MoeGemm>();
  constexpr std::int64_t kExperts = 8;
  constexpr std::int64_t kSize = 2048;  // passes the rings of kernels for many tokens three times
  const Matrix up(kExperts * 2 * kSize, kSize);
  const Matrix down(kExperts * kSize, kSize);
  on.fill(up);
  on.fill(down);
  const DeviceBuffer<float> decode(std::vector<float>(kExperts, Matrix::kDecode));
  const auto hidden_scale = on_device({64, 0x1p-6f});
  for (const std::int64_t tokens : {4, 12, 30, 60, 200, 600}) {
    constexpr std::int64_t kTopk = 2;
    const auto count = static_cast<std::size_t>(tokens * kSize);
    const DeviceBuffer<std::uint16_t> hidden(count);
    on.fill(hidden);
    std::vector<std::int32_t> experts;
    for (std::int64_t i = 0; i < tokens * kTopk; ++i) {
      experts.push_back(static_cast<std::int32_t>((i * 5 + i / 7) % kExperts));
    }
    const DeviceBuffer<std::int32_t> ids(experts);
    const DeviceBuffer<float> weights(std::vector<float>(experts.size(), 0.5f));
    DeviceBuffer<std::uint16_t> expected(count);
    DeviceBuffer<std::uint16_t> outputs(kLaunches * count);
    for (const bool w4a16 : {true, false}) {
      nvfp4::MoeShape shape;
      shape.tokens = tokens;
      shape.topk = kTopk;
      shape.experts = kExperts;
      shape.hidden = kSize;
      shape.width = kSize;
      shape.w4a16 = w4a16;
      shape.dynamic_activation_scale = !w4a16;
      nvfp4::MoeInput input;
      input.hidden = bf16(hidden.data(), tokens, kSize);
      if (!w4a16) input.hidden_scale = hidden_scale.data();
      input.topk_ids = {DataType::i32, ids.data(), tokens, kTopk};
      input.topk_weights = {DataType::f32, weights.data(), tokens, kTopk};
      nvfp4::MoeLayer layer;
      layer.up = {up.data.data(), up.scales.data(), decode.data(), kExperts, 2 * kSize,
                  kSize,          nullptr};
      layer.down = {down.data.data(), down.scales.data(), decode.data(), kExperts, kSize, kSize,
                    nullptr};
      layer.dynamic_activation_scale = !w4a16;
      const DeviceBuffer<std::uint8_t> space(moe.workspace_bytes(shape));
      const auto launch = [&](std::uint16_t* output, unsigned) {
        require_ok(moe.launch(on.stream, bf16(output, tokens, kSize), input, layer,
                              {space.data(), space.bytes()}));
      };
      launch(expected.data(), 0);
      const Different different = count_different(on, expected, outputs, launch);
      std::printf(
          "mixture of experts, %s, %lld tokens: of %u launches %u differ alone, %u beside loads\n",
          w4a16 ? "W4A16" : "W4A4", static_cast<long long>(tokens), kLaunches, different.alone,
          different.beside);
      std::fflush(stdout);
      CAPTURE(tokens);
      CAPTURE(w4a16);
      CHECK(different.alone == 0);
      CHECK(different.beside == 0);
    }
  }
}

}  // namespace cukiln::testing
