// A grouped NVFP4 GEMM on sm_100a whose epilogue applies SwiGLU and quantises:
//
//   y[m, width] = NVFP4(SwiGLU(bf16(A[m, :] . B[e, :] * alpha + bias[e, :])))
//
// with a given global scale, or with one of each row's own (row_scales.cuh).
//
// It has the roles and barriers of gemm_sm100_roles.cuh, with a producer and an epilogue of its own. A tile
// is 128 rows of A by two boxes of 128 rows of B, which make 128 columns of y:
//
//   kHalves    the gate rows of these columns, then their up rows; the accumulator is gate | up
//   kPairs     256 consecutive rows; gate and up alternate in the accumulator's columns
//
// Each box has an MMA of its own. The second box of kHalves begins in the middle of an atom of scales where
// width is an odd multiple of 64: its scales are then in two atoms side by side in tensor memory, of which
// the MMA skips the first half.
#pragma once

#include "gemm_sm100_roles.cuh"
#include "quantize_tiles.cuh"
#include "row_scales.cuh"
#include "swiglu.cuh"

namespace cukiln {
namespace nvfp4 {

// The kernel's arguments. The GEMM's n is 2 * width; it has no output, and its decode scales of B are
// weight_decode.
struct GateUpProblem : Sm100Problem {
  u8* data;
  u8* scales;
  const float* weight_decode;
  u32 width;
  u32 layout;
  SwiGlu activate;

  // Rows of B from the first box to the second one.
  __device__ __forceinline__ u32 to_second_box() const {
    return layout == kHalves ? width : GateUpTile::kMmaColumns;
  }
  // B's row, of this expert, of the first box of the tile with these columns.
  __device__ __forceinline__ u32 first_box(u32 column) const {
    return layout == kHalves ? column / 2 : column;
  }
};

// y's global scale is given.
struct FixedScaleProblem : GateUpProblem {
  const float* global_scale;
};

// Each row of y has a global scale of its own. A lane counts the column tiles of its row that are complete; the
// one that completes the last makes bytes of the row's wide scales. No lane waits for another.
struct RowScaleProblem : GateUpProblem {
  uint2* wide_scales;  // of four blocks: [row tile][atom][row of the tile]
  u32* row_states;     // [rows] of {column tiles, largest wide scale}, zeros before the kernel
  float* row_scales_of_y;
};

template <class Tile>
__device__ __forceinline__ u32 first_scale_of(const GateUpProblem& problem, u32) {
  return problem.to_second_box() % kTileRows / 32;
}

template <class Tile>
__device__ __forceinline__ void run_producer(typename Tile::Shared& shared,
                                             const GateUpProblem& problem, u32 rank) {
  griddepcontrol_wait();
  const bool straddles = problem.to_second_box() % kTileRows != 0;
  const u32 bytes = sizeof(typename Tile::Stage) - (straddles ? 0 : kSteps * kAtomBytes);
  PipelineState<Tile::kStages> pipe;
  for (TileScheduler<Tile> tiles(problem, rank); tiles.next();) {
    const u32 first = tiles.expert * problem.n + problem.first_box(tiles.column);
    const u32 second = first + problem.to_second_box();
#pragma unroll 1
    for (u32 s = 0; s < problem.stages(); ++s, pipe.advance()) {
      auto& stage = shared.stage[pipe.index];
      const u32 full = shared_address(&shared.full[pipe.index]);
      mbarrier_wait(shared_address(&shared.empty[pipe.index]), pipe.phase ^ 1);
      mbarrier_arrive_expect(full, bytes);
      tma_load<1>(shared_address(stage.rows), &problem.rows, s * kStageBytes, tiles.row, full);
      tma_load<1>(shared_address(stage.columns[0]), &problem.columns, s * kStageBytes, first, full);
      tma_load<1>(shared_address(stage.columns[1]), &problem.columns, s * kStageBytes, second, full);
      tma_load<1>(shared_address(stage.row_scales), &problem.row_scales, 0, s * kSteps,
                  tiles.row / kTileRows, full);
      tma_load<1>(shared_address(stage.column_scales[0]), &problem.column_scales, 0, s * kSteps,
                  first / kTileRows, full);
      tma_load<1>(shared_address(stage.column_scales[1]), &problem.column_scales, 0, s * kSteps,
                  second / kTileRows, full);
      if (straddles) {
        tma_load<1>(shared_address(stage.column_scales[2]), &problem.column_scales, 0, s * kSteps,
                    second / kTileRows + 1, full);
      }
    }
  }
  drain_stages<Tile>(shared, pipe);
}

// Biases of sixteen rows of B, zeros if there are none.
__device__ __forceinline__ void load_biases(const u16* bias, u32 row, u32 (&pairs)[8]) {
  if (bias != nullptr) {
    load_16_bf16(bias + row, pairs);
  } else {
#pragma unroll
    for (u32 i = 0; i < 8; ++i) pairs[i] = 0;
  }
}

__device__ __forceinline__ u32 scaled_bf16x2(const u32* sums, float alpha, u32 biases) {
  return scaled_bf16x2(sums[0], sums[1], alpha, low_bf16(biases), high_bf16(biases));
}

// Sixteen columns of y, in bf16, from the accumulators of gate and up. `bias`: of this expert, or null; `row`: of
// the first gate; `to_up`: rows from a gate to its up.
__device__ __forceinline__ void activate_halves(const u32* gate, const u32* up, float alpha,
                                                const u16* bias, u32 row, u32 to_up,
                                                const SwiGlu& activate, u32 (&pairs)[8]) {
  u32 of_gate[8];
  u32 of_up[8];
  load_biases(bias, row, of_gate);
  load_biases(bias, row + to_up, of_up);
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    const u32 g = scaled_bf16x2(gate + 2 * i, alpha, of_gate[i]);
    const u32 u = scaled_bf16x2(up + 2 * i, alpha, of_up[i]);
    pairs[i] = pack_bf16x2(activate(low_bf16(g), low_bf16(u)), activate(high_bf16(g), high_bf16(u)));
  }
}

// The same, of accumulators in which gate and up alternate.
__device__ __forceinline__ void activate_pairs(const u32* sum, float alpha, const u16* bias, u32 row,
                                               const SwiGlu& activate, u32 (&pairs)[8]) {
  u32 biases[2][8];
  load_biases(bias, row, biases[0]);
  load_biases(bias, row + 16, biases[1]);
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    const u32 even = scaled_bf16x2(sum + 4 * i, alpha, biases[i / 4][2 * i % 8]);
    const u32 odd = scaled_bf16x2(sum + 4 * i + 2, alpha, biases[i / 4][2 * i % 8 + 1]);
    pairs[i] = pack_bf16x2(activate(low_bf16(even), high_bf16(even)),
                           activate(low_bf16(odd), high_bf16(odd)));
  }
}

// Block scales of 64 columns of one row of y, in two halves, with a given global scale.
struct FixedBlockScales {
  const FixedScaleProblem& problem;
  TensorScale tensor;
  u32 bytes = 0;

  __device__ __forceinline__ explicit FixedBlockScales(const FixedScaleProblem& of)
      : problem(of), tensor{of.global_scale[kEncode], of.global_scale[kDecode]} {}

  __device__ __forceinline__ void begin_row() {}
  __device__ __forceinline__ void begin_columns() { bytes = 0; }
  // Quantises one of the two blocks of a half.
  __device__ __forceinline__ uint2 quantize(const u32 (&pairs)[8], u32 half, u32 block) {
    const u32 scale_byte = tensor.scale_byte(__uint_as_float(amax_of(pairs)));
    bytes |= scale_byte << (half * 2 + block) * 8;
    return encode_block(pairs, scale_byte, tensor.multiplier(scale_byte));
  }
  __device__ __forceinline__ void store(u32 row, u32 column) const {
    const u64 offset =
        scale_byte_offset(row, column / kBlockColumns, nvfp4::scale_atoms(problem.width));
    *reinterpret_cast<u32*>(problem.scales + offset) = bytes;
  }
  __device__ __forceinline__ void end_row(u32, u32) const {}
};

// Makes bytes of a row's wide scales, and writes its global scale.
__device__ __forceinline__ void finish_row(const RowScaleProblem& problem, u32 row) {
  constexpr u32 kAhead = 4;  // loads before the first store
  const GlobalScale scale = row_scale_of(problem.row_states[2 * row + 1]);
  problem.row_scales_of_y[2 * row + kEncode] = scale.encode;
  problem.row_scales_of_y[2 * row + kDecode] = scale.decode;
  const u32 atoms = nvfp4::scale_atoms(problem.width);
  const uint2* const from =
      problem.wide_scales + u64{row / kAtomRows} * atoms * kAtomRows + row % kAtomRows;
  u8* const to = problem.scales + scale_byte_offset(row, 0, atoms);
#pragma unroll 1
  for (u32 first = 0; first < atoms; first += kAhead) {
    uint2 wide[kAhead];
#pragma unroll
    for (u32 i = 0; i < kAhead; ++i) {
      if (first + i < atoms) wide[i] = from[(first + i) * kAtomRows];
    }
#pragma unroll
    for (u32 i = 0; i < kAhead; ++i) {
      if (first + i >= atoms) break;
      *reinterpret_cast<u32*>(to + u64{first + i} * kAtomBytes) =
          scale_byte_of(wide[i].x & 0xFFFF, scale.encode) |
          scale_byte_of(wide[i].x >> 16, scale.encode) << 8 |
          scale_byte_of(wide[i].y & 0xFFFF, scale.encode) << 16 |
          scale_byte_of(wide[i].y >> 16, scale.encode) << 24;
    }
  }
}

// The same with the row's own global scale, which the row's last column tile finds.
struct RowBlockScales {
  const RowScaleProblem& problem;
  uint2 wide{0, 0};
  u32 largest = 0;

  __device__ __forceinline__ explicit RowBlockScales(const RowScaleProblem& of) : problem(of) {}

  __device__ __forceinline__ void begin_row() { largest = 0; }
  __device__ __forceinline__ void begin_columns() {}
  __device__ __forceinline__ uint2 quantize(const u32 (&pairs)[8], u32, u32 block) {
    const u32 scale = wide_scale(amax_of(pairs));
    largest = max(largest, scale);
    if (block == 0) wide.x = wide.y;  // the first half, once the second one begins
    wide.y = block == 0 ? scale : wide.y | scale << 16;
    return encode_block_wide(pairs, scale);
  }
  __device__ __forceinline__ void store(u32 row, u32 column) const {
    const u64 atom = u64{row / kAtomRows} * nvfp4::scale_atoms(problem.width) + column / kAtomColumns;
    problem.wide_scales[atom * kAtomRows + row % kAtomRows] = wide;
  }
  __device__ __forceinline__ void end_row(u32 row, u32 column_tiles) const {
    u32* const state = problem.row_states + 2 * row;
    atomic_max(state + 1, largest);
    if (atomic_add_acq_rel(state, 1) + 1 == column_tiles) finish_row(problem, row);
  }
};

// Reads 64 columns of y at a time, with those of the overlap first, and stores them from registers: a lane's
// row is 32 bytes of data, a whole sector, and 4 bytes of an atom of scales, or 8 of wide ones.
template <class Tile, class Scales>
__device__ __forceinline__ void quantize_tiles_of(typename Tile::Shared& shared,
                                                  const GateUpProblem& problem, u32 rank, u32 tmem,
                                                  Scales scales) {
  constexpr u32 kChunks = Tile::kColumns / 2 / kAtomColumns;
  const u32 lane = threadIdx.x % 32;
  const u32 warp_lanes = threadIdx.x / 32 % 4 * 32;  // of tensor memory, which this warp may read
  const bool halves = problem.layout == kHalves;
  PipelineState<2> pipe;
  for (TileScheduler<Tile> tiles(problem, rank); tiles.next(); pipe.advance()) {
    const float alpha =
        fma_rn(problem.a_global_scale[kDecode], problem.weight_decode[tiles.expert], 0.0f);
    const u16* const bias =
        problem.bias == nullptr ? nullptr : problem.bias + u64{tiles.expert} * problem.n;
    const u32 row = tiles.row + warp_lanes + lane;
    const u32 from = tmem + (warp_lanes << 16) + pipe.index * Tile::kSecondAccumulator;

    mbarrier_wait(shared_address(&shared.control.tmem_full[pipe.index]), pipe.phase);
    tcgen05_fence_after_sync();
    scales.begin_row();
#pragma unroll 1
    for (u32 i = 0; i < kChunks; ++i) {
      const u32 chunk = (pipe.index == 0 ? kChunks - 1 - i : i) * kAtomColumns;
      const u32 column = tiles.column / 2 + chunk;
      scales.begin_columns();
#pragma unroll 1
      for (u32 half = 0; half < 2; ++half) {
        const u32 low_at = from + (halves ? chunk + half * 32 : 2 * (chunk + half * 32));
        u32 low[32];
        u32 high[32];
        tmem_load(low_at, low);
        tmem_load(low_at + (halves ? Tile::kMmaColumns : 32), high);
        if (i == 0 && half == 1) {  // the overlap was read
          tcgen05_fence_before_sync();
          mbarrier_arrive(shared_address(&shared.control.tmem_empty[pipe.index]));
        }
        if (column >= problem.width) continue;
        const u32 first = column + half * 32;
        u32 pairs[2][8];
        if (halves) {
          activate_halves(low, high, alpha, bias, first, problem.width, problem.activate, pairs[0]);
          activate_halves(low + 16, high + 16, alpha, bias, first + 16, problem.width, problem.activate,
                          pairs[1]);
        } else {
          activate_pairs(low, alpha, bias, 2 * first, problem.activate, pairs[0]);
          activate_pairs(high, alpha, bias, 2 * first + 32, problem.activate, pairs[1]);
        }
        uint2 packed[2];
#pragma unroll
        for (u32 block = 0; block < 2; ++block) {
          packed[block] = scales.quantize(pairs[block], half, block);
        }
        *reinterpret_cast<uint4*>(problem.data + (u64{row} * problem.width + column) / 2 + half * 16) = {
            packed[0].x, packed[0].y, packed[1].x, packed[1].y};
      }
      if (column < problem.width) scales.store(row, column);
    }
    scales.end_row(row, tiles.column_tiles);
  }
}

template <class Tile>
__device__ __forceinline__ void run_epilogue(typename Tile::Shared& shared,
                                             const FixedScaleProblem& problem, u32 rank, u32 tmem) {
  quantize_tiles_of<Tile>(shared, problem, rank, tmem, FixedBlockScales(problem));
}

template <class Tile>
__device__ __forceinline__ void run_epilogue(typename Tile::Shared& shared,
                                             const RowScaleProblem& problem, u32 rank, u32 tmem) {
  quantize_tiles_of<Tile>(shared, problem, rank, tmem, RowBlockScales(problem));
}

}  // namespace nvfp4
}  // namespace cukiln
