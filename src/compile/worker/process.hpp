// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace cukiln::worker {

/// Cuts the process off from its surroundings: only the descriptors it was given, no environment,
/// `/` as the working folder, a session of its own, default signals, no core files, `memory_bytes`
/// of address space (0: no limit).
void isolate_process(std::uint64_t memory_bytes);

/// Runs `body` on a thread with a stack of `bytes`, and stays in this one until the owner is gone:
/// then the process ends at once, whatever NVRTC is doing, and with it everything it holds.
[[noreturn]] void run_until_owner_ends(void (*body)(), std::size_t stack_bytes);

/// On this thread, a fatal signal tells the owner and ends the process.
void report_crashes(const void* stack, std::size_t stack_bytes);

}  // namespace cukiln::worker
