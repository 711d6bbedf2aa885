// SPDX-License-Identifier: Apache-2.0
#include "core/base/machine.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "support/forked.hpp"
#include "support/scratch.hpp"

using cukiln::Machine;
using cukiln::measure_machine;
using cukiln::testing::ScratchFolder;
using cukiln::testing::text_of_child;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// The files of /proc and /sys that a process sees, below a folder.
struct FakeMachine {
  ScratchFolder root;

  FakeMachine() { root.write("proc/meminfo", "MemTotal:  8388608 kB\nMemAvailable: 4194304 kB\n"); }

  void unified(const std::string& group, const std::string& mount_root = "/") const {
    root.write("proc/self/cgroup", "0::" + group + "\n");
    root.write("proc/self/mountinfo",
               "22 28 0:20 / /proc rw - proc proc rw\n31 23 0:28 " + mount_root +
                   " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void write(const std::string& file, const std::string& text) const {
    root.write("sys/fs/cgroup/" + file, text + "\n");
  }
  Machine measure() const { return measure_machine(root.path()); }
};

unsigned affine() { return measure_machine("/no/such/root").cores; }

}  // namespace

TEST_CASE("only cores in the affinity mask are counted") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(affine() == static_cast<unsigned>(CPU_COUNT(&before)));
  int any = 0;
  while (CPU_ISSET(any, &before) == 0) {
    ++any;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(any, &one);
  std::thread([&] {  // in a thread, whose affinity is its own
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(affine() == 1);
  })
      .join();
}

TEST_CASE("without a control group there are the affinity mask and the available memory") {
  const FakeMachine machine;
  CHECK(machine.measure().cores == affine());
  CHECK(machine.measure().cores_from == "affinity");
  CHECK(machine.measure().memory_bytes == 4096 * kMiB);
  CHECK(machine.measure().memory_from == "available memory");
  machine.root.write("proc/meminfo", "MemTotal: 8388608 kB\n");
  CHECK(machine.measure().memory_bytes == 8192 * kMiB);
  CHECK(measure_machine("/no/such/root").memory_bytes == 0);  // not known
}

TEST_CASE(
    "fault 175: a quota of half a processor is one core, and one of a half more a core more") {
  const FakeMachine machine;
  machine.unified("/");
  machine.write("cpu.max", "50000 100000");
  CHECK(machine.measure().cores == 1);
  machine.write("cpu.max", "max 100000");
  CHECK(machine.measure().cores == affine());
  machine.write("cpu.max", "150000 100000");
  CHECK(machine.measure().cores == std::min(affine(), 2U));
  machine.write("cpu.max", "1 1000000");
  CHECK(machine.measure().cores == 1);
}

TEST_CASE("the lowest limit from the own group up to the root of the mount counts") {
  const FakeMachine machine;
  machine.unified("/pods/one/job");
  machine.write("pods/one/job/memory.max", "max");
  machine.write("pods/one/memory.max", std::to_string(900 * kMiB));
  machine.write("pods/memory.max", std::to_string(2000 * kMiB));
  machine.write("pods/cpu.max", "100000 100000");
  machine.write("memory.max", std::to_string(1000 * kMiB));
  machine.write("elsewhere/memory.max", std::to_string(1 * kMiB));
  CHECK(machine.measure().memory_bytes == 900 * kMiB);
  CHECK(machine.measure().memory_from == machine.root / "sys/fs/cgroup/pods/one/memory.max");
  CHECK(machine.measure().cores == 1);
  machine.write("pods/one/memory.max", std::to_string(9000 * kMiB));
  CHECK(machine.measure().memory_bytes == 1000 * kMiB);
  machine.write("memory.max", std::to_string(9000 * kMiB));
  CHECK(machine.measure().memory_bytes == 2000 * kMiB);
}

TEST_CASE("a group below the root of a bind mount is found, and one outside of it is not visible") {
  const FakeMachine machine;
  machine.unified("/docker/abc/inner", "/docker/abc");
  machine.write("memory.max", std::to_string(700 * kMiB));
  machine.write("inner/memory.max", std::to_string(600 * kMiB));
  CHECK(machine.measure().memory_bytes == 600 * kMiB);
  machine.unified("/docker/abcd", "/docker/abc");  // a neighbour of it
  machine.root.write("sys/fs/cgroupd/memory.max", std::to_string(1 * kMiB));
  CHECK(machine.measure().memory_bytes == 700 * kMiB);
  machine.unified("/../../outer", "/");  // another namespace's
  CHECK(machine.measure().memory_bytes == 700 * kMiB);
}

TEST_CASE("controllers of version 1 have hierarchies of their own, beside version 2") {
  const FakeMachine machine;
  machine.root.write("proc/self/cgroup",
                     "5:name=systemd:/s\n4:memory:/m/own\n2:cpu,cpuacct:/c\n0::/u\n");
  machine.root.write("proc/self/mountinfo",
                     "32 31 0:29 / /sys/fs/cgroup/cpu\\040a rw - cgroup cgroup rw,cpu,cpuacct\n"
                     "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                     "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  machine.write("cpu a/c/cpu.cfs_quota_us", "-1");
  machine.write("cpu a/c/cpu.cfs_period_us", "100000");
  machine.write("memory/m/memory.limit_in_bytes", std::to_string(800 * kMiB));
  machine.write("memory/m/own/memory.limit_in_bytes", "9223372036854771712");
  CHECK(machine.measure().memory_bytes == 800 * kMiB);
  CHECK(machine.measure().cores == affine());
  machine.write("cpu a/c/cpu.cfs_quota_us", "20000");
  CHECK(machine.measure().cores == 1);
  CHECK(machine.measure().cores_from == machine.root / "sys/fs/cgroup/cpu a/c/cpu.cfs_quota_us");
  machine.write("unified/u/memory.max", std::to_string(500 * kMiB));
  CHECK(machine.measure().memory_bytes == 500 * kMiB);
}

TEST_CASE("fault 177: a malformed file of a control group is no limit") {
  const FakeMachine machine;
  machine.unified("/");
  for (const char* const text : {"", "0 100000", "-5 100000", "100 0", "100", "100 x", "x",
                                 "99999999999999999999 1", "50000  100000", "50000 100000 7"}) {
    CAPTURE(text);
    machine.write("cpu.max", text);
    CHECK(machine.measure().cores == affine());
  }
  for (const char* const text : {"", "-1", "0", "1e9", "512M", " 5", "99999999999999999999999"}) {
    CAPTURE(text);
    machine.write("memory.max", text);
    CHECK(machine.measure().memory_bytes == 4096 * kMiB);
  }
  const std::string long_line(1 << 16, '7');
  machine.write("memory.max", long_line);
  CHECK(machine.measure().memory_bytes == 4096 * kMiB);
  for (const std::string& text : {std::string("\n\n::\n0\n"), long_line, std::string("0::")}) {
    machine.root.write("proc/self/cgroup", text);
    CHECK(machine.measure().cores == affine());
  }
  for (const char* const text :
       {"1 2 3", "- cgroup2", "1 2 0:3 / \\9 rw - cgroup2 x", "\n - - -"}) {
    machine.unified("/");
    machine.root.write("proc/self/mountinfo", text);
    CHECK(machine.measure().memory_bytes == 4096 * kMiB);
  }
}

TEST_CASE("fault 178: limits above a group that vanished still count") {
  const FakeMachine machine;
  machine.unified("/pods/gone (deleted)");
  machine.write("pods/memory.max", std::to_string(300 * kMiB));
  CHECK(machine.measure().memory_bytes == 300 * kMiB);
}

namespace {

/// A control group of version 1 of this machine. The destructor removes it.
class RealGroup {
 public:
  RealGroup(const std::string& controller, const std::string& parent = {})
      : path_((parent.empty() ? "/sys/fs/cgroup/" + controller : parent) + "/cukiln-test-" +
              std::to_string(::getpid())),
        made_(::mkdir(path_.c_str(), 0755) == 0) {}
  ~RealGroup() {
    if (made_) {
      ::rmdir(path_.c_str());
    }
  }
  RealGroup(const RealGroup&) = delete;
  RealGroup& operator=(const RealGroup&) = delete;

  const std::string& path() const { return path_; }
  /// False where this user may not make the group, or has no such controller.
  bool set(const std::string& file, const std::string& text) const {
    return made_ && write(file, text);
  }
  bool write(const std::string& file, const std::string& text) const {
    std::ofstream out(path_ + "/" + file);
    out << text << std::flush;
    return out.good();
  }

 private:
  const std::string path_;
  const bool made_;
};

/// Measures in a child that has joined the groups.
Machine measure_in(const RealGroup& cpu, const RealGroup& memory) {
  const std::string text = text_of_child([&] {
    const std::string self = std::to_string(::getpid());
    const bool joined = cpu.write("cgroup.procs", self) && memory.write("cgroup.procs", self);
    const Machine machine = joined ? measure_machine() : Machine{0, 0, {}, {}};
    return std::to_string(machine.cores) + " " + std::to_string(machine.memory_bytes);
  });
  Machine machine{0, 0, {}, {}};
  std::istringstream(text) >> machine.cores >> machine.memory_bytes;
  return machine;
}

}  // namespace

TEST_CASE("fault 175: a process in real control groups of version 1 sees their limits") {
  const RealGroup cpu("cpu");
  const RealGroup memory("memory");
  const RealGroup inner("memory", memory.path());
  if (!cpu.set("cpu.cfs_quota_us", "50000") ||
      !memory.set("memory.limit_in_bytes", std::to_string(64 * kMiB)) ||
      !inner.set("memory.limit_in_bytes", std::to_string(128 * kMiB))) {
    // Where CI runs as root on a kernel with version 1 it must not be skipped: scripts/test says
    // so.
    MESSAGE("SKIPPED: no control groups of version 1 can be made here");
    REQUIRE_MESSAGE((::geteuid() != 0 || ::access("/sys/fs/cgroup/cpu/tasks", W_OK) != 0),
                    "root could make groups in /sys/fs/cgroup/cpu, and yet they cannot be set");
    return;
  }
  const Machine limited = measure_in(cpu, inner);
  CHECK(limited.cores == 1);
  CHECK(limited.memory_bytes == 64 * kMiB);
}
