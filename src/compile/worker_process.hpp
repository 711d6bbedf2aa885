// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/file.hpp"
#include "wire/frame.hpp"
#include "wire/messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

struct WorkerOptions {
  std::string path;     ///< the executable
  std::string library;  ///< NVRTC
  std::string builtins;
  std::uint64_t memory_bytes = 0;  ///< of address space; 0: no limit
  std::chrono::seconds idle{10};   ///< an idle worker ends by itself after this
};

/// How a conversation with a worker went wrong.
enum class WorkerFailure {
  none,
  closed,   ///< it is gone without a word
  crashed,  ///< a signal ended it; `crash` says which
  timeout,
  cancelled,
  protocol_error,  ///< it said something that makes no sense here
};

struct WorkerReply {
  WorkerFailure failure = WorkerFailure::none;
  wire::Frame frame;
  wire::Crashed crash;

  bool is(wire::WorkerOp op) const noexcept {
    return failure == WorkerFailure::none && frame.op == static_cast<std::uint16_t>(op);
  }
};

/// One running compile worker, seen from its owner. The destructor ends it, whatever it is doing;
/// in a forked child it leaves the parent's worker alone.
/// Threads: one at a time.
class WorkerProcess {
 public:
  /// Starts one and does not wait for it. Errors: not_found (no such executable), io;
  /// invalid_argument: another user could have written it (base/trusted_file.hpp).
  static Result<std::unique_ptr<WorkerProcess>> launch(const WorkerOptions& options);
  /// Waits for a launched one to have opened NVRTC; before anything else is asked of it.
  /// Errors: not_found (NVRTC does not open), timeout, incompatible, internal.
  Result<void> greet(const wire::WaitOptions& patience);
  /// Both.
  static Result<std::unique_ptr<WorkerProcess>> start(const WorkerOptions& options,
                                                      const wire::WaitOptions& patience);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  bool send(wire::WorkerOp op, std::initializer_list<ByteView> parts,
            const wire::WaitOptions& patience);
  WorkerReply receive(const wire::WaitOptions& patience);
  /// Both, for what has one answer.
  WorkerReply request(wire::WorkerOp op, const std::string& body, const wire::WaitOptions& patience);

  /// False once it has ended, or hung up, on its own.
  bool alive() const;
  /// The end of what it, or NVRTC, wrote to stderr.
  std::string last_words() const;

  const wire::Hello& hello() const noexcept { return hello_; }
  pid_t pid() const noexcept { return pid_; }
  bool used() const noexcept { return compiles_ != 0; }
  std::uint32_t compiles() const noexcept { return compiles_; }
  void count_compile() noexcept { ++compiles_; }

 private:
  WorkerProcess() = default;
  wire::WaitOptions with_peer(wire::WaitOptions patience) const;

  std::string path_;
  pid_t owner_ = -1;
  pid_t pid_ = -1;
  bool ours_to_reap_ = false;
  UniqueFd socket_;
  UniqueFd process_;
  UniqueFd error_log_;
  std::unique_ptr<wire::FrameSocket> frames_;
  wire::Hello hello_;
  std::uint32_t compiles_ = 0;
};

/// `/usr/libexec/cukiln/cukiln-compile-worker`: `configured` if given, else beside the library that
/// holds this code (or the executable, where it is linked into one), else in the libexec folder
/// that was installed with it. The folder of a host's executable is not looked into: others may own
/// it. Errors: not_found, also for a program that another user could have written
/// (base/trusted_file.hpp), with the reason.
Result<std::string> find_worker(const std::string& configured);

}  // namespace cukiln
