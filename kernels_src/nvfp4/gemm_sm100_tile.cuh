// The tile that a CTA of gemm_sm100_roles.cuh, or a pair of them, makes at a time: its sizes, and where
// things lie in shared memory and in tensor memory.
//
// The accumulator has two halves of tensor memory, used in turn. Two of 256 columns and the scales
// do not fit, so those overlap by 64 columns: the first half is drained from its end, the second
// from its beginning, and `drained` comes when the shared columns are read.
#pragma once

#include "scale_layout.cuh"
#include "tcgen05.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kSm100Threads = 192;
constexpr u32 kTileRows = 128;        // of one CTA: the lanes of tensor memory
constexpr u32 kStageBytes = 128;      // of one row: 256 codes, one row of the 128-byte swizzle
constexpr u32 kStepBytes = 32;        // 64 codes: the K of one product
constexpr u32 kSteps = kStageBytes / kStepBytes;
constexpr u32 kAtomTmemColumns = 4;   // of tensor memory, that an atom of block scales takes
constexpr u32 kStoreColumns = 64;     // of the accumulator, staged at once
constexpr u32 kStoreBuffer = 4096;    // bytes: 32 lanes by kStoreColumns bf16
constexpr u32 kSharedLimit = 232448;  // of a thread block
constexpr u32 kGroupRows = 16;        // tiles of consecutive rows that share their columns in L2

template <u32 kColumns_, u32 kCtas_, bool kSwapped_, bool kGrouped_>
struct Sm100Tile {
  static constexpr u32 kColumns = kColumns_;
  static constexpr u32 kCtas = kCtas_;
  static constexpr bool kSwapped = kSwapped_;
  static constexpr bool kGrouped = kGrouped_;
  static constexpr u32 kColumnsLoaded = kColumns / kCtas;  // by each CTA
  static constexpr u32 kColumnAtoms = (kColumns + 127) / 128;

  struct alignas(1024) Stage {
    u8 rows[kTileRows * kStageBytes];
    u8 columns[kColumnsLoaded * kStageBytes];
    u8 row_scales[kSteps * kAtomBytes];
    u8 column_scales[kColumnAtoms * kSteps * kAtomBytes];
  };
  struct Control {
    u64 filled[2];
    u64 drained[2];
    u64 tmem;
  };
  static constexpr u32 kStoreBytes = 4 * 2 * kStoreBuffer;
  static constexpr u32 kStages =
      (kSharedLimit - kStoreBytes - sizeof(Control)) / (sizeof(Stage) + 2 * sizeof(u64));
  struct Shared {
    Stage stage[kStages];
    u8 store[4][2][kStoreBuffer];
    u64 full[kStages];
    u64 empty[kStages];
    Control control;
  };

  static constexpr u32 kScaleColumns = kSteps * kAtomTmemColumns * (1 + kColumnAtoms);
  static constexpr u32 kRowScales = kTmemColumns - kScaleColumns;
  static constexpr u32 kColumnScales = kRowScales + kSteps * kAtomTmemColumns;
  static constexpr u32 kOverlap = 2 * kColumns > kRowScales ? kStoreColumns : 0;
  static constexpr u32 kSecondHalf = kColumns - kOverlap;

  // Below 128 columns several tiles would share an atom of scales, so there is only one.
  static_assert(kColumns % kStoreColumns == 0 && kColumns <= 256 && (kColumns >= 128 || kSwapped));
  // Groups are 128 rows of A.
  static_assert(!kGrouped || (kCtas == 1 && !kSwapped));
  static_assert(kSecondHalf + kColumns <= kRowScales && sizeof(Shared) <= kSharedLimit);
};

}  // namespace nvfp4
}  // namespace cukiln
