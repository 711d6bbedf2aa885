// The prefill GEMM, m > 32: wgmma with the weights dequantised in registers.
//
// `nvfp4_gemm_expand` first dequantises the tokens to fp16, once, K permuted to the lanes' order. Then a
// persistent, warp-specialised kernel multiplies. A producer thread fills a ring of stages of 128 of K by
// TMA: a tile of fp16 tokens, swizzled, and a tile of NVFP4 weights as they are. Two consumer warpgroups
// dequantise weights into wgmma's register operand (M, 64 rows of B) and multiply by the tokens in shared
// memory (N), one batch of dequantised weights ahead of the tensor cores. Results are transposed through
// shared memory, so that whole rows of the output are stored.
#pragma once

#include "async_copy.cuh"
#include "cluster.cuh"
#include "gemm_sm90_dequantize.cuh"
#include "wgmma.cuh"

namespace cukiln {
namespace nvfp4 {

// Stores four 8x8 matrices of 16-bit values, transposed. Lane i gives the address of row i % 8 of matrix i
// / 8.
__device__ __forceinline__ void stmatrix_x4_trans(u32 address, u32 m0, u32 m1, u32 m2, u32 m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   address),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

__device__ __forceinline__ void warpgroup_sync(u32 id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

// Dequantises tokens [rows, columns] to fp16, each group of 128 columns in the lanes' order, zero-padded to
// whole groups. A thread writes 16 bytes at a time.
__device__ __forceinline__ void expand_tokens(u32* output, const u8* data, const u8* scales, u32 rows,
                                              u32 columns) {
  const u32 groups = (columns + kGroupK - 1) / kGroupK;
  const u32 k_atoms = scale_atoms(columns);
  griddepcontrol_launch_dependents();
  const u64 items = static_cast<u64>(rows) * groups * 16;
  for (u64 item = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; item < items;
       item += static_cast<u64>(gridDim.x) * blockDim.x) {
    const u32 chunk = item & 15;            // MMA chunk / 2, its pairs with k < 8 or with k >= 8
    const u32 group = item / 16 % groups;
    const u32 row = item / 16 / groups;
    const u32 word = chunk >> 2;
    const u32 shift = (0x084Cu >> (4 * (chunk & 3))) & 15;  // pairs (0,4), (2,6), (1,5), (3,7)
    const u8* const row_data = data + static_cast<u64>(row) * (columns / 2) + group * 64;
    const u8* const row_scales = scales +
                                 (static_cast<u64>(row / kAtomRows) * k_atoms + group * 2) * kAtomBytes +
                                 CUKILN_SCALE_ROW_OFFSET(row);
    u32 pairs[4];
#pragma unroll
    for (u32 t = 0; t < 4; ++t) {
      pairs[t] = 0;
      if (group * kGroupK + t * kLaneK < columns) {
        const u32 shifted =
            __ldg(reinterpret_cast<const u32*>(row_data + t * kLaneBytes + word * 4)) << shift;
        const u32 scale = __ldg(row_scales + t / 2 * kAtomBytes + (2 * t + word / 2) % 4);
        pairs[t] = mul_f16x2((shifted & 0x80008000u) | ((shifted >> 3) & 0x0E000E00u),
                             ue4m3x2_to_f16x2(scale * 0x101u));
      }
    }
    reinterpret_cast<uint4*>(output)[item] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

// An output tile is kTokens by kRows rows of B; kRows is 128 or 256. kBlocksPerSm: occupancy.
template <u32 kTokens, u32 kRows, u32 kStages, u32 kBlocksPerSm = 1>
struct PrefillGemm {
  static constexpr u32 kWarpgroups = 2;                 // consumers
  static constexpr u32 kThreads = 128 * (kWarpgroups + 1);
  static constexpr u32 kTiles = kRows / 64 / kWarpgroups;  // of 64 rows, computed by a warpgroup
  static constexpr u32 kTokenBoxBytes = kTokens * 128;       // of 64 of K
  static constexpr u32 kDataBytes = kRows * 64;
  static constexpr u32 kScaleAtoms = kRows / kAtomRows;
  static constexpr u32 kScaleBytes = 2 * kAtomBytes;    // of a stage, in one row of atoms
  static constexpr u32 kStageBytes = 2 * kTokenBoxBytes + kDataBytes + kScaleAtoms * kScaleBytes;
  static constexpr u32 kOutRows = 64 * kTiles;          // that a warpgroup stores
  static constexpr u32 kOutPitch = kOutRows * 2 + 16;   // bytes of a token in the staging buffer
  static constexpr u32 kOutBytes = 32 * kOutPitch;
  static constexpr u32 kSharedBytes =
      1024 + kStages * kStageBytes + kWarpgroups * kOutBytes + 2 * 8 * kStages;
  static constexpr u32 kPartialPitch = kRows + 4;  // floats of a token's partial sums
  static_assert(kTokens * kPartialPitch * 4 <= kStages * kStageBytes, "partial sums reuse the stages' memory");
  static constexpr u32 kRasterTokenTiles = 16;  // token tiles of a raster group, which share weights in L2

  struct TileOrigin {
    u32 token;
    u32 row;
  };
  static __device__ __forceinline__ TileOrigin tile_origin(u32 tile, u32 token_tiles, u32 row_tiles) {
    const u32 raster_group = tile / (kRasterTokenTiles * row_tiles);
    const u32 first = raster_group * kRasterTokenTiles;
    const u32 count = min(token_tiles - first, kRasterTokenTiles);
    const u32 within = tile - first * row_tiles;
    return {(first + within % count) * kTokens, within / count * kRows};
  }

  static __device__ __forceinline__ void run(u16* output, const TensorMap* token_map,
                                             const TensorMap* weight_map, const u8* row_scales,
                                             const float* gsa_a, const float* gsa_b, const u16* bias,
                                             u32 tokens, u32 rows, u32 columns) {
    extern __shared__ uint4 shared[];
    const u32 base = (shared_address(shared) + 1023) & ~1023u;
    const u32 out = base + kStages * kStageBytes;
    const u32 full = out + kWarpgroups * kOutBytes;
    const u32 empty = full + 8 * kStages;
    const u32 token_tiles = (tokens + kTokens - 1) / kTokens;
    const u32 row_tiles = (rows + kRows - 1) / kRows;
    const u32 groups = (columns + kGroupK - 1) / kGroupK;
    const u32 k_atoms = scale_atoms(columns);
    const u32 row_atoms = scale_atom_rows(rows);
    // The CTAs of a cluster split K of one tile. Tiles of a CTA (or cluster) are tile_step apart.
    const u32 rank = block_rank_in_cluster();
    const u32 ranks = cluster_size();
    const u32 begin = groups * rank / ranks;
    const u32 end = groups * (rank + 1) / ranks;
    const u32 first_block_tile = blockIdx.x / ranks;
    const u32 tile_step = gridDim.x / ranks;

    if (threadIdx.x == 0) {
      for (u32 i = 0; i < kStages; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(empty + 8 * i, 128 * kWarpgroups);
      }
      mbarrier_init_fence();
    }
    __syncthreads();
    griddepcontrol_wait();  // nvfp4_gemm_expand

    if (threadIdx.x < 128) {  // the producer warpgroup
      warpgroup_reg_dealloc<kBlocksPerSm == 1 ? 40 : 24>();
      if (threadIdx.x == 0) {
        prefetch_tensormap(token_map);
        prefetch_tensormap(weight_map);
        u32 stage = 0;
        u32 parity = 1;
        for (u32 tile = first_block_tile; tile < token_tiles * row_tiles; tile += tile_step) {
          const TileOrigin origin = tile_origin(tile, token_tiles, row_tiles);
          for (u32 group = begin; group < end; ++group) {
            const u32 to = base + stage * kStageBytes;
            const u32 barrier = full + 8 * stage;
            const u32 scale_bytes = min(2u, k_atoms - 2 * group) * kAtomBytes;
            mbarrier_wait(empty + 8 * stage, parity);
            mbarrier_arrive_expect(barrier, 2 * kTokenBoxBytes + kDataBytes + kScaleAtoms * scale_bytes);
            tma_load<1>(to, token_map, group * kGroupK, origin.token, barrier);
            tma_load<1>(to + kTokenBoxBytes, token_map, group * kGroupK + 64, origin.token, barrier);
            tma_load<1>(to + 2 * kTokenBoxBytes, weight_map, group * 64, origin.row, barrier);
#pragma unroll
            for (u32 i = 0; i < kScaleAtoms; ++i) {
              // Beyond the last row of atoms any scales will do: those results are not stored.
              const u32 atom = min(origin.row / kAtomRows + i, row_atoms - 1);
              bulk_copy(to + 2 * kTokenBoxBytes + kDataBytes + i * kScaleBytes,
                        row_scales + (static_cast<u64>(atom) * k_atoms + 2 * group) * kAtomBytes,
                        scale_bytes, barrier);
            }
            if (++stage == kStages) {
              stage = 0;
              parity ^= 1;
            }
          }
        }
      }
      return;
    }

    warpgroup_reg_alloc<kBlocksPerSm == 1 ? 232 : 104>();
    const u32 warpgroup = threadIdx.x / 128 - 1;
    const u32 warp = threadIdx.x / 32 % 4;
    const u32 lane = threadIdx.x & 31;
    const u32 g = lane >> 2;
    const u32 t = lane & 3;
    const u32 selector = lane_scale_selector(t);
    // Tile i of this warpgroup is tile first_tile + i of the block. Of each 128 rows, even tiles take rows
    // 8 * warp + g and 32 further, odd tiles 64 and 96 further, so that a lane's four scales are adjacent.
    const u32 first_tile = warpgroup * kTiles;
    const u32 lane_row = first_tile / 2 * 128 + first_tile % 2 * 64 + warp * 8 + g;
    const u32 lane_data = 2 * kTokenBoxBytes + lane_row * 64 + t * kLaneBytes;
    const u32 lane_scale_words = 2 * kTokenBoxBytes + kDataBytes + first_tile / 2 * kScaleBytes +
                                 t / 2 * kAtomBytes + (warp * 8 + g) * 16 + first_tile % 2 * 8;
    const float alpha_a = gsa_a[1] * kTwoTo14;
    const float alpha_b = gsa_b[1] * kTwoTo14;
    u32 stage = 0;
    u32 parity = 0;

    for (u32 tile = first_block_tile; tile < token_tiles * row_tiles; tile += tile_step) {
      const TileOrigin origin = tile_origin(tile, token_tiles, row_tiles);
      float sum[kTiles][kTokens / 2];
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
        for (u32 j = 0; j < kTokens / 2; ++j) sum[i][j] = 0.0f;
      }
      u32 operand[2][kTiles][2][4];  // dequantised weights of two MMAs, double-buffered
      u32 last_stage = 0;

      for (u32 group = begin; group < end; ++group) {
        const u32 from = base + stage * kStageBytes;
        mbarrier_wait(full + 8 * stage, parity);
        uint4 data[kTiles][2];
        u32 scales[kTiles][2][2];
        const bool inside = group * kGroupK + t * kLaneK < columns;  // padding scales may be NaN
#pragma unroll
        for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
          for (u32 r = 0; r < 2; ++r) {
            data[i][r] = load_shared(from + lane_data + (2 * i + r) * 32 * 64);
            const u32 word = load_shared_word(from + lane_scale_words + (2 * i + r) * 4);
            lane_scales(inside ? word : 0, selector, scales[i][r]);
          }
        }
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
          u32(&batch)[kTiles][2][4] = operand[w & 1];
#pragma unroll
          for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
            for (u32 r = 0; r < 2; ++r) {
              u32 pairs[4];
              e2m1x8_to_f16x2(word_of(data[i][r], w), pairs);
#pragma unroll
              for (u32 j = 0; j < 4; ++j) {
                batch[i][j / 2][j % 2 * 2 + r] = mul_f16x2(pairs[j], scales[i][r][w / 2]);
              }
            }
          }
          wgmma_fence();
#pragma unroll
          for (u32 half = 0; half < 2; ++half) {
            const u64 token_descriptor =
                wgmma_descriptor(from + w / 2 * kTokenBoxBytes + (w % 2 * 2 + half) * 32);
#pragma unroll
            for (u32 i = 0; i < kTiles; ++i) {
              Wgmma<kTokens>::run(sum[i], batch[i][half], token_descriptor);
            }
          }
          wgmma_commit();
          wgmma_wait<1>();  // the previous batch is complete, its registers may be overwritten
          if (w == 0 && group != begin) mbarrier_arrive_cta(empty + 8 * last_stage);
        }
        last_stage = stage;
        if (++stage == kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
      wgmma_wait<0>();
      mbarrier_arrive_cta(empty + 8 * last_stage);

      float row_bias[kTiles][2];
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
        for (u32 r = 0; r < 2; ++r) {
          const u32 row = origin.row + lane_row + (2 * i + r) * 32;
          row_bias[i][r] = bias != nullptr && row < rows
                          ? __uint_as_float(static_cast<u32>(__ldg(bias + row)) << 16)
                          : 0.0f;
        }
      }
      if (ranks > 1) {
        asm volatile("bar.sync 3, 256;" ::: "memory");  // both warpgroups have read all stages
#pragma unroll
        for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
          for (u32 j = 0; j < kTokens / 2; ++j) {
            const u32 token = j / 4 * 8 + t * 2 + j % 2;
            const u32 row = lane_row + (2 * i + j / 2 % 2) * 32;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(base + (token * kPartialPitch + row) * 4),
                         "f"(sum[i][j])
                         : "memory");
          }
        }
        cluster_sync();
        for (u32 i = threadIdx.x - 128 + rank * 256; i < kTokens * kRows / 4; i += 256 * ranks) {
          const u32 token = origin.token + i / (kRows / 4);
          const u32 row = origin.row + i % (kRows / 4) * 4;
          if (token >= tokens || row >= rows) continue;
          const u32 from_part = base + (i / (kRows / 4) * kPartialPitch + i % (kRows / 4) * 4) * 4;
          float4 total = load_dsmem(from_part, 0);
          for (u32 r = 1; r < ranks; ++r) {
            const float4 more = load_dsmem(from_part, r);
            total.x += more.x;
            total.y += more.y;
            total.z += more.z;
            total.w += more.w;
          }
          uint2 plus = {0, 0};
          if (bias != nullptr) plus = __ldg(reinterpret_cast<const uint2*>(bias + row));
          total.x = total.x * alpha_a * alpha_b + __uint_as_float(plus.x << 16);
          total.y = total.y * alpha_a * alpha_b + __uint_as_float(plus.x & 0xFFFF0000u);
          total.z = total.z * alpha_a * alpha_b + __uint_as_float(plus.y << 16);
          total.w = total.w * alpha_a * alpha_b + __uint_as_float(plus.y & 0xFFFF0000u);
          uint2 packed;
          packed.x = pack_bf16x2(total.x, total.y);
          packed.y = pack_bf16x2(total.z, total.w);
          *reinterpret_cast<uint2*>(output + static_cast<u64>(token) * rows + row) = packed;
        }
        cluster_sync();  // no CTA exits while others read its shared memory
        return;
      }
      // Stages 32 tokens at a time: each token's 64 * kTiles results adjacent, in the output's order.
      const u32 here = out + warpgroup * kOutBytes;
      const u32 matrix = lane / 8;
#pragma unroll
      for (u32 pass = 0; pass < kTokens / 32; ++pass) {
        u32 packed[kTiles][4][2];
#pragma unroll
        for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
          for (u32 j = 0; j < 4; ++j) {
#pragma unroll
            for (u32 r = 0; r < 2; ++r) {
              const float* const two = &sum[i][(pass * 4 + j) * 4 + r * 2];
              const float low = two[0] * alpha_a * alpha_b + row_bias[i][r];
              const float high = two[1] * alpha_a * alpha_b + row_bias[i][r];
              packed[i][j][r] = pack_bf16x2(low, high);
            }
          }
        }
        warpgroup_sync(1 + warpgroup);
#pragma unroll
        for (u32 i = 0; i < kTiles; ++i) {
#pragma unroll
          for (u32 j = 0; j < 4; j += 2) {
            // matrices: tokens j, rows +0 and +32; tokens j + 1, the same
            stmatrix_x4_trans(here + ((j + matrix / 2) * 8 + lane % 8) * kOutPitch +
                              ((2 * i + matrix % 2) * 32 + warp * 8) * 2,
                              packed[i][j][0], packed[i][j][1], packed[i][j + 1][0],
                              packed[i][j + 1][1]);
          }
        }
        warpgroup_sync(1 + warpgroup);
        const u32 row0 = origin.row + first_tile / 2 * 128 + first_tile % 2 * 64;
#pragma unroll
        for (u32 i = threadIdx.x % 128; i < 32 * 8 * kTiles; i += 128) {
          const u32 token = origin.token + pass * 32 + i / (8 * kTiles);
          const u32 row = row0 + i % (8 * kTiles) * 8;
          const uint4 eight = load_shared(here + i / (8 * kTiles) * kOutPitch + i % (8 * kTiles) * 16);
          if (token < tokens && row < rows) {
            *reinterpret_cast<uint4*>(output + static_cast<u64>(token) * rows + row) = eight;
          }
        }
      }
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
