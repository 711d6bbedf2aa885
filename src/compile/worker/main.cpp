// SPDX-License-Identifier: Apache-2.0
// cukiln-compile-worker: opens NVRTC, compiles what its owner sends, and lets the owner answer for
// every file that NVRTC looks at. Arguments: NVRTC's library, its builtins library (may be empty),
// the limit in bytes of address space, the seconds after which an idle worker ends.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "compile/nvrtc_api.hpp"
#include "compile/worker/allocation.hpp"
#include "compile/worker/clock.hpp"
#include "compile/worker/compile_lock.hpp"
#include "compile/worker/process.hpp"
#include "compile/worker/self_probe.hpp"
#include "compile/worker/served_files.hpp"
#include "key/time_macro.hpp"
#include "wire/frame.hpp"
#include "wire/messages.hpp"

namespace cukiln::worker {
namespace {

using wire::WorkerOp;

// Deep recursion in headers is NVRTC's to refuse, and needs room until it does.
constexpr std::size_t kCompileStackBytes = 64 << 20;

// An owner answers at once, and stores a result within two seconds or gives up.
constexpr std::chrono::seconds kOwnerSilence{5};

struct Arguments {
  std::string library;
  std::string builtins;
  std::uint64_t memory_bytes = 0;
  std::chrono::seconds idle{10};
};
Arguments g_arguments;

/// In what NVRTC is given besides files.
bool spells_time_macro(const wire::Compile& job) {
  const auto spells = [](const std::string& text) { return !find_time_macro(text).empty(); };
  return spells(job.unit_text) || std::any_of(job.arguments.begin(), job.arguments.end(), spells) ||
         std::any_of(job.name_expressions.begin(), job.name_expressions.end(), spells);
}

class Session {
 public:
  void run() {
    // Those who wait for the flight's result would wait for a stopped owner as for a slow compile.
    socket_.when_silent(kOwnerSilence, [this] { flight_.release(); });
    wire::Hello hello;
    hello.error = api_.open(g_arguments.library, g_arguments.builtins);
    int major = 0;
    int minor = 0;
    if (hello.error.empty() && api_.version(&major, &minor) == 0) {
      hello.nvrtc_major = static_cast<std::uint32_t>(major);
      hello.nvrtc_minor = static_cast<std::uint32_t>(minor);
    }
    say(WorkerOp::hello, hello.encode());
    if (!hello.error.empty()) {
      return;
    }
    wire::Frame frame;
    while (socket_.receive(frame, patience()) == wire::IoStatus::ok && handle(frame)) {
    }
  }

 private:
  wire::WaitOptions patience() const {
    // With the lock held the owner is storing a result; its own end would be noticed.
    return flight_.held() ? wire::WaitOptions{}
                          : wire::WaitOptions{std::chrono::steady_clock::now() + g_arguments.idle};
  }

  void say(WorkerOp op, const std::string& body) {
    if (socket_.send(static_cast<std::uint16_t>(op), {body}) != wire::IoStatus::ok) {
      ::_exit(1);
    }
  }

  bool handle(const wire::Frame& frame) {
    switch (static_cast<WorkerOp>(frame.op)) {
      case WorkerOp::probe:
        say(WorkerOp::probed, self_probe(api_, g_arguments.library).encode());
        return true;
      case WorkerOp::lock: return lock(frame.body);
      case WorkerOp::compile: return compile(frame.body);
      case WorkerOp::release:
        flight_.release();
        say(WorkerOp::released, {});
        return true;
      default: return false;
    }
  }

  bool lock(const std::string& body) {
    const auto wanted = wire::Lock::decode(body);
    if (!wanted || flight_.held()) {
      return false;
    }
    switch (flight_.acquire(wanted->path, wanted->owner_line)) {
      case CompileLock::State::held: say(WorkerOp::locked, wire::Locked{}.encode()); break;
      case CompileLock::State::busy:
        say(WorkerOp::busy, wire::Busy{flight_.reason()}.encode());
        break;
      case CompileLock::State::failed:
        say(WorkerOp::locked, wire::Locked{flight_.reason()}.encode());
        break;
    }
    return true;
  }

  bool compile(const std::string& body) {
    const auto job = wire::Compile::decode(body);
    if (!job) {
      return false;
    }
    const auto begin = std::chrono::steady_clock::now();
    ServedFiles& files = ServedFiles::instance();
    files.begin(&socket_, job->unit_path);
    wire::Compiled compiled = compile_observed(*job);
    compiled.compile_us = std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::steady_clock::now() - begin)
                              .count();
    compiled.looked_at = files.end();
    if (compiled.status != wire::CompileStatus::ok && ran_out_of_memory()) {
      compiled.status = wire::CompileStatus::out_of_memory;
    }
    say(WorkerOp::result, compiled.encode());
    // NVRTC has unwound from a failed allocation, but nobody knows how well: a fresh worker is
    // cheap.
    return compiled.status != wire::CompileStatus::out_of_memory;
  }

  /// NVRTC takes the date before it reads a file: when a header turns out to spell a macro of it,
  /// the compile is done again, with the real clock.
  wire::Compiled compile_observed(const wire::Compile& job) {
    const NvrtcOutput output = output_of(job.arguments);
    const bool spelt = spells_time_macro(job);
    wire::Compiled compiled;
    if (!spelt && !job.real_clock) {
      fix_clock();
      compiled = compile_with(api_, job, output);
      release_clock();
      compiled.uses_time = ServedFiles::instance().uses_time();
      if (!compiled.uses_time || ran_out_of_memory()) {
        return compiled;
      }
    }
    compiled = compile_with(api_, job, output);
    compiled.uses_time = spelt || ServedFiles::instance().uses_time();
    return compiled;
  }

  wire::FrameSocket socket_{wire::kWorkerSocket};
  NvrtcApi api_;
  CompileLock flight_;
};

void run_session() {
  static Session session;
  session.run();
}

int main_of(int count, char** values) {
  int type = 0;
  socklen_t size = sizeof type;
  if (count != 5 || ::getsockopt(wire::kWorkerSocket, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr,
                 "cukiln-compile-worker is started by the cukiln library and by nobody else.\n");
    return 2;
  }
  g_arguments.library = values[1];
  g_arguments.builtins = values[2];
  g_arguments.memory_bytes = std::strtoull(values[3], nullptr, 10);
  g_arguments.idle = std::chrono::seconds(std::strtol(values[4], nullptr, 10));
  isolate_process(g_arguments.memory_bytes);
  run_until_owner_ends(run_session, kCompileStackBytes);
}

}  // namespace
}  // namespace cukiln::worker

int main(int count, char** values) { return cukiln::worker::main_of(count, values); }
