// Programmatic dependent launch: a kernel that starts while the one before it in the stream ends.
//
// Launched without it, the first two functions do nothing.
// Source: NVIDIA PTX ISA, griddepcontrol, prefetch.
#pragma once

namespace cukiln {

// Everything before in the stream is done and visible after this. Nothing that a kernel before may
// write or read is touched earlier, and what it wrote is not read by __ldg, which the compiler may
// move to before this.
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next kernel start, once all blocks have said so or ended.
__device__ __forceinline__ void allow_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// The 128 bytes around `from`, into L2. Before wait_for_previous_kernel too: a kernel that writes
// there passes L2 as well, and nothing is read.
__device__ __forceinline__ void prefetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

}  // namespace cukiln
