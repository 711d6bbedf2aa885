// tcgen05.cuh on sm_90a, for tests: tensor memory lies in global memory, and the issuing thread
// itself multiplies what the descriptors say, slowly. All else in the kernel is the hardware's: TMA,
// its maps and swizzle, mbarriers, the epilogue. One CTA only: a pair's loads are sm_100a's.
#pragma once

namespace cukiln {

__device__ u32 model_tmem[160][128 * kTmemColumns];  // by thread block: [lane][column]

__device__ __forceinline__ u32& model_at(u32 lane, u32 column) {
  return model_tmem[blockIdx.x][lane * kTmemColumns + column];
}

// A descriptor's address is one of this CTA, without the bits that have its rank in a cluster.
__device__ __forceinline__ u32 model_byte(u32 address) {
  address |= shared_address(dynamic_shared_memory()) & 0xFF000000;
  u32 byte;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(byte) : "r"(address) : "memory");
  return byte;
}

__device__ __forceinline__ u32 model_operand(u64 descriptor, u32 row, u32 k) {
  const u32 start = static_cast<u32>(descriptor & 0x3FFF) << 4;
  const u32 group = static_cast<u32>(descriptor >> 32 & 0x3FFF) << 4;
  if ((descriptor >> 46 & 3) != 1) __trap();
  if (descriptor >> 61 == 0) return start + row / 8 * group + row % 8 * 16 + k;
  const u32 address = start + row / 8 * group + row % 8 * 128 + k;
  return address ^ (address >> 7 & 7) << 4;
}

__device__ __forceinline__ float model_e2m1(u32 code) {
  const u32 magnitude = code & 7;
  const float value =
      magnitude < 2 ? 0.5f * magnitude
                    : __uint_as_float((magnitude / 2 + 126) << 23 | (magnitude & 1) << 22);
  return code & 8 ? -value : value;
}

__device__ __forceinline__ float model_ue4m3(u32 byte) {
  if ((byte & 0x7F) == 0x7F) return __uint_as_float(0x7FFFFFFF);
  const u32 exponent = byte >> 3 & 15, mantissa = byte & 7;
  return exponent != 0 ? __uint_as_float((exponent + 120) << 23 | mantissa << 20)
                       : mantissa * 0.001953125f;
}

template <u32 kCtas>
__device__ void tmem_alloc(u32 slot) {
  if (threadIdx.x % 32 == 0) asm volatile("st.shared.u32 [%0], 0;" ::"r"(slot) : "memory");
}
template <u32 kCtas>
__device__ void tmem_dealloc(u32) {}

template <u32 kCtas>
__device__ __noinline__ void tcgen05_cp_scales(u32 tmem, u64 atom) {
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 column = 0; column < 4; ++column) {
      u32 word = 0;
      for (u32 i = 0; i < 4; ++i) {
        word |= model_byte(model_operand(atom, lane, column * 4 + i)) << i * 8;
      }
      for (u32 quarter = 0; quarter < 4; ++quarter) {
        model_at(quarter * 32 + lane, (tmem & 0xFFFF) + column) = word;
      }
    }
  }
}

template <u32 kCtas, u32 kRows = 128>
__device__ __noinline__ void tcgen05_mma(u32 accumulator, u64 rows, u64 columns, u32 instruction,
                                      u32 row_scales, u32 column_scales, bool accumulate,
                                      u32 first_row = 0) {
  if (kRows != 128) rows = descriptor_before(rows, first_row);
  const u32 n = (instruction >> 17 & 63) << 3;
  if (instruction >> 24 != 8 || (instruction & 0xFFFF) != (1u << 7 | 1u << 10)) __trap();
  for (u32 r = 0; r < 128; ++r) {
    float row[64];
    const u32 scales = model_at(96 + r % 32, (row_scales & 0xFFFF) + r / 32);
    for (u32 k = 0; k < 64; k += 2) {
      const u32 pair = model_byte(model_operand(rows, r, k / 2));
      const float scale = model_ue4m3(scales >> k / 16 * 8 & 0xFF);
      row[k] = model_e2m1(pair & 15) * scale;
      row[k + 1] = model_e2m1(pair >> 4) * scale;
    }
    for (u32 c = 0; c < n; ++c) {
      const u32 word = model_at(64 + c % 32, (column_scales & 0xFFFF) + c / 32);
      u32& sum = model_at(r, (accumulator & 0xFFFF) + c);
      float total = accumulate ? __uint_as_float(sum) : 0.0f;
      for (u32 k = 0; k < 64; k += 2) {
        const u32 pair = model_byte(model_operand(columns, c, k / 2));
        const float scale = model_ue4m3(word >> k / 16 * 8 & 0xFF);
        total += row[k] * (model_e2m1(pair & 15) * scale);
        total += row[k + 1] * (model_e2m1(pair >> 4) * scale);
      }
      sum = __float_as_uint(total);
    }
  }
}

template <u32 kCtas>
__device__ void tcgen05_commit(u32 barrier, u32) {
  __threadfence_block();
  mbarrier_arrive(barrier);
}

__device__ __forceinline__ void tmem_load(u32 tmem, u32 (&value)[32]) {
#pragma unroll
  for (u32 i = 0; i < 32; ++i) {
    value[i] = model_at((tmem >> 16) + threadIdx.x % 32, (tmem & 0xFFFF) + i);
  }
}
__device__ __forceinline__ void tcgen05_fence_before_sync() { __threadfence_block(); }
__device__ __forceinline__ void tcgen05_fence_after_sync() { __threadfence_block(); }

}  // namespace cukiln
