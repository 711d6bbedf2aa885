// Programmatic dependent launch: a kernel that starts while the one before it in the stream ends.
//
// Launched without it, both functions do nothing.
// Source: NVIDIA PTX ISA, griddepcontrol.
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

}  // namespace cukiln
