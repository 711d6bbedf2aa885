// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compile/compile_job.hpp"
#include "key/compile_request.hpp"
#include "key/cubin.hpp"
#include "key/dependency_set.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// What a compile gave.
struct CompileResult {
  Cubin cubin;
  DependencySet dependencies;
  bool observed = true;  ///< false: the dependency set is not known to be complete; keep in memory
  bool uses_time = false;       ///< __TIME__, __DATE__ or __TIMESTAMP__ is spelt in what was read
  std::int64_t compile_us = 0;  ///< NVRTC's part
};

/// busy: another process holds the guard's lock, nothing was done. superseded: `still_needed`
/// returned false. joined: another process asked for the same before, and its result holds for the
/// files here.
enum class CompileState { done, busy, superseded, joined };

struct CompileOutcome {
  CompileState state = CompileState::done;
  CompileResult result;  ///< when done or joined
  bool stored = false;   ///< the process that compiled has put it into this host's store already
  std::string owner;     ///< when busy: the holder's line, `pid 17 since … compiling amax_gsa`
};

/// From a request to a cubin. Threads: safe; each call that runs has a worker of its own.
class Compiler {
 public:
  virtual ~Compiler() = default;

  /// Who compiles for a target: this one, or another where this one is too old for it.
  virtual Compiler& for_target(Target target) {
    static_cast<void>(target);
    return *this;
  }

  /// Who compiles: version with build, content of the libraries. Cheap when the library's stamp is
  /// in the stat cache (NVRTC is not opened then). Errors: not_found, with every place searched.
  virtual Result<Toolchain> toolchain() = 0;

  /// Whether it sees to it that a request is compiled once for all processes: then nobody needs to
  /// look at the guard's lock before asking.
  virtual bool single_flight() const noexcept { return false; }

  /// A hint: so many compiles may follow. Who has to start something to say what compiles starts
  /// that much at once.
  virtual void hint_upcoming(std::size_t compiles) { static_cast<void>(compiles); }

  /// The folders of CUDA's own headers, in order (for the virtual root /cukiln/toolkit).
  virtual std::vector<std::string> toolkit_folders() = 0;

  /// With a virtual architecture in the arguments the image is PTX (for `show`; never stored).
  /// Errors: compile_failed with the log; timeout (wall clock, cancelled, memory); not_found (NVRTC
  /// or worker missing); incompatible; internal (the worker crashed, with the kernel's name).
  virtual Result<CompileOutcome> compile(const CompileJob& job) = 0;
};

}  // namespace cukiln
