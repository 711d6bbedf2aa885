// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "compile/questions.hpp"
#include "key/compile_request.hpp"
#include "key/cubin.hpp"
#include "key/dependency_set.hpp"
#include "key/entry_labels.hpp"
#include "key/file_server.hpp"

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

/// What is wrong with a compile that failed, as far as the error's code does not tell: for who
/// counts them.
enum class CompileTrouble { other, out_of_memory, garbage };

struct CompileJob {
  const CompileRequest* request = nullptr;
  /// Answers the worker's questions, and says how virtual paths in errors are called here. Null:
  /// the files are another process's, `questions` asks it, and errors name virtual paths.
  FileServer* files = nullptr;
  Questions* questions = nullptr;
  const EntryLabels* labels = nullptr;  ///< for who stores the result; null: it is not to be stored
  std::string label;                    ///< the module's name, for errors and the lock's owner line
  std::chrono::milliseconds timeout{300'000};
  const std::atomic<bool>* cancelled = nullptr;
  CompileTrouble* trouble = nullptr;  ///< where to say it; null: nobody asks

  /// Single flight across processes. Empty: none. The worker itself holds the lock, so that it goes
  /// with the worker whatever becomes of this process and of what it forked.
  std::string flight_lock;
  /// Asked with the lock held: false means somebody else stored the result meanwhile.
  std::function<bool()> still_needed;
  /// Called with the lock held, to store the result before the lock goes.
  std::function<void(const CompileResult&)> publish;
};

/// busy: somebody else holds the flight's lock, nothing was done. superseded: `still_needed` said
/// no. joined: another process asked for the same before, and its result holds for the files here.
enum class CompileState { done, busy, superseded, joined };

struct CompileOutcome {
  CompileState state = CompileState::done;
  CompileResult result;  ///< when done or joined
  bool stored = false;   ///< whoever compiled has put it into this host's store already
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
  /// look at the flight's lock before asking.
  virtual bool keeps_flights() const noexcept { return false; }

  /// A hint: so many compiles may follow. Who has to start something to say what compiles starts
  /// that much at once.
  virtual void expect(std::size_t compiles) { static_cast<void>(compiles); }

  /// The folders of CUDA's own headers, in order (for the virtual root /cukiln/toolkit).
  virtual std::vector<std::string> toolkit_folders() = 0;

  /// With a virtual architecture in the arguments the image is PTX (for `show`; never stored).
  /// Errors: compile_failed with the log; timeout (wall clock, cancelled, memory); not_found (NVRTC
  /// or worker missing); incompatible; internal (the worker crashed, with the kernel's name).
  virtual Result<CompileOutcome> compile(const CompileJob& job) = 0;
};

}  // namespace cukiln
