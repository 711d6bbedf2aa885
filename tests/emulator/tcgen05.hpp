// SPDX-License-Identifier: Apache-2.0
#pragma once

// tcgen05.cuh on a CPU; emulator.cpp holds what these do.

namespace cukiln {

namespace emulator {
void tmem_allocate(u32 ctas, u32 slot);
void tmem_free(u32 ctas, u32 tmem);
void copy_scales(u32 ctas, u32 tmem, u64 atom);
void multiply(u32 ctas, u32 accumulator, u64 rows, u64 columns, u32 instruction, u32 row_scales,
              u32 column_scales, bool accumulate);
void commit(u32 ctas, u32 barrier);
}  // namespace emulator

template <u32 kCtas>
void tmem_allocate(u32 slot) {
  emulator::tmem_allocate(kCtas, slot);
}
template <u32 kCtas>
void tmem_free(u32 tmem) {
  emulator::tmem_free(kCtas, tmem);
}
template <u32 kCtas>
void copy_scales(u32 tmem, u64 atom) {
  emulator::copy_scales(kCtas, tmem, atom);
}
template <u32 kCtas>
void multiply(u32 accumulator, u64 rows, u64 columns, u32 instruction, u32 row_scales,
              u32 column_scales, bool accumulate) {
  emulator::multiply(kCtas, accumulator, rows, columns, instruction, row_scales, column_scales,
                     accumulate);
}
template <u32 kCtas>
void commit(u32 barrier) {
  emulator::commit(kCtas, barrier);
}
void tmem_load(u32 tmem, u32 (&value)[32]);
void fence_before_sync();
void fence_after_sync();

}  // namespace cukiln
