// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/compile/compile_job.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/cubin.hpp"
#include "core/key/dependency_set.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The result of a compile.
struct CompileResult {
  Cubin cubin;
  DependencySet dependencies;
  bool observed = true;    ///< false if `dependencies` may be incomplete: the result is not stored
  bool uses_time = false;  ///< __TIME__, __DATE__ or __TIMESTAMP__ is spelt in a text: not stored
  std::int64_t compile_us = 0;   ///< time in NVRTC
  std::uint64_t peak_bytes = 0;  ///< memory of the worker at most; 0: not known
};

/// How a call of Compiler::compile ended.
enum class CompileState {
  done,
  busy,        ///< another process holds the guard's lock; nothing was compiled
  superseded,  ///< `still_needed` returned false; nothing was compiled
  joined       ///< another process compiled the same request, and its result holds here too
};

/// The outcome of a call of Compiler::compile that did not fail.
struct CompileOutcome {
  CompileState state = CompileState::done;
  CompileResult result;    ///< if done or joined
  bool stored = false;     ///< the process that compiled has already put it into this host's store
  bool in_daemon = false;  ///< cukilnd has it in a store of its own
  std::string owner;  ///< if busy: the lock's owner line, `pid 17 since … compiling amax_gsa`
};

/// Turns requests into cubins. Threads: safe.
class Compiler {
 public:
  virtual ~Compiler() = default;

  /// Returns the compiler for a target: this one, or another if this one's NVRTC is too old for it.
  virtual Compiler& for_target(Target target) {
    static_cast<void>(target);
    return *this;
  }

  /// Returns NVRTC's version with build, and the digest of its libraries. Cheap if the stat cache
  /// has the libraries' stamps; else opens NVRTC. Errors: not_found, with every folder searched.
  virtual Result<Toolchain> toolchain() = 0;

  /// Returns nvJitLink's version and the digest of its library. Errors: not_found, with every
  /// folder searched.
  virtual Result<Toolchain> linker() = 0;

  /// Returns all targets that NVRTC knows, as cheaply as `toolchain`; none if it cannot list them.
  /// Errors: as toolchain.
  virtual Result<std::vector<Target>> targets() { return std::vector<Target>(); }

  /// True if this compiler itself merges equal requests of all processes (single flight). Callers
  /// then need not check the guard's lock first.
  virtual bool single_flight() const noexcept { return false; }

  /// Announces that about `compiles` compiles will follow, as a hint. Implementations may start
  /// that many workers while they probe the toolchain.
  virtual void hint_upcoming(std::size_t compiles) { static_cast<void>(compiles); }

  /// Returns the folders of CUDA's own headers, in search order (the virtual root
  /// /cukiln/toolkit).
  virtual std::vector<std::string> toolkit_folders() = 0;

  /// Compiles, or links the input's parts. With a virtual architecture in the arguments the image
  /// is PTX (for `show`; not stored). Errors: compile_failed with the log; timeout (wall clock,
  /// cancelled, memory); not_found (NVRTC or worker missing); incompatible; internal (the worker
  /// crashed, with the kernel's name).
  virtual Result<CompileOutcome> compile(const CompileJob& job) = 0;
};

}  // namespace cukiln
