// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "compile/compiler.hpp"
#include "compile/nvrtc_compiler.hpp"
#include "compile/worker_process.hpp"

namespace cukiln {

/// What an error has to name.
struct FailureContext {
  const CompileJob& job;
  const NvrtcIdentity& identity;
  std::uint64_t memory_bytes = 0;
  std::string last_words;
};

/// The worker gave no result: time, memory, a signal, a cancelled job.
Error worker_failed(const FailureContext& context, const WorkerReply& reply);

/// NVRTC gave no cubin. The log names the user's own files; the message says what does not fit.
Error compile_failed(const FailureContext& context, const wire::Compiled& compiled, ByteView log,
                     const DependencySet& dependencies);

}  // namespace cukiln
