// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <cstdint>

namespace cukiln::worker {

/// Makes the kernel count the tasks of this process apart from the other tasks of its user, so that
/// a limit (RLIMIT_NPROC) applies to this process alone. Called while the process has one thread.
/// Where the kernel permits none of the ways below, it does nothing.
///
/// - The process enters a user namespace of its own: Linux 5.14 and later count by user and
///   namespace. It gains nothing by it: it has no capability and maps no user there.
/// - The kernel exempts a process whose real user is root, and in a user namespace root would lose
///   its access to other users' files (an NVRTC in a home folder). So root's process gets a real
///   user that no other process has, and gives up all capabilities but that access.
void count_tasks_apart();

/// Creates the process's second thread, and limits the tasks of the process if they are counted
/// apart. `start` calls `apply_task_limit` first. Returns 0 or an errno value, as pthread_create.
int create_first_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                        void* argument);

/// Sets the limit for NVRTC's threads. Called by the thread that `create_first_thread` created.
void apply_task_limit();

/// The number of tasks that this process may have; 0 if none was set.
std::uint32_t max_tasks();

}  // namespace cukiln::worker
