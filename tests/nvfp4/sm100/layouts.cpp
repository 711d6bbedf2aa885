// SPDX-License-Identifier: Apache-2.0
// Compares the bits and layouts of the sm_100a kernels and their emulator with those of CUTLASS's
// own types. Prints a line for each difference; exit code 1 if any differs.
#include <cutlass/numeric_types.h>
#include <cstdint>
#include <cstdio>
#include <cute/arch/mma_sm100_desc.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/tensor.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>

#include "emulator/swizzle.hpp"
#define CUKILN_MACHINE "emulator/machine.hpp"
#define CUKILN_TCGEN05 "emulator/tcgen05.hpp"
#include <cukiln/nvfp4/nvfp4.hpp>
#include "kernels_src/nvfp4/scale_layout.cuh"
#include "kernels_src/nvfp4/tcgen05.cuh"

namespace {

using namespace cute;
using E2m1 = cutlass::float_e2m1_t;
using Ue4m3 = cutlass::float_ue4m3_t;

int differences = 0;

template <class Number>
void compare(const char* what, Number ours, Number cutlass) {
  if (ours != cutlass) {
    ++differences;
    std::printf("%s: %#llx, in CUTLASS %#llx\n", what, static_cast<unsigned long long>(ours),
                static_cast<unsigned long long>(cutlass));
  }
}

template <int M, int N>
void instruction() {
  compare("instruction descriptor", cukiln::instruction_descriptor(M, N),
          static_cast<std::uint32_t>(
              UMMA::make_instr_desc_block_scaled<E2m1, E2m1, float, Ue4m3, M, N, UMMA::Major::K,
                                                 UMMA::Major::K>()));
}

// An operand of `rows` rows of 128 bytes in shared memory: its descriptor (of address 0, which is
// what CUTLASS finds on the host), and where each byte lies.
template <int Rows>
void operand() {
  const auto layout =
      tile_to_shape(UMMA::Layout_K_SW128_Atom<std::uint8_t>{}, Shape<Int<Rows>, _128>{});
  static std::uint8_t bytes[Rows * 128];
  const UMMA::SmemDescriptor theirs =
      UMMA::make_umma_desc<UMMA::Major::K>(make_tensor(make_smem_ptr(bytes), layout));
  // The leading stride has no meaning for this layout: CUTLASS writes 1, this project 0.
  compare("operand descriptor", cukiln::smem_descriptor(0, 1024, cukiln::Swizzle::k128Bytes),
          static_cast<cukiln::u64>(theirs.desc_ & ~(std::uint64_t{0x3FFF} << 16)));
  for (int row = 0; row < Rows; ++row) {
    for (int byte = 0; byte < 128; ++byte) {
      compare("byte of an operand",
              cukiln::emulator::swizzled(static_cast<cukiln::u32>(row * 128 + byte)),
              static_cast<cukiln::u32>(layout(row, byte)));
    }
  }
}

// One atom of scales: 32 rows of 16 bytes, in groups of 8.
void scale_atom() {
  UMMA::SmemDescriptor theirs;
  theirs.desc_ = 0;
  theirs.version_ = 1;
  theirs.layout_type_ = static_cast<std::uint8_t>(UMMA::LayoutType::SWIZZLE_NONE);
  theirs.stride_byte_offset_ = 128 >> 4;
  theirs.start_address_ = 0x2A400 >> 4;
  compare("scale descriptor", cukiln::smem_descriptor(0x2A400, 128, cukiln::Swizzle::kNone),
          static_cast<cukiln::u64>(theirs.desc_));
}

void scales_in_memory() {
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<16>;
  for (int rows : {1, 100, 128, 129, 384, 1000}) {
    for (int k : {32, 64, 96, 128, 192, 448, 1024, 7168}) {
      const auto a = Config::tile_atom_to_shape_SFA(make_shape(rows, 128, k, 1));
      const auto b = Config::tile_atom_to_shape_SFB(make_shape(128, rows, k, 1));
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < k; column += 16) {
          const std::size_t ours = cukiln::nvfp4::scale_offset(
              static_cast<std::size_t>(row), static_cast<std::size_t>(column / 16),
              static_cast<std::size_t>(k));
          compare("scale of A, the kernels' offset",
                  cukiln::nvfp4::scale_byte_offset(
                      static_cast<cukiln::u32>(row), static_cast<cukiln::u32>(column / 16),
                      cukiln::nvfp4::scale_atoms(static_cast<cukiln::u32>(k))),
                  static_cast<cukiln::u64>(a(row, column, 0)));
          compare("scale of A", ours, static_cast<std::size_t>(a(row, column, 0)));
          compare("scale of B", ours, static_cast<std::size_t>(b(row, column, 0)));
        }
      }
      compare("bytes of scales, the kernels' count",
              cukiln::nvfp4::padded_scale_bytes(static_cast<cukiln::u32>(rows),
                                                static_cast<cukiln::u32>(k)),
              static_cast<cukiln::u64>(cosize(filter_zeros(a))));
      compare("bytes of scales", cukiln::nvfp4::scales_bytes(rows, k),
              static_cast<std::size_t>(cosize(filter_zeros(a))));
    }
  }
}

// Where the MMA looks for the scale of `row` in step j: column 4 * atoms * j + row / 32, lane
// row % 32, byte k / 16, and the same in each 32 lanes.
template <int Rows, class Fragment>
void scales_in_tensor_memory(const char* what) {
  using Instruction = Shape<Shape<Int<Rows>, Shape<_16, _4>>, _1, _4>;
  const auto layout = Fragment::make(Instruction{}).layout();
  constexpr int kAtoms = Rows / 128;
  for (int step = 0; step < 4; ++step) {
    for (int row = 0; row < Rows; ++row) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        for (int block = 0; block < 4; ++block) {
          const auto at = layout(make_coord(
              make_coord(make_coord(make_coord(row % 32, row / 32), quarter), make_coord(0, block)),
              0, step));
          const std::uint64_t lane = static_cast<std::uint64_t>(quarter * 32 + row % 32);
          const std::uint64_t column =
              static_cast<std::uint64_t>(4 * kAtoms * step + row / 32) * 4 + block;
          compare(what, lane * TMEM::DP<Ue4m3>::value + column, static_cast<std::uint64_t>(at));
        }
      }
    }
  }
}

}  // namespace

int main() {
  instruction<128, 16>();
  instruction<128, 32>();
  instruction<128, 64>();
  instruction<128, 128>();
  instruction<128, 256>();
  instruction<256, 128>();
  instruction<256, 192>();
  instruction<256, 256>();
  operand<16>();
  operand<32>();
  operand<64>();
  operand<96>();
  operand<128>();
  operand<256>();
  scale_atom();
  scales_in_memory();
  using UMMA::TmemAllocMode;
  scales_in_tensor_memory<128, UMMA::tmem_sf_frg<Ue4m3, 16, 1, true>>("row scales");
  scales_in_tensor_memory<128, UMMA::tmem_sf_frg<Ue4m3, 16, 1, false>>("column scales");
  scales_in_tensor_memory<256, UMMA::tmem_sf_frg<Ue4m3, 16, 1, false>>("column scales");
  scales_in_tensor_memory<
      128, UMMA::tmem_sf_frg<Ue4m3, 16, 2, true, TmemAllocMode::ScaleFactorDuplicated4by1>>(
      "row scales of two CTAs");
  scales_in_tensor_memory<
      128, UMMA::tmem_sf_frg<Ue4m3, 16, 2, false, TmemAllocMode::ScaleFactorDuplicated4by1>>(
      "column scales of two CTAs");
  scales_in_tensor_memory<
      256, UMMA::tmem_sf_frg<Ue4m3, 16, 2, false, TmemAllocMode::ScaleFactorDuplicated4by1>>(
      "column scales of two CTAs");
  std::printf("%d differences\n", differences);
  return differences == 0 ? 0 : 1;
}
