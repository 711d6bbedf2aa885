// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/compile/compiler.hpp"
#include "core/compile/nvrtc_compiler.hpp"
#include "core/compile/worker_process.hpp"

namespace cukiln {

/// The facts that error messages about a compile mention.
struct FailureContext {
  const CompileJob& job;
  const ToolIdentity& identity;
  std::uint64_t memory_bytes = 0;                       ///< the worker's limit; 0 if it has none
  const char* memory_setting = "compile_memory_bytes";  ///< what to raise
  std::uint32_t max_tasks = 0;                          ///< as wire::Hello::max_tasks
  std::string stderr_tail;                              ///< as WorkerProcess::stderr_tail
  const ToolIdentity* linker = nullptr;                 ///< of a link; null: a compile
};

/// Makes the error for a worker that gave no result: a timeout, a memory limit, a signal, a
/// cancelled job.
Error worker_failed(const FailureContext& context, const WorkerReply& reply);

/// Makes the error for a job that needed more memory than its worker may have.
Error out_of_memory(const FailureContext& context);

/// Makes the error for a compile without a cubin. `log` has virtual paths; the error has real ones.
Error compile_failed(const FailureContext& context, const wire::Compiled& compiled, ByteView log,
                     const DependencySet& dependencies);

}  // namespace cukiln
