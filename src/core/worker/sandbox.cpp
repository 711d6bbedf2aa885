// SPDX-License-Identifier: Apache-2.0
#include "core/worker/sandbox.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <ctime>
#include <vector>

#include "core/worker/sanitizer.hpp"

namespace cukiln::worker {

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "CUDA has drivers for x86-64 and aarch64"
#endif

// Landlock's interface, spelt out: the kernel headers of older distributions lack it, or parts.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr unsigned kVersionQuery = 1U << 0;
constexpr int kPathBeneath = 1;

struct RulesetAttributes {
  std::uint64_t handled_files = 0;
  std::uint64_t handled_network = 0;  // from version 4 on
  std::uint64_t scoped = 0;           // from version 6 on
};
struct __attribute__((packed)) PathRule {
  std::uint64_t allowed = 0;
  std::int32_t folder = -1;
};

constexpr std::uint64_t kExecute = 1U << 0;
constexpr std::uint64_t kReadFile = 1U << 2;

/// All rights on files that a version of Landlock can take away.
std::uint64_t all_file_rights(std::uint32_t version) {
  const int count = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;
  return (std::uint64_t{1} << count) - 1;
}

void allow_below(int ruleset, const std::string& folder, std::uint64_t rights) {
  PathRule rule;
  rule.allowed = rights;
  rule.folder = ::open(folder.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY);
  if (rule.folder >= 0) {
    ::syscall(kAddRule, ruleset, kPathBeneath, &rule, 0U);
    ::close(rule.folder);
  }
}

// What NVRTC 12.8 to 13.5, glibc and the worker call from here to the process's end.
constexpr int kAllowed[] = {
    // memory
    SYS_brk,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    // threads and signals
    SYS_futex,
    SYS_set_robust_list,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_gettid,
    SYS_getpid,
#ifdef SYS_rseq
    SYS_rseq,
#endif
    // clocks, numbers about this process and machine
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_times,
    SYS_getrusage,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrandom,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getcwd,
    SYS_getcpu,
    // files: Landlock says which
    SYS_openat,
    SYS_close,
    SYS_read,
    SYS_readv,
    SYS_pread64,
    SYS_write,
    SYS_writev,
    SYS_pwrite64,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_readlinkat,
    // the owner's socket
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_ppoll,
    SYS_shutdown,
#ifdef __x86_64__
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_poll,
    SYS_time,
    SYS_getrlimit,
#endif
};

constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr std::size_t kNumberAt = offsetof(seccomp_data, nr);
constexpr std::size_t kArchitectureAt = offsetof(seccomp_data, arch);

/// The low half of an argument; all flags that are looked at are there.
constexpr std::uint32_t argument_at(std::size_t index) {
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + index * sizeof(std::uint64_t));
}

sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
sock_filter give(std::uint32_t verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }

/// A program that answers one call after the other; each rule is skipped for other calls.
class Filter {
 public:
  Filter() {
    program_ = {load(kArchitectureAt), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
                give(kRefuse), load(kNumberAt)};
  }

  void answer(int call, std::uint32_t verdict) { rule(call, {give(verdict)}); }
  /// Allows a call only if its argument has all of these bits, or, with `has` false, none of them.
  void allow_if(int call, std::size_t argument, std::uint32_t bits, bool has) {
    rule(call, {load(argument_at(argument)), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, has ? bits : 0, 0, 1), give(SECCOMP_RET_ALLOW),
                give(kRefuse)});
  }
  /// Allows a call only if its argument's low half is this number.
  void allow_for(int call, std::size_t argument, std::uint32_t value) {
    rule(call, {load(argument_at(argument)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
                give(SECCOMP_RET_ALLOW), give(kRefuse)});
  }

  /// Of fcntl: flags of a descriptor, copies of it, and status flags but O_ASYNC. That one, with an
  /// owner and a signal (F_SETOWN, F_SETSIG), has the kernel kill any process of this user.
  void allow_fcntl() {
    std::vector<sock_filter> body = {load(argument_at(1))};
    for (const int command : {F_GETFD, F_SETFD, F_GETFL, F_DUPFD, F_DUPFD_CLOEXEC}) {
      body.push_back(
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(command), 0, 1));
      body.push_back(give(SECCOMP_RET_ALLOW));
    }
    body.insert(body.end(),
                {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETFL, 0, 3), load(argument_at(2)),
                 BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_ASYNC, 1, 0), give(SECCOMP_RET_ALLOW),
                 give(kRefuse)});
    rule(SYS_fcntl, body);
  }

  /// Everything that no rule named is refused.
  bool install() {
    program_.push_back(give(kRefuse));
    const sock_fprog program{static_cast<unsigned short>(program_.size()), program_.data()};
    return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }

 private:
  void rule(int call, const std::vector<sock_filter>& body) {
    program_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0,
                                static_cast<unsigned char>(body.size())));
    program_.insert(program_.end(), body.begin(), body.end());
  }

  std::vector<sock_filter> program_;
};

bool filter_calls(bool maps_code) {
  Filter filter;
  for (const int call : kAllowed) {
    filter.answer(call, SECCOMP_RET_ALLOW);
  }
  for (const int call : {SYS_mmap, SYS_mprotect}) {
    if (maps_code) {
      filter.answer(call, SECCOMP_RET_ALLOW);
    } else {
      filter.allow_if(call, 2, PROT_EXEC, false);
    }
  }
  filter.allow_fcntl();
  filter.allow_if(SYS_clone, 0, CLONE_THREAD | CLONE_VM, true);
#ifdef SYS_clone3
  filter.answer(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);  // its flags lie in memory: glibc clones
#endif
  filter.allow_for(SYS_tgkill, 0, static_cast<std::uint32_t>(::syscall(SYS_getpid)));  // abort()
  filter.allow_for(SYS_prlimit64, 0, 0);
  filter.allow_for(SYS_flock, 1, LOCK_UN);
  return filter.install();
}

}  // namespace

Sandbox::Sandbox(const std::string& library_folder) : maps_code_(!library_folder.empty()) {
  if (kAddressSanitizer) {  // it makes calls of its own, to write a report among them
    return;
  }
  ::tzset();  // reads /etc/localtime, which a date in a text wants later
  const long version = ::syscall(kCreateRuleset, nullptr, std::size_t{0}, kVersionQuery);
  if (version <= 0) {
    return;
  }
  landlock_ = static_cast<std::uint32_t>(version);
  RulesetAttributes attributes;
  attributes.handled_files = all_file_rights(landlock_);
  attributes.handled_network = landlock_ >= 4 ? 3 : 0;  // bind, connect
  attributes.scoped = landlock_ >= 6 ? 3 : 0;           // abstract sockets, signals
  // A kernel takes no attribute that it does not know.
  const std::size_t size = landlock_ >= 6   ? sizeof attributes
                           : landlock_ >= 4 ? 2 * sizeof(std::uint64_t)
                                            : sizeof(std::uint64_t);
  ruleset_ = static_cast<int>(::syscall(kCreateRuleset, &attributes, size, 0U));
  if (ruleset_ < 0) {
    landlock_ = 0;
    return;
  }
  if (maps_code_) {
    allow_below(ruleset_, library_folder, kReadFile | kExecute);
  }
}

Sandbox::~Sandbox() {
  if (ruleset_ >= 0) {
    ::close(ruleset_);
  }
}

Protections Sandbox::enter_on_this_thread() const {
  Protections active;
  if (kAddressSanitizer) {
    return active;
  }
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  active.hides_memory = ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0;
  if (ruleset_ >= 0 && ::syscall(kRestrictSelf, ruleset_, 0U) == 0) {
    active.landlock = landlock_;
  }
  active.filters_calls = filter_calls(maps_code_);
  return active;
}

}  // namespace cukiln::worker
