// SPDX-License-Identifier: Apache-2.0
// cukiln-compile-worker: opens NVRTC, compiles the programs that its owner sends, and asks the
// owner for every file that NVRTC accesses. Arguments: NVRTC's library, its builtins library (may
// be empty), the limit of address space in bytes, the seconds after which an idle worker ends, and
// `link` for a worker that opens nvJitLink in place of NVRTC, and links. Or `--install-headers
// LIBRARY BUILTINS FOLDER`, which compiles nothing.

#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/compile/nvrtc_api.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/file_macro.hpp"
#include "core/key/time_macro.hpp"
#include "core/wire/frame.hpp"
#include "core/wire/messages.hpp"
#include "core/worker/allocation.hpp"
#include "core/worker/clock.hpp"
#include "core/worker/install_headers.hpp"
#include "core/worker/linker.hpp"
#include "core/worker/peak_memory.hpp"
#include "core/worker/process.hpp"
#include "core/worker/sandbox.hpp"
#include "core/worker/self_probe.hpp"
#include "core/worker/served_files.hpp"
#include "core/worker/task_limit.hpp"

namespace cukiln::worker {
namespace {

using wire::WorkerOp;

// Large enough that NVRTC reaches its own limit on nested includes before the stack overflows.
constexpr std::size_t kCompileStackBytes = 64 << 20;

// A live owner answers questions immediately, and stores a result within two seconds or not at all.
constexpr std::chrono::seconds kOwnerSilence{5};

constexpr const char* kLinks = "link";  // the argument of a worker that links

struct Arguments {
  std::string library;
  std::string builtins;
  std::uint64_t memory_bytes = 0;
  std::chrono::seconds idle{10};
  bool links = false;
};
Arguments g_arguments;

/// Whether the program, a header with it, an argument or a name expression is so.
template <class Is>
bool is_one_of_texts(const wire::Compile& job, const Is& is) {
  const auto is_header = [&](const auto& header) { return is(header.second); };
  return is(job.unit_text) || std::any_of(job.headers.begin(), job.headers.end(), is_header) ||
         std::any_of(job.arguments.begin(), job.arguments.end(), is) ||
         std::any_of(job.name_expressions.begin(), job.name_expressions.end(), is);
}

bool spells_time_macro(const wire::Compile& job) {
  return is_one_of_texts(job,
                         [](const std::string& text) { return !find_time_macro(text).empty(); });
}

bool has_hidden_folders(const wire::Compile& job) {
  return job.is_program && job.working_folder == kWorkRoot;
}

class Session {
 public:
  void run() {
    // If the owner is stopped or hangs, the processes that wait for the lock must not wait with it.
    socket_.when_silent(kOwnerSilence, [this] { unlock(); });
    socket_.accept_descriptors();
    wire::Hello hello = g_arguments.links ? open_linker(g_arguments.library) : open_nvrtc();
    if (hello.error.empty()) {
      const Protections active = enter_sandbox();
      hello.landlock = active.landlock;
      hello.filters_calls = active.filters_calls;
      hello.hides_memory = active.hides_memory;
      hello.max_tasks = max_tasks();
    }
    send(WorkerOp::hello, hello.encode());
    if (!hello.error.empty()) {
      return;
    }
    wire::Frame frame;
    while (socket_.receive(frame, idle_wait()) == wire::IoStatus::ok && handle(frame)) {
    }
  }

 private:
  wire::Hello open_nvrtc() {
    wire::Hello hello;
    hello.error = api_.open(g_arguments.library, g_arguments.builtins);
    int major = 0;
    int minor = 0;
    if (hello.error.empty() && api_.version(&major, &minor) == 0) {
      hello.nvrtc_major = static_cast<std::uint32_t>(major);
      hello.nvrtc_minor = static_cast<std::uint32_t>(minor);
    }
    return hello;
  }

  /// Restricts both threads: what takes over this one could write to the other's stack.
  static Protections enter_sandbox() {
    // An NVRTC without a builtins library beside it looks for one in its first compile.
    const std::string& library = g_arguments.library;
    static const Sandbox sandbox(g_arguments.builtins.empty() && !g_arguments.links
                                     ? library.substr(0, library.rfind('/'))
                                     : std::string());
    static Protections waiting;
    run_on_waiting_thread([] { waiting = sandbox.enter_on_this_thread(); });
    const Protections own = sandbox.enter_on_this_thread();
    return {std::min(own.landlock, waiting.landlock), own.filters_calls && waiting.filters_calls,
            own.hides_memory};
  }

  wire::WaitOptions idle_wait() const {
    // While the lock is held the owner is storing a result, however long that takes. Its death
    // would be noticed: see run_until_owner_ends.
    return lock_ >= 0 ? wire::WaitOptions{}
                      : wire::WaitOptions{std::chrono::steady_clock::now() + g_arguments.idle};
  }

  void send(WorkerOp op, const std::string& body) {
    if (socket_.send(static_cast<std::uint16_t>(op), {body}) != wire::IoStatus::ok) {
      ::_exit(1);
    }
  }

  bool handle(const wire::Frame& frame) {
    switch (static_cast<WorkerOp>(frame.op)) {
      case WorkerOp::probe:
        send(WorkerOp::probed, (g_arguments.links ? probe_linker(g_arguments.library)
                                                  : self_probe(api_, g_arguments.library))
                                   .encode());
        return true;
      case WorkerOp::lock: return take_lock();
      case WorkerOp::compile: return !g_arguments.links && compile(frame.body);
      case WorkerOp::link: return g_arguments.links && link(frame.body);
      case WorkerOp::release:
        unlock();
        send(WorkerOp::released, {});
        return true;
      default: return false;
    }
  }

  bool take_lock() {
    unlock();
    lock_ = socket_.take_descriptor();
    if (lock_ >= 0) {
      send(WorkerOp::locked, {});
    }
    return lock_ >= 0;
  }

  /// For all copies of the descriptor: the owner may have kept one.
  void unlock() {
    if (lock_ >= 0) {
      ::flock(lock_, LOCK_UN);
      ::close(lock_);
      lock_ = -1;
    }
  }

  bool compile(const std::string& body) {
    const auto job = wire::Compile::decode(body);
    if (!job) {
      return false;
    }
    const auto begin = std::chrono::steady_clock::now();
    peak_.begin();
    ServedFiles& files = ServedFiles::instance();
    if (job->is_program) {
      files.begin_program(&socket_, job->working_folder);
    } else {
      files.begin(&socket_, job->unit_path);
    }
    wire::Compiled compiled = compile_observed(*job);
    compiled.compile_us = std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::steady_clock::now() - begin)
                              .count();
    compiled.peak_bytes = peak_.bytes();
    compiled.looked_at = files.end();
    if (has_hidden_folders(*job) && files.names_files()) {
      compiled.log += kNamesItsFile;
    }
    if (compiled.status != wire::CompileStatus::ok && ran_out_of_memory()) {
      compiled.status = wire::CompileStatus::out_of_memory;
    }
    send(WorkerOp::result, compiled.encode());
    // After a failed allocation NVRTC's state cannot be trusted, and a new worker is cheap.
    return compiled.status != wire::CompileStatus::out_of_memory;
  }

  bool link(const std::string& body) {
    const auto job = wire::Link::decode(body);
    if (!job) {
      return false;
    }
    const auto begin = std::chrono::steady_clock::now();
    peak_.begin();
    wire::Compiled linked = link_observed(*job);
    linked.compile_us = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::steady_clock::now() - begin)
                            .count();
    linked.peak_bytes = peak_.bytes();
    if (linked.status != wire::CompileStatus::ok && ran_out_of_memory()) {
      linked.status = wire::CompileStatus::out_of_memory;
    }
    send(WorkerOp::result, linked.encode());
    // After an error nvJitLink's state cannot be trusted: a later link in the process may crash.
    return linked.status == wire::CompileStatus::ok;
  }

  /// Compiles with fixed clocks. NVRTC reads the date before it reads any file: if a header turns
  /// out to spell a date macro, the program is compiled again with the real clock.
  wire::Compiled compile_observed(const wire::Compile& job) {
    const OutputKind output = job.is_program ? job.output : output_of(job.arguments);
    std::vector<NamedHeader> headers;
    for (const auto& [name, text] : job.headers) {
      headers.push_back({name, text});
    }
    const bool spelt = spells_time_macro(job);
    wire::Compiled compiled;
    if (!spelt && !job.real_clock) {
      fix_clock();
      compiled = compile_once(job, output, headers);
      release_clock();
      compiled.uses_time = ServedFiles::instance().uses_time();
      if (!compiled.uses_time || ran_out_of_memory()) {
        return compiled;
      }
    }
    compiled = compile_once(job, output, headers);
    compiled.uses_time = spelt || ServedFiles::instance().uses_time();
    return compiled;
  }

  /// If the folders are hidden, the headers' own names are unusable at first: most that spell
  /// `__FILE__` do so in macros that are not expanded. Where the result may be another than that of
  /// the headers as they are, they are compiled so.
  wire::Compiled compile_once(const wire::Compile& job, OutputKind output,
                              const std::vector<NamedHeader>& headers) {
    ServedFiles& files = ServedFiles::instance();
    files.make_names_unusable(has_hidden_folders(job));
    wire::Compiled compiled = compile_with(api_, job, output, headers);
    if (!files.made_names_unusable()) {
      return compiled;
    }
    const bool is_usable = compiled.status == wire::CompileStatus::ok &&
                           !files.looked_for_unusable_name() && !files.pastes_raw_strings() &&
                           compiled.log.find(kUnusableName) == std::string::npos &&
                           !is_one_of_texts(job, may_paste_raw_strings);
    if (is_usable || ran_out_of_memory()) {
      return compiled;
    }
    files.make_names_unusable(false);
    return compile_with(api_, job, output, headers);
  }

  wire::FrameSocket socket_{wire::kWorkerSocket};
  NvrtcApi api_;
  int lock_ = -1;    // a descriptor that has the lock of a compile
  PeakMemory peak_;  // constructed before the sandbox is entered
};

void run_session() {
  static Session session;
  session.run();
}

int main_of(int count, char** values) {
  if (count == 5 && std::strcmp(values[1], "--install-headers") == 0) {
    ::_exit(install_headers(values[2], values[3], values[4]));  // without destructors of NVRTC
  }
  int type = 0;
  socklen_t size = sizeof type;
  const bool links = count == 6 && std::strcmp(values[5], kLinks) == 0;
  if ((count != 5 && !links) ||
      ::getsockopt(wire::kWorkerSocket, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr,
                 "cukiln-compile-worker: not for direct use; the cukiln library starts it.\n");
    return 2;
  }
  g_arguments.library = values[1];
  g_arguments.builtins = values[2];
  g_arguments.memory_bytes = std::strtoull(values[3], nullptr, 10);
  g_arguments.idle = std::chrono::seconds(std::strtol(values[4], nullptr, 10));
  g_arguments.links = links;
  isolate_process(g_arguments.memory_bytes);
  run_until_owner_ends(run_session, kCompileStackBytes);
}

}  // namespace
}  // namespace cukiln::worker

int main(int count, char** values) { return cukiln::worker::main_of(count, values); }
