// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cukiln::worker {

/// What of a Sandbox is in force: a kernel may lack or refuse parts of it.
struct Protections {
  std::uint32_t landlock = 0;  ///< Landlock's version in force; 0: none
  bool filters_calls = false;  ///< seccomp is in force
  bool hides_memory = false;   ///< the process is not dumpable
};

/// Keeps a compiler that a text has taken over away from the rest of the machine. Entered once
/// NVRTC is open and before it sees a text:
///
/// - Landlock (Linux 5.13 and later; what its version has): no file, no TCP, no signal and no
///   abstract socket to a process outside.
/// - seccomp: the system calls that NVRTC and the worker make, threads among them; every other one
///   fails with EPERM, as do new executable memory, processes and sockets.
/// - Not dumpable: no process of the same user reads or traces it, unless it is privileged.
class Sandbox {
 public:
  /// Makes the rules. `library_folder` is NVRTC's folder if it opens its builtins library during a
  /// compile; then files in it may be read and mapped as code. Else empty.
  explicit Sandbox(const std::string& library_folder);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  /// Restricts the calling thread and those that it starts from now on.
  Protections enter_on_this_thread() const;

 private:
  bool maps_code_;
  std::uint32_t landlock_ = 0;
  int ruleset_ = -1;
};

}  // namespace cukiln::worker
