// SPDX-License-Identifier: Apache-2.0
// A libnvrtc that follows directives in comments of the source. The worker that opens it has no
// environment, so tests and directives exchange everything else through files:
//
//   // fake: count FILE       appends a byte to FILE, which shows that the compile got here
//   // fake: wait FILE        waits until FILE exists, for two minutes at most
//   // fake: include PATH     reads PATH as NVRTC reads a header; the image depends on its bytes,
//                             and the header's own directives come next
//   // fake: look PATH        stats PATH; the image depends on whether it exists
//   // fake: sleep MS | spin | segv | abort | overflow | oom
//   // fake: error TEXT       fails with TEXT as the log
//   // fake: clock            logs the clocks at the start of the compile, the time zone and the
//                             process's number: `clock 946684800 946684800 946684800 UTC 1`
//   // fake: threads N         runs N threads together, as NVRTC does with --split-compile=N
//   // fake: try CALL ARGUMENT   makes a system call that the sandbox must refuse, and logs
//                             `try CALL: ` and the error, 0 for none
//   // fake: touch MIB        uses that much memory, and gives it back
//   // fake: deafen           keeps the worker's first thread from ever noticing its owner's end
//   // fake: warn TEXT        succeeds with TEXT in the log
//   // fake: code N           returns that nvrtcResult
//   // fake: empty | garbage | sm N    succeeds with no image, with one that is no ELF, for sm_N
//
// Its kernels are the words after `__global__ void`. With FAKE_NVRTC_UNOBSERVED it reads files by
// system calls, as an NVRTC would that cannot be observed.

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr int kCompilationError = 6;

struct Program {
  std::string text;
  std::string name;
  std::string log;
  std::string ptx;
  std::string image;
  std::vector<std::string> expressions;
};

bool read_file(const std::string& path, std::string& out) {
#ifdef FAKE_NVRTC_UNOBSERVED
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY));
  if (fd < 0) {
    return false;
  }
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(fd, buffer, sizeof buffer)) > 0) {
    out.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return true;
#else
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return false;
  }
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) {
    return false;
  }
  char buffer[4096];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, file)) > 0) {
    out.append(buffer, got);
  }
  std::fclose(file);
  return true;
#endif
}

/// Runs functions on a thread that started before the worker restricted its own, and which may open
/// files. Only in a worker; elsewhere in the caller's thread.
class OutsideSandbox {
 public:
  OutsideSandbox() {
    if (std::strstr(program_invocation_short_name, "compile-worker") != nullptr) {
      std::thread([this] { serve(); }).detach();
      is_serving_ = true;
    }
  }
  template <class Body>
  void run(const Body& body) {
    if (!is_serving_) {
      return body();
    }
    std::unique_lock lock(mutex_);
    body_ = body;
    changed_.notify_all();
    changed_.wait(lock, [&] { return body_ == nullptr; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return body_ != nullptr; });
      body_();
      body_ = nullptr;
      changed_.notify_all();
    }
  }

  bool is_serving_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> body_;
};
OutsideSandbox& outside() {
  static auto* const instance = new OutsideSandbox;  // its thread may outlive this library
  return *instance;
}
__attribute__((constructor)) void start_outside() { outside(); }

/// By system calls, since the worker refuses to write while it observes.
void append_byte(const std::string& path) {
  outside().run([&] {
    const int fd = static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    if (fd >= 0) {
      const ssize_t ignored = ::write(fd, "x", 1);
      static_cast<void>(ignored);
      ::close(fd);
    }
  });
}

/// By system calls, so that the file is no dependency. Counts pauses: the clocks stand still.
void wait_for(const std::string& path) {
  constexpr int kPauses = 120'000;
  outside().run([&] {
    struct stat status {};
    for (int i = 0;
         i < kPauses && ::syscall(SYS_newfstatat, AT_FDCWD, path.c_str(), &status, 0) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

volatile char* g_sink = nullptr;

__attribute__((noinline)) int overflow(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  g_sink = frame;
  return overflow(depth + 1) + frame[0];
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  return hash;
}

std::string elf_for(int sm, std::string_view content) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 0x41;
  header.e_ident[EI_ABIVERSION] = 8;
  header.e_machine = 190;
  header.e_entry =
      hash_of(content);  // a driver gets the header only: it tells images apart by this
  header.e_flags = static_cast<Elf64_Word>(sm << 8);
  header.e_ehsize = sizeof header;
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  char line[40];
  std::snprintf(line, sizeof line, "fake cubin %016llx\n",
                static_cast<unsigned long long>(hash_of(content)));
  return image + line;
}

std::vector<std::string> kernels_of(const std::string& text) {
  constexpr std::string_view kBefore = "__global__ void ";
  std::vector<std::string> names;
  for (std::size_t at = text.find(kBefore); at != std::string::npos;
       at = text.find(kBefore, at + 1)) {
    const std::size_t begin = at + kBefore.size();
    names.push_back(text.substr(begin, text.find('(', begin) - begin));
  }
  return names;
}

/// What NVRTC prints for the self-probe of cukiln's worker, whose assertion fails.
std::string probe_log() {
  std::string seen;
  const bool observed = read_file("/cukiln/probe/seen.cuh", seen);
  return std::string("probe.cu(9): error: static assertion failed with \"cukiln probe: ") +
         (observed ? "1" : "0") + " 0 13.0.99;\"\n";
}

struct Directive {
  std::string what;
  std::string rest;
};

std::vector<Directive> directives_in(const std::string& source) {
  constexpr std::string_view kMark = "// fake: ";
  std::vector<Directive> directives;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t at = line.find(kMark); at != std::string::npos) {
      const std::string text = line.substr(at + kMark.size());
      const std::size_t blank = std::min(text.find(' '), text.size());
      directives.push_back({text.substr(0, blank), text.substr(std::min(blank + 1, text.size()))});
    }
  }
  return directives;
}

std::string clock_line() {
  const std::time_t now = std::time(nullptr);
  timespec monotonic{};
  ::clock_gettime(CLOCK_MONOTONIC, &monotonic);
  timespec by_number{};
  ::syscall(SYS_clock_gettime, CLOCK_REALTIME, &by_number);
  char zone[16];
  std::strftime(zone, sizeof zone, "%Z", std::localtime(&now));
  return "clock " + std::to_string(now) + " " + std::to_string(monotonic.tv_sec) + " " +
         std::to_string(by_number.tv_sec) + " " + zone + " " + std::to_string(::getpid()) + "\n";
}

/// Starts threads that never end until the kernel refuses one, by libc's function and not by the
/// worker's. Returns their number, and the error.
std::string bomb(int most) {
  const auto create =
      reinterpret_cast<decltype(&::pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, 64 << 10);  // thousands fit into the memory limit
  const auto sleep = [](void*) -> void* {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  };
  int error = 0;
  int count = 0;
  for (pthread_t thread; count < most && error == 0; count += error == 0 ? 1 : 0) {
    error = create(&thread, &attributes, sleep, nullptr);
  }
  return std::to_string(count) + " " + std::strerror(error);
}

void run_threads(int count) {
  std::mutex all_run;
  std::unique_lock lock(all_run);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] { const std::scoped_lock wait(all_run); });
  }
  lock.unlock();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// One attempt to leave the sandbox; tests/core/compile/sandbox_test.cpp has the list.
std::string attempt(const std::string& order) {
  const std::size_t blank = std::min(order.find(' '), order.size());
  const std::string call = order.substr(0, blank);
  const std::string argument = order.substr(std::min(blank + 1, order.size()));
  const char* const path = argument.c_str();
  const int number = std::atoi(path);
  long result = -1;
  errno = 0;
  if (call == "read") {
    result = ::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  } else if (call == "list") {
    result = ::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } else if (call == "create") {
    result = ::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  } else if (call == "remove") {
    result = ::syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  } else if (call == "rename") {
    result = ::syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, (argument + ".new").c_str(), 0);
  } else if (call == "socket") {
    result = ::syscall(SYS_socket, number, SOCK_STREAM, 0);
  } else if (call == "fork") {
    result = ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (result == 0) {
      ::_exit(0);
    }
  } else if (call == "exec") {
    char* const none[] = {nullptr};
    result = ::syscall(SYS_execve, path, none, none);
  } else if (call == "kill") {
    result = ::syscall(SYS_kill, number, 0);
  } else if (call == "fcntl") {  // COMMAND VALUE, on standard input or what took its place
    int command = 0, value = 0;
    std::sscanf(path, "%d %d", &command, &value);
    result = ::syscall(SYS_fcntl, 0, command, value);
  } else if (call == "tgkill") {
    result = ::syscall(SYS_tgkill, number, number, 0);
  } else if (call == "ptrace") {
    result = ::syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, number, 0, 0);
  } else if (call == "memory") {
    result = ::syscall(SYS_process_vm_readv, number, nullptr, 0, nullptr, 0, 0);
  } else if (call == "code") {
    result = ::syscall(SYS_mmap, nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0) != -1
                 ? 0
                 : -1;
  } else if (call == "namespace") {
    result = ::syscall(SYS_unshare, CLONE_NEWUSER);
  } else if (call == "ring") {
    result = ::syscall(SYS_io_uring_setup, 1, nullptr);
  } else if (call == "limit") {
    const rlimit64 none{RLIM_INFINITY, RLIM_INFINITY};
    result = ::syscall(SYS_prlimit64, number, RLIMIT_AS, &none, nullptr);
  } else if (call == "descriptor") {
    result = ::syscall(SYS_pidfd_open, number, 0);
  } else if (call == "signal_by") {  // descriptor 4 is the owner's pidfd
    result = ::syscall(SYS_pidfd_send_signal, number, 0, nullptr, 0);
  } else if (call == "descriptor_by") {
    result = ::syscall(SYS_pidfd_getfd, number, 0, 0);
  } else if (call == "keys") {
    result = ::syscall(SYS_keyctl, 0 /* KEYCTL_GET_KEYRING_ID */, -3 /* of the session */, 1);
  } else if (call == "write") {
    result = ::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  } else if (call == "memory_file") {
    result = ::syscall(SYS_memfd_create, "fake", 0);
  } else if (call == "fill") {  // the only file on disk that is open, at this offset
    for (int fd = 0; fd < 64; ++fd) {
      struct stat status {};
      if (::syscall(SYS_fstat, fd, &status) == 0 && S_ISREG(status.st_mode) &&
          status.st_nlink != 0 && status.st_size != 0) {
        result = ::syscall(SYS_pwrite64, fd, "x", 1, static_cast<off_t>(number));
        break;
      }
    }
  } else if (call == "lock") {
    result = ::syscall(SYS_flock, 0, LOCK_EX | LOCK_NB);
  } else if (call == "raise") {  // a limit of its own
    const rlimit64 none{RLIM_INFINITY, RLIM_INFINITY};
    result = ::syscall(SYS_prlimit64, 0, number, &none, nullptr);
  } else if (call == "threads") {
    return "try " + order + ": " + bomb(number) + "\n";
  } else if (call == "thread") {  // what NVRTC may do, and must be able to
    std::thread([] {}).join();
    result = 0;
  } else {
    errno = EINVAL;
  }
  return "try " + order + ": " + (result >= 0 ? "allowed" : std::strerror(errno)) + "\n";
}

/// Runs a signal handler that never returns on the worker's first thread.
void deafen() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    for (;;) {
      ::sleep(1);
    }
  };
  ::sigaction(SIGUSR1, &action, nullptr);
  const auto real = reinterpret_cast<pid_t (*)()>(::dlsym(RTLD_NEXT, "getpid"));
  ::syscall(SYS_tgkill, real(), real(), SIGUSR1);
}

int compile(Program& program, int sm) {
  if (program.text.find("static_assert(false, CUKILN_PROBE)") != std::string::npos) {
    program.log = probe_log();
    return kCompilationError;
  }
  const std::string clock = clock_line();
  std::string content = program.text;
  std::string log;
  std::string replacement;
  bool replaced = false;
  int code = 0;
  std::vector<Directive> directives = directives_in(program.text);
  for (std::size_t next = 0; next < directives.size(); ++next) {
    const Directive directive = directives[next];
    if (directive.what == "count") {
      append_byte(directive.rest);
    } else if (directive.what == "wait") {
      wait_for(directive.rest);
    } else if (directive.what == "include") {
      std::string header;
      const bool is_there = read_file(directive.rest, header);
      const std::vector<Directive> its_own = directives_in(header);
      directives.insert(directives.begin() + static_cast<std::ptrdiff_t>(next) + 1, its_own.begin(),
                        its_own.end());
      content += header;
      if (!is_there) {
        log += program.name + "(1): catastrophic error: cannot open source file \"" +
               directive.rest.substr(directive.rest.find_last_of('/') + 1) + "\"\n";
        code = kCompilationError;
      }
    } else if (directive.what == "look") {
      struct stat status {};
      content += ::stat(directive.rest.c_str(), &status) == 0 ? "there" : "not there";
    } else if (directive.what == "sleep") {
      std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(directive.rest.c_str())));
    } else if (directive.what == "touch") {
      const std::size_t bytes = static_cast<std::size_t>(std::atoi(directive.rest.c_str())) << 20;
      void* const memory =
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memset(memory, 1, bytes);
      ::munmap(memory, bytes);
    } else if (directive.what == "spin") {
      for (volatile bool spins = true; spins;) {
      }
    } else if (directive.what == "segv") {
      volatile int* nowhere = nullptr;
      *nowhere = 1;
    } else if (directive.what == "abort") {
      std::fprintf(stderr, "fake NVRTC aborts\n");
      std::abort();
    } else if (directive.what == "overflow") {
      overflow(0);
    } else if (directive.what == "oom") {
      while (void* memory = std::malloc(16 << 20)) {
        std::memset(memory, 1, 4096);
      }
      std::abort();  // as a C++ program does that meets bad_alloc
    } else if (directive.what == "error") {
      log += directive.rest + "\n";
      code = kCompilationError;
    } else if (directive.what == "threads") {
      run_threads(std::atoi(directive.rest.c_str()));
    } else if (directive.what == "try") {
      log += attempt(directive.rest);
    } else if (directive.what == "clock") {
      log += clock;
    } else if (directive.what == "deafen") {
      deafen();
    } else if (directive.what == "warn") {
      log += directive.rest + "\n";
    } else if (directive.what == "code") {
      code = std::atoi(directive.rest.c_str());
    } else if (directive.what == "sm") {
      sm = std::atoi(directive.rest.c_str());
    } else if (directive.what == "empty" || directive.what == "garbage") {
      replaced = true;
      replacement = directive.what == "empty" ? "" : std::string(500, 'g');
    }
  }
  for (const std::string& kernel : kernels_of(program.text)) {
    log += "ptxas info    : Compiling entry function '" + kernel + "' for 'sm_" +
           std::to_string(sm) + "'\nptxas info    : Function properties for " + kernel +
           "\nptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
           "ptxas info    : Used 24 registers, used 1 barriers, 512 bytes smem\n";
  }
  program.log = log;
  if (code == 0) {
    program.image = replaced ? replacement : elf_for(sm, content);
  }
  return code;
}

int sm_of(int count, const char* const* options) {
  for (int i = 0; i < count; ++i) {
    if (const char* at = std::strstr(options[i], "sm_")) {
      return std::atoi(at + 3);
    }
  }
  return 75;
}

/// NVRTC counts a final zero in texts and none in images.
int size_of(const std::string& text, std::size_t zero, std::size_t* size) {
  *size = text.size() + zero;
  return 0;
}
int copy_of(const std::string& text, std::size_t zero, char* out) {
  std::memcpy(out, text.c_str(), text.size() + zero);
  return 0;
}

}  // namespace

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
constexpr int kCapabilities[] = {50, 60, 70, 75, 80, 86, 89, 90, 100, 103, 110, 120, 121};
FAKE_EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(std::size(kCapabilities));
  return 0;
}
FAKE_EXPORT int nvrtcGetSupportedArchs(int* archs) {
  std::copy(std::begin(kCapabilities), std::end(kCapabilities), archs);
  return 0;
}
FAKE_EXPORT const char* nvrtcGetErrorString(int code) {
  return code == 0                   ? "NVRTC_SUCCESS"
         : code == kCompilationError ? "NVRTC_ERROR_COMPILATION"
                                     : "NVRTC_ERROR_OTHER";
}
FAKE_EXPORT int nvrtcCreateProgram(Program** out, const char* text, const char* name, int,
                                   const char* const*, const char* const*) {
  *out = new Program{text, name, {}, {}, {}, {}};
  return 0;
}
FAKE_EXPORT int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}
FAKE_EXPORT int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  return compile(*program, sm_of(count, options));
}
FAKE_EXPORT int nvrtcAddNameExpression(Program* program, const char* expression) {
  program->expressions.emplace_back(expression);
  return 0;
}
FAKE_EXPORT int nvrtcGetLoweredName(Program* program, const char* expression, const char** out) {
  for (const std::string& known : program->expressions) {
    if (known == expression) {
      *out = known.c_str();
      return 0;
    }
  }
  return 9;
}
FAKE_EXPORT int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  return size_of(program->log, 1, size);
}
FAKE_EXPORT int nvrtcGetProgramLog(Program* program, char* out) {
  return copy_of(program->log, 1, out);
}
FAKE_EXPORT int nvrtcGetPTXSize(Program* program, std::size_t* size) {
  return size_of(program->ptx, 1, size);
}
FAKE_EXPORT int nvrtcGetPTX(Program* program, char* out) { return copy_of(program->ptx, 1, out); }
FAKE_EXPORT int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  return size_of(program->image, 0, size);
}
FAKE_EXPORT int nvrtcGetCUBIN(Program* program, char* out) {
  return copy_of(program->image, 0, out);
}
