// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/kept_fd.hpp"
#include "core/wire/frame.hpp"
#include "core/wire/messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// How to start a worker.
struct WorkerOptions {
  std::string path;     ///< the executable
  std::string library;  ///< NVRTC; nvJitLink if `links`
  std::string builtins;
  std::uint64_t memory_bytes = 0;  ///< limit of its address space; 0 for none
  std::chrono::seconds idle{10};   ///< an idle worker ends by itself after this time
  bool links = false;              ///< the worker links, and compiles nothing
};

/// Why a worker gave no reply.
enum class WorkerFailure {
  none,
  closed,   ///< it ended without a message
  crashed,  ///< a signal ended it; see `WorkerReply::crash`
  timeout,
  cancelled,
  protocol_error,  ///< it sent a message that is malformed or unexpected
};

/// A message from a worker, or the reason for which there is none.
struct WorkerReply {
  WorkerFailure failure = WorkerFailure::none;
  wire::Frame frame;
  wire::Crashed crash;

  bool is(wire::WorkerOp op) const noexcept {
    return failure == WorkerFailure::none && frame.op == static_cast<std::uint16_t>(op);
  }
};

/// One compile worker, a process of this user. The destructor ends it, whatever it is doing, except
/// in a forked child, whose parent owns the worker. Threads: one at a time.
class WorkerProcess {
 public:
  /// Starts a worker without waiting for it. Errors: not_found (no such executable), io;
  /// invalid_argument if another user could have written it (base/trusted_file.hpp).
  static Result<std::unique_ptr<WorkerProcess>> launch(const WorkerOptions& options);
  /// Waits until a launched worker has opened NVRTC. Must be called before any request.
  /// Errors: not_found (the library cannot be opened), timeout, incompatible, internal.
  Result<void> await_hello(const wire::WaitOptions& wait);
  /// Calls `launch` and `await_hello`.
  static Result<std::unique_ptr<WorkerProcess>> start(const WorkerOptions& options,
                                                      const wire::WaitOptions& wait);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Sends a message. False if the worker ended or the wait did.
  bool send(wire::WorkerOp op, std::initializer_list<ByteView> parts,
            const wire::WaitOptions& wait);
  /// Receives the next message.
  WorkerReply receive(const wire::WaitOptions& wait);
  /// Sends a request, with a copy of `descriptor` (or -1), and receives its reply.
  WorkerReply request(wire::WorkerOp op, const std::string& body, const wire::WaitOptions& wait,
                      int descriptor = -1);

  /// False once the worker has ended or closed its socket.
  bool alive() const;
  /// Returns the end of what the worker, or NVRTC in it, wrote to stderr, as `; stderr: …` for
  /// messages; empty if it wrote nothing.
  std::string stderr_tail() const;

  const wire::Hello& hello() const noexcept { return hello_; }
  pid_t pid() const noexcept { return pid_; }
  bool used() const noexcept { return compiles_ != 0; }
  std::uint32_t compiles() const noexcept { return compiles_; }
  void count_compile() noexcept { ++compiles_; }
  /// Whether later compiles may use it.
  bool reusable() const noexcept { return reusable_; }
  void do_not_reuse() noexcept { reusable_ = false; }

 private:
  WorkerProcess() = default;
  wire::WaitOptions with_peer(wire::WaitOptions wait) const;

  std::string path_;  ///< of the executable
  bool links_ = false;
  pid_t owner_ = -1;
  pid_t pid_ = -1;
  bool ours_to_reap_ = false;
  KeptFd socket_;
  KeptFd process_;
  KeptFd error_log_;
  std::unique_ptr<wire::FrameSocket> frames_;
  wire::Hello hello_;
  std::uint32_t compiles_ = 0;
  bool reusable_ = true;
};

/// Finds cukiln-compile-worker: `configured` if given; else beside the library that holds
/// this code (or the executable, if it is linked statically); else in the libexec folder installed
/// with it. The folder of a host's executable is not searched, because another user may own it.
/// Errors: not_found, also if another user could have written the program (base/trusted_file.hpp).
Result<std::string> find_worker(const std::string& configured);

}  // namespace cukiln
