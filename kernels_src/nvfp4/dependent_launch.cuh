// Programmatic dependent launch (PDL): a kernel may start before its predecessor in the stream has
// completed.
//
// Every kernel launches its dependents behind its wait, but the amax kernels, which do so first: they write
// global scales and amaxes alone. When a kernel starts, all kernels before its predecessor, amax kernels not
// counted, have therefore completed, however many launches of a stream are programmatic; and what that
// predecessor does not write may be read before the wait (a GEMM's constant_b).
// A kernel with tensor memory launches its dependents once it has allocated it: one that waits on the same
// SM with tensor memory of its own would otherwise keep it from starting: a deadlock.
//
// Without the launch attribute the two griddepcontrol functions do nothing.
// CUKILN_MACHINE: its header has these functions, see machine.cuh.
// Source: NVIDIA PTX ISA, griddepcontrol, prefetch.
#pragma once

#ifdef CUKILN_MACHINE
#include CUKILN_MACHINE
#else

namespace cukiln {

// Waits until the preceding kernels in the stream have completed and their writes are visible. Before it a
// kernel must not touch what a predecessor reads or writes; and what a predecessor wrote must not be read
// by __ldg, which the compiler may move across the wait.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Allows the next kernel to start once every thread block has called this or exited. Comes after
// griddepcontrol_wait, but in amax kernels.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Prefetches the 128-byte line of `from` into L2. Allowed before griddepcontrol_wait: L2 is coherent, so a
// predecessor's later write to the line is not lost.
__device__ __forceinline__ void prefetch_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

}  // namespace cukiln

#endif
