// The output tile of a CTA, or CTA pair, of gemm_sm100_roles.cuh: its sizes and its layouts in shared
// memory and tensor memory.
//
// Accumulators are double-buffered in tensor memory. Two of 256 columns do not fit beside the scales, so
// their buffers overlap by 64 columns: the epilogue reads the first buffer from its end and the second from
// its beginning, and arrives at tmem_empty as soon as it has read the shared columns.
#pragma once

#include "scale_layout.cuh"
#include "tcgen05.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kSm100Threads = 192;
// Named barriers.
constexpr u32 kSetUp = 1;   // mbarriers and tensor memory can be used
constexpr u32 kRead = 2;    // sums have been read, and tensor memory is freed: of swapped operands
constexpr u32 kReadThreads = kSm100Threads - 32;  // all but the producer's
constexpr u32 kTileRows = 128;        // of one CTA: one for each lane of tensor memory
constexpr u32 kStageBytes = 128;      // of one row: 256 of K, one row of the 128-byte swizzle
constexpr u32 kStepBytes = 32;        // of one row: 64 of K, one MMA
constexpr u32 kSteps = kStageBytes / kStepBytes;
constexpr u32 kAtomTmemColumns = 4;   // of tensor memory, for an atom of block scales
constexpr u32 kStoreColumns = 64;     // of the accumulator, at most, in one TMA store
constexpr u32 kLoadColumns = 32;      // of the accumulator, in one tmem_load
constexpr u32 kSharedLimit = 232448;  // dynamic shared memory of a thread block
constexpr u32 kMaxSplits = 8;         // CTAs of a cluster, of whatever device
constexpr u32 kRasterRows = 16;        // row tiles of a raster group, whose CTAs share B's tiles in L2

// Which global scale each row of A has, of a grouped kernel.
enum AScales : u32 { kOneScale = 0, kScaleOfExpert = 1, kScaleOfRow = 2 };

template <u32 kColumns_, u32 kCtas_, bool kSwapped_, bool kGrouped_, u32 kRowsShared_ = 1,
          u32 kRows_ = kTileRows, u32 kColumnsShared_ = 1>
struct Sm100Tile {
  static constexpr u32 kColumns = kColumns_;
  static constexpr u32 kCtas = kCtas_;
  static constexpr bool kSwapped = kSwapped_;
  static constexpr bool kGrouped = kGrouped_;
  // Tiles side by side that a cluster computes, each by kCtas CTAs, which share the loads of rows.
  static constexpr u32 kRowsShared = kRowsShared_;
  // Tiles one above the other, likewise, which share the loads of columns.
  static constexpr u32 kColumnsShared = kColumnsShared_;
  static constexpr u32 kTiles = kRowsShared * kColumnsShared;
  // Rows of a CTA. If they are fewer than an MMA's, they are the rows of the MMA that they are of an atom of
  // scales; the MMA multiplies others with them, of which nothing was loaded, and whose sums are not read.
  static constexpr u32 kRows = kRows_;
  static constexpr u32 kClusterCtas = kCtas * kTiles;
  static constexpr u32 kColumnsLoaded = kColumns / kCtas;  // by each CTA of a pair
  static constexpr u32 kColumnAtoms = (kColumns + 127) / 128;
  // Parts of a stage's column scales, each loaded by one of the CTAs that need them: a pair's CTAs have the same
  // columns' scales.
  static constexpr u32 kScaleParts = kCtas * kColumnsShared;
  static constexpr u32 kScaleAtomParts = kScaleParts < kColumnAtoms ? kScaleParts : kColumnAtoms;
  static constexpr u32 kScaleStepParts = kScaleParts / kScaleAtomParts;
  static constexpr u32 kChunk = kColumns < kStoreColumns ? kColumns : kStoreColumns;  // in one TMA store
  static constexpr u32 kStoreBuffer = 32 * kChunk * sizeof(u16);  // bytes: 32 lanes
  // Whether run_mma_split_n multiplies, by two MMAs for each 64 of K: where accumulators overlap and a CTA of a
  // pair loads its columns in two parts, one of each half, anyway.
  static constexpr bool kSplitN = kColumns == 256 && kColumnsShared == 2;
  static constexpr u32 kMmas = kSplitN ? 2 : 1;  // side by side, for each 64 of K
  static constexpr u32 kMmaColumns = kColumns / kMmas;
  static constexpr u32 kColumnParts = kColumnsLoaded / kColumnsShared;  // columns of one load, of each CTA

  struct alignas(1024) Stage {
    u8 rows[kRows * kStageBytes];
    u8 columns[kColumnsLoaded * kStageBytes];
    u8 row_scales[kSteps * kAtomBytes];
    u8 column_scales[kColumnAtoms * kSteps * kAtomBytes];
  };
  struct Control {
    u64 tmem_full[2];
    u64 tmem_empty[2];
    u64 tmem;
  };
  static constexpr u32 kStoreBuffers = kColumns > kChunk ? 2 : 1;  // of a warp
  static constexpr u32 kStoreBytes = 4 * kStoreBuffers * kStoreBuffer;
  static constexpr u32 kStages =  // 5: the barriers behind Control
      (kSharedLimit - kStoreBytes - sizeof(Control) - 5 * sizeof(u64)) / (sizeof(Stage) + 2 * sizeof(u64));
  struct Shared {
    u8 store[4][kStoreBuffers][kStoreBuffer];  // first: an MMA may read rows before those of a stage
    Stage stage[kStages];
    u64 full[kStages];
    u64 empty[kStages];
    Control control;
    u64 received;  // of a split tile; the next are of one with N split
    u64 tmem_full_second_half[2];
    u64 tmem_read[2];
  };
  // Stages at the end of a CTA's last tile whose first halves are all issued before their second halves.
  static constexpr u32 kEpilogueOverlapStages = 4;

  static constexpr u32 kScaleColumns = kSteps * kAtomTmemColumns * (1 + kColumnAtoms);
  static constexpr u32 kRowScales = kTmemColumns - kScaleColumns;
  static constexpr u32 kColumnScales = kRowScales + kSteps * kAtomTmemColumns;
  static constexpr u32 kOverlap = 2 * kColumns > kRowScales ? kStoreColumns : 0;
  // A narrow accumulator is as wide as the load that reads it.
  static constexpr u32 kAccumulator = kColumns < kLoadColumns ? kLoadColumns : kColumns;
  static constexpr u32 kSecondAccumulator = kAccumulator - kOverlap;

  // An atom of scales has 128 rows, which two tiles of 64 columns share; a wider tile begins with one, or, of
  // 192 columns, in the middle of one: its scales are in two atoms either way. Of narrower tiles there is only
  // one, so that its scales begin with an atom, too.
  static_assert(kColumns == 128 || kColumns == 192 || kColumns == 256 ||
                (kSwapped && (kColumns == 16 || kColumns == 32 || kColumns == 64)));
  static_assert(kTileRows % kRows == 0 && (kRows == kTileRows || (kSwapped && kCtas == 1)));
  static_assert(kStoreBytes % alignof(Stage) == 0 && kStoreBytes >= (kTileRows - kRows) * kStageBytes);
  static_assert(sizeof(Stage) >= kTileRows * kStageBytes);
  // Each 128 rows of A have their own expert.
  static_assert(!kGrouped || (kCtas == 1 && !kSwapped));
  // Multicast is for pairs, and a part of a load a whole number of swizzle groups and of atoms.
  static_assert(kTiles == 1 || (kCtas == 2 && kSteps % kRowsShared == 0));
  static_assert(kColumnsShared == 1 || kColumnParts % 8 == 0);
  static_assert(!kSplitN || (kEpilogueOverlapStages <= kStages && kColumnParts * kCtas == kMmaColumns));
  static_assert(kCtas == 1 || (kScaleAtomParts == kColumnAtoms && kSteps % kScaleStepParts == 0));
  static_assert(kSecondAccumulator + kAccumulator <= kRowScales && sizeof(Shared) <= kSharedLimit);
  static_assert(!kSplitN || (kOverlap != 0 && kOverlap <= kMmaColumns));
};

// The tile of gemm_sm100_gate_up.cuh, whose epilogue stores from registers. As Sm100Tile, which says what the
// members are.
struct GateUpTile {
  static constexpr u32 kColumns = 256;
  static constexpr u32 kCtas = 1;
  static constexpr bool kSwapped = false;
  static constexpr bool kGrouped = true;
  static constexpr u32 kRowsShared = 1;
  static constexpr u32 kColumnsShared = 1;
  static constexpr u32 kTiles = 1;
  static constexpr u32 kRows = kTileRows;
  static constexpr u32 kClusterCtas = kCtas * kTiles;
  static constexpr bool kSplitN = false;
  static constexpr u32 kMmas = 2;
  static constexpr u32 kMmaColumns = kColumns / kMmas;
  static constexpr u32 kColumnAtoms = 3;  // of the first box, and of both halves of the second

  struct alignas(1024) Stage {
    u8 rows[kTileRows * kStageBytes];
    u8 columns[kMmas][kMmaColumns * kStageBytes];
    u8 row_scales[kSteps * kAtomBytes];
    u8 column_scales[kColumnAtoms][kSteps * kAtomBytes];
  };
  using Control = Sm100Tile<kColumns, kCtas, kSwapped, kGrouped>::Control;
  static constexpr u32 kStages =
      (kSharedLimit - sizeof(Control)) / (sizeof(Stage) + 2 * sizeof(u64));
  struct Shared {
    Stage stage[kStages];
    u64 full[kStages];
    u64 empty[kStages];
    Control control;
  };

  static constexpr u32 kColumnScales = kTmemColumns - kSteps * kColumnAtoms * kAtomTmemColumns;
  static constexpr u32 kRowScales = kColumnScales - kSteps * kAtomTmemColumns;
  static constexpr u32 kOverlap = kStoreColumns;
  static constexpr u32 kSecondAccumulator = kColumns - kOverlap;

  static_assert(kMmaColumns == kTileRows, "a box has one atom of scales, or parts of two");
  static_assert(kSecondAccumulator + kColumns <= kRowScales && sizeof(Shared) <= kSharedLimit);
};

}  // namespace nvfp4
}  // namespace cukiln
