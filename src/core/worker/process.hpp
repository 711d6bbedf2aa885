// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace cukiln::worker {

/// Isolates the process: it keeps only the descriptors it was given, and gets an empty environment,
/// `/` as working directory, a session of its own, default signal handlers, no core files, at most
/// `memory_bytes` of address space (0: no limit), and tasks that are counted apart
/// (task_limit.hpp).
void isolate_process(std::uint64_t memory_bytes);

/// Runs `body` on a thread with a stack of `stack_bytes` while this thread waits for the owner's
/// end. When the owner ends, or closes the socket, the process exits immediately, whatever NVRTC is
/// doing, and releases its lock.
[[noreturn]] void run_until_owner_ends(void (*body)(), std::size_t stack_bytes);

/// Runs `body` on the thread that waits in `run_until_owner_ends`, and returns after it. Called by
/// the thread that that function started.
void run_on_waiting_thread(void (*body)());

/// Makes fatal signals of this thread, whose stack is given, send `crashed` to the owner before
/// they end the process.
void report_crashes(const void* stack, std::size_t stack_bytes);

/// Sends `crashed` because NVRTC could not create a thread, and ends the process.
[[noreturn]] void end_for_lack_of_threads();

}  // namespace cukiln::worker
