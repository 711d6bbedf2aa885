// SPDX-License-Identifier: Apache-2.0
#pragma once

// tcgen05.cuh on a CPU; emulator.cpp holds what these do.

namespace cukiln {

namespace emulator {
void tmem_alloc(u32 ctas, u32 slot);
void tmem_dealloc(u32 ctas, u32 tmem);
void tcgen05_cp_scales(u32 ctas, u32 tmem, u64 atom);
void tcgen05_mma(u32 ctas, u32 accumulator, u64 rows, u64 columns, u32 instruction, u32 row_scales,
                 u32 column_scales, bool accumulate, u32 first_row, u32 row_count);
void tcgen05_commit(u32 ctas, u32 barrier, u32 mask);
}  // namespace emulator

template <u32 kCtas>
void tmem_alloc(u32 slot) {
  emulator::tmem_alloc(kCtas, slot);
}
template <u32 kCtas>
void tmem_dealloc(u32 tmem) {
  emulator::tmem_dealloc(kCtas, tmem);
}
template <u32 kCtas>
void tcgen05_cp_scales(u32 tmem, u64 atom) {
  emulator::tcgen05_cp_scales(kCtas, tmem, atom);
}
template <u32 kCtas, u32 kRows = 128>
void tcgen05_mma(u32 accumulator, u64 rows, u64 columns, u32 instruction, u32 row_scales,
                 u32 column_scales, bool accumulate, u32 first_row = 0) {
  emulator::tcgen05_mma(kCtas, accumulator, rows, columns, instruction, row_scales, column_scales,
                        accumulate, first_row, kRows);
}
template <u32 kCtas>
void tcgen05_commit(u32 barrier, u32 ctas) {
  emulator::tcgen05_commit(kCtas, barrier, ctas);
}
void tmem_load(u32 tmem, u32 (&value)[32]);
void tcgen05_fence_before_sync();
void tcgen05_fence_after_sync();

}  // namespace cukiln
