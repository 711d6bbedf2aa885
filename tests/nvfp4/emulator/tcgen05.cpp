// SPDX-License-Identifier: Apache-2.0
// Tensor memory, and MMAs as their descriptors define them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>

#include "emulator/cta.hpp"

namespace cukiln::emulator {
namespace {

u32& tmem_at(Cta& cta, u32 lane, u32 column) {
  const bool allocated =
      &cta == self->cta ? cta.allocated : cta.has_allocated.load(std::memory_order_relaxed);
  if (!allocated || cta.freed.load(std::memory_order_relaxed)) {
    fault("tensor memory is used without being allocated");
  }
  if (lane >= kLanes || column >= kTmemColumns) {
    fault("tensor memory has no lane %u, column %u", lane, column);
  }
  return cta.tmem[lane * kTmemColumns + column];
}

// Offset in shared memory of byte `k` of row `row` of an operand.
u32 operand_offset(u64 descriptor, u32 row, u32 k) {
  const u32 start = static_cast<u32>(descriptor & 0x3FFF) << 4;
  const u32 group_stride = static_cast<u32>(descriptor >> 32 & 0x3FFF) << 4;
  if ((descriptor >> 46 & 3) != 1 || (descriptor >> 49 & 7) != 0 || (descriptor >> 52 & 1) != 0) {
    fault("descriptor %016llx: version 1, base offset 0 and relative strides are expected",
          descriptor);
  }
  switch (descriptor >> 61) {
    case 0:
      if (k >= 16) fault("an operand without swizzle has 16 bytes a row");
      return start + row / 8 * group_stride + row % 8 * 16 + k;
    case 2: return swizzled(start + row / 8 * group_stride + row % 8 * 128 + k);
    default: fault("descriptor %016llx: swizzle mode %llu", descriptor, descriptor >> 61);
  }
}

float e2m1(u32 bits) {
  constexpr float kMagnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (bits & 8) != 0 ? -kMagnitude[bits & 7] : kMagnitude[bits & 7];
}

float ue4m3(u32 byte) {
  if ((byte & 0x7F) == 0x7F) {
    return NAN;
  }
  const int exponent = static_cast<int>(byte >> 3 & 15);
  const auto mantissa = static_cast<float>(byte & 7);
  return exponent != 0 ? std::ldexp(1 + mantissa / 8, exponent - 7) : std::ldexp(mantissa / 8, -6);
}

constexpr u32 kStep = 64;

// Decodes one row of an operand, elements times scales. The scales are in tensor memory of
// `scale_cta`.
void decode_row(Cta& cta, u64 descriptor, u32 row, Cta& scale_cta, u32 scales, u32 scale_row,
                float* out) {
  const u32 column = (scales & 0xFFFF) + scale_row / 32;
  u32 word = 0;
  for (u32 quarter = 0; quarter < 4; ++quarter) {
    const u32 copy = tmem_at(scale_cta, quarter * 32 + scale_row % 32, column);
    if (quarter != 0 && copy != word) {
      fault("the four copies of a row's scales differ");
    }
    word = copy;
  }
  for (u32 k = 0; k < kStep; k += 2) {
    const u8 pair = *shared_bytes(cta, operand_offset(descriptor, row, k / 2), 1, "operand");
    const float scale = ue4m3(word >> k / 16 * 8 & 0xFF);
    out[k] = e2m1(pair & 15) * scale;
    out[k + 1] = e2m1(pair >> 4) * scale;
  }
}

// Arithmetic on private copies cannot race, so it is not instrumented.
[[gnu::no_sanitize("thread")]] void multiply_row(float* sum, const float* row,
                                                 const float (*columns)[256], u32 count) {
  for (u32 k = 0; k < kStep; ++k) {
    for (u32 n = 0; n < count; ++n) {
      sum[n] += row[k] * columns[k][n];
    }
  }
}

// The CTAs of a cta_group: the one that issues, or the pair whose first it is.
std::span<const std::unique_ptr<Cta>> group_of(u32 ctas) {
  return std::span(self->cta->cluster->ctas).subspan(self->cta->rank, ctas);
}

void expect_issue(u32 ctas) {
  if (!self->after_fence) {
    fault("a tcgen05 instruction after a wait and before tcgen05_fence_after_sync");
  }
  if (self->cta->cluster->ctas.size() % ctas != 0 || self->cta->rank % ctas != 0) {
    fault("cta_group::%u is issued by rank %u of %zu", ctas, self->cta->rank,
          self->cta->cluster->ctas.size());
  }
}

}  // namespace

void tmem_alloc(u32 ctas, u32 slot) {
  if (!elect_one_sync()) {
    return;
  }
  if (self->cta->cluster->ctas.size() % ctas != 0 || self->cta->allocated) {
    fault("tcgen05.alloc: twice, or cta_group::%u in a cluster of %zu", ctas,
          self->cta->cluster->ctas.size());
  }
  if (ctas == 2 && self->cta->cluster->all.generation == 0) {
    fault("tcgen05.alloc for two CTAs, before a cluster barrier has shown that the other CTA runs");
  }
  self->cta->allocated = true;
  self->cta->has_allocated.store(true, std::memory_order_relaxed);
  std::memset(shared_bytes(*self->cta, slot & kOffsetMask, 4, "tcgen05.alloc"), 0, 4);
}

void tmem_dealloc(u32 ctas, u32 tmem) {
  if (!elect_one_sync()) {
    return;
  }
  if (!self->after_fence) {
    fault("tcgen05.dealloc after a wait and before tcgen05_fence_after_sync");
  }
  if (tmem != 0 || !self->cta->allocated) {
    fault("tcgen05.dealloc of tensor memory that is not allocated");
  }
  self->cta->allocated = false;
  const u32 first = self->cta->rank / ctas * ctas;
  for (u32 rank = first; rank < first + ctas; ++rank) {
    self->cta->cluster->ctas[rank]->freed.store(true, std::memory_order_relaxed);
  }
}

namespace {

void copy_scales(u32 ctas, u32 tmem, u64 atom) {
  for (const auto& cta : group_of(ctas)) {
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 column = 0; column < 4; ++column) {
        u32 word;
        std::memcpy(&word,
                    shared_bytes(*cta, operand_offset(atom, lane, column * 4), 4, "tcgen05.cp"), 4);
        for (u32 quarter = 0; quarter < 4; ++quarter) {
          tmem_at(*cta, quarter * 32 + lane, (tmem & 0xFFFF) + column) = word;
        }
      }
    }
  }
}

// Rows of the MMA that A has not are read from whatever is there; so they get NaN here.
void multiply(u32 ctas, u32 accumulator, u64 rows, u64 columns, u32 instruction, u32 row_scales,
              u32 column_scales, bool accumulate, u32 first_row, u32 row_count) {
  const u32 m = (instruction >> 24 & 31) << 4;
  const u32 n = (instruction >> 17 & 63) << 3;
  constexpr u32 kExpected = 1u << 7 | 1u << 10;  // E2M1 twice; all else 0
  constexpr u32 kShape = 31u << 24 | 63u << 17;
  if ((instruction & ~kShape) != kExpected || m != ctas * kLanes || n == 0 || n > 256 ||
      n % (8 * ctas) != 0) {
    fault("tcgen05.mma: instruction descriptor %08x", instruction);
  }
  if (first_row + row_count > kLanes || first_row % 8 != 0) {
    fault("tcgen05.mma: %u rows from row %u on", row_count, first_row);
  }
  for (const u32 row : {0u, kLanes - 1}) {  // it reads all of them
    if (const u64 whole = descriptor_before(rows, first_row); (whole & 0x3FFF) > (rows & 0x3FFF)) {
      fault("tcgen05.mma: rows before shared memory");
    } else {
      shared_bytes(*self->cta, operand_offset(whole, row, 0) & ~15u, 16, "operand");
    }
  }
  const auto pair = group_of(ctas);
  static thread_local float column_values[kStep][256];
  float row_values[kStep];
  float sum[256];
  for (u32 rank = 0; rank < ctas; ++rank) {
    Cta& cta = *pair[rank];
    for (u32 column = 0; column < n; ++column) {  // each CTA holds its share of the columns
      decode_row(*pair[column / (n / ctas)], columns, column % (n / ctas), cta, column_scales,
                 column, row_values);
      for (u32 k = 0; k < kStep; ++k) {
        column_values[k][column] = row_values[k];
      }
    }
    for (u32 row = 0; row < kLanes; ++row) {
      if (row - first_row >= row_count) {
        std::fill_n(&tmem_at(cta, row, accumulator & 0xFFFF), n, kPoison);
        continue;
      }
      decode_row(cta, rows, row - first_row, cta, row_scales, row, row_values);
      for (u32 column = 0; column < n; ++column) {
        u32& word = tmem_at(cta, row, (accumulator & 0xFFFF) + column);
        sum[column] = accumulate ? __uint_as_float(word) : 0.0f;
      }
      multiply_row(sum, row_values, column_values, n);
      for (u32 column = 0; column < n; ++column) {
        tmem_at(cta, row, (accumulator & 0xFFFF) + column) = __builtin_bit_cast(u32, sum[column]);
      }
    }
  }
}

}  // namespace

void tcgen05_cp_scales(u32 ctas, u32 tmem, u64 atom) {
  expect_issue(ctas);
  self->cta->tensor_core->issue([=] { copy_scales(ctas, tmem, atom); });
}

void tcgen05_mma(u32 ctas, u32 accumulator, u64 rows, u64 columns, u32 instruction, u32 row_scales,
                 u32 column_scales, bool accumulate, u32 first_row, u32 row_count) {
  expect_issue(ctas);
  self->cta->tensor_core->issue([=] {
    multiply(ctas, accumulator, rows, columns, instruction, row_scales, column_scales, accumulate,
             first_row, row_count);
  });
}

void tcgen05_commit(u32 ctas, u32 barrier, u32 mask) {
  const auto& all = self->cta->cluster->ctas;
  if (ctas == 2 && (mask == 0 || mask >> all.size() != 0)) {
    fault("tcgen05.commit: multicast to the CTAs %#x of a cluster of %zu", mask, all.size());
  }
  AsyncUnit& tensor_core = *self->cta->tensor_core;
  tensor_core.issue([=, &tensor_core, &all] {
    for (const auto& cta : all) {
      if (ctas == 1 ? cta.get() != self->cta : (mask >> cta->rank & 1) == 0) {
        continue;
      }
      Mbarrier& at = async_mbarrier_at((barrier & kOffsetMask) | cta->rank << kRankShift, true);
      tensor_core.arrive_later([&at] { update(at, 1, 0); });
    }
  });
}

}  // namespace cukiln::emulator

namespace cukiln {

using namespace emulator;

void tmem_load(u32 tmem, u32 (&value)[32]) {
  if (!self->after_fence) {
    fault("tcgen05.ld after a wait and before tcgen05_fence_after_sync");
  }
  const u32 lane = tmem >> 16;
  if (lane != self->index / 32 % 4 * 32) {
    fault("tcgen05.ld: warp %u may not read lane %u", self->index / 32, lane);
  }
  for (u32 i = 0; i < 32; ++i) {
    value[i] = tmem_at(*self->cta, lane + self->index % 32, (tmem & 0xFFFF) + i);
  }
  self->unfenced_loads = true;
}

void tcgen05_fence_before_sync() { self->unfenced_loads = false; }
void tcgen05_fence_after_sync() { self->after_fence = true; }

}  // namespace cukiln
