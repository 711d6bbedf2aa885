// SPDX-License-Identifier: Apache-2.0
// Workers of another user, over a socket. The test plays systemd, which starts one for each
// connection. As root the worker is another user's; else it is this user's, and the same but for
// that.

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/file.hpp"
#include "compile/connect.hpp"
#include "compile/worker_process.hpp"
#include "support/compile_fixture.hpp"
#include "support/worker_listener.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using namespace std::chrono_literals;

namespace {

const std::string kKernel = "extern \"C\" __global__ void k(int*) {}\n";
constexpr uid_t kMallory = 64'002;

/// Root of a user namespace with one user in it cannot be another one.
bool can_be_others() {
  static const bool can = [] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(::setresuid(kWorkerUser, kWorkerUser, kWorkerUser) == 0 ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    return ::geteuid() == 0 && status == 0;
  }();
  return can;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Folders that the worker's user can enter, with copies of the worker and of an NVRTC.
struct Fixture {
  ScratchFolder scratch;
  std::string socket = scratch / "worker.sock";
  std::string log = scratch / "log";
  std::string program = scratch / "bin/cukiln-compile-worker";
  std::string library = scratch / "nvrtc/libnvrtc_fake.so";
  std::string lock = scratch / "store/flight.lock";
  uid_t user = can_be_others() ? kWorkerUser : ::geteuid();
  wire::Hello hello;  ///< of the worker that started last

  Fixture() {
    for (const char* const folder : {"bin", "nvrtc"}) {
      std::filesystem::create_directory(scratch / folder);
      std::filesystem::permissions(scratch / folder, std::filesystem::perms(0755));
    }
    std::filesystem::copy_file(kPlainWorker, program);
    std::filesystem::copy_file(kFakeNvrtc, library);
    std::filesystem::permissions(scratch.path(), std::filesystem::perms(0755));
    std::filesystem::create_directory(scratch / "store");
    std::filesystem::permissions(scratch / "store", std::filesystem::perms(0700));
  }
  WorkerListener::Options listener() const {
    WorkerListener::Options options;
    options.path = socket;
    options.program = program;
    options.log = log;
    options.worker_user = user;
    return options;
  }
  NvrtcCompilerOptions options() {
    NvrtcCompilerOptions options = fake_options(library.c_str());
    options.worker = "/nowhere/worker";
    options.worker_socket = socket;
    options.lock_folder = scratch / "store";  // the worker that probes compiles, too
    options.on_worker = [this](const wire::Hello& got) { hello = got; };
    return options;
  }
  CompileGuard guard() const {
    CompileGuard guard;
    guard.lock_path = lock;
    return guard;
  }
  /// A file that the worker's user may append to.
  std::string shared_file(const std::string& name) const {
    std::string path = scratch.write("shared/" + name, "");
    std::filesystem::permissions(scratch / "shared", std::filesystem::perms(0755));
    std::filesystem::permissions(path, std::filesystem::perms(0666));
    return path;
  }
  bool lock_is_free() const {
    const UniqueFd file(::open(lock.c_str(), O_RDWR | O_CLOEXEC));
    return !file || ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  }
  bool lock_gets_free() const {
    return becomes_true([this] { return lock_is_free(); });
  }
  /// The processes that run the worker, supervisors among them.
  std::vector<pid_t> workers() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string line = read_all(entry.path() / "cmdline");
      if (line.c_str() == program) {
        found.push_back(static_cast<pid_t>(std::stol(entry.path().filename())));
      }
    }
    return found;
  }
  bool no_worker_is_left() const {
    return becomes_true([&] { return workers().empty(); });
  }
  /// The number of a worker's process that compiles, and whose parent is the supervisor.
  pid_t compiler() const {
    for (const pid_t one : workers()) {
      const pid_t parent = static_cast<pid_t>(std::stol("0" + status_of(one, "PPid")));
      for (const pid_t other : workers()) {
        if (other == parent) {
          return one;
        }
      }
    }
    return -1;
  }
  /// Signals that process, and returns its number.
  pid_t kill_compiler(int signal) const {
    const pid_t process = compiler();
    CHECK(process > 0);
    if (process > 0) {  // -1 is every process
      ::kill(process, signal);
    }
    return process;
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "fault 151: a worker of another user compiles, and says who it is") {
  const WorkerListener listener(this->listener());
  {
    NvrtcCompiler compiler(options());
    TestModule module(kKernel);
    CHECK_FALSE(must(module.run(compiler)).cubin.image.view().empty());
    CHECK(hello.user == user);
    const pid_t process = this->compiler();
    REQUIRE(process > 0);
    const std::string number = std::to_string(user);
    CHECK(status_of(process, "Uid").starts_with(number + "\t" + number + "\t"));
    const std::string limits = read_all("/proc/" + std::to_string(process) + "/limits");
    CHECK(contains(limits, "Max file size             1048576 "));  // also of a lock's
    must(module.run(compiler));                                     // by the same worker
    CHECK(this->compiler() == process);
  }
  CHECK(no_worker_is_left());
  CHECK(read_all(log).empty());
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 152: a compiler that was taken over, of another user, reaches no store, key, "
    "socket, process or network") {
  const WorkerListener listener(this->listener());
  const std::string key = scratch.write("secret.key", "secret");
  std::filesystem::permissions(
      key, std::filesystem::perms(0644));  // the sandbox refuses it all the same
  const std::string store = scratch.write("store/store.db", "entries");
  const std::string self = std::to_string(::getpid());
  NvrtcCompiler compiler(options());
  const auto result_of = [&](const std::string& attempt) {
    TestModule module("// fake: try " + attempt + "\n" + kKernel);
    const CompileResult result = must(module.run(compiler, guard()));
    const std::string begin = "try " + attempt + ": ";
    const std::size_t at = result.cubin.log.find(begin);
    REQUIRE(at != std::string::npos);
    const std::string rest = result.cubin.log.substr(at + begin.size());
    return rest.substr(0, rest.find('\n'));
  };
  for (const char* const attempt :
       {"socket 1", "socket 2", "fork", "exec /bin/true", "namespace"}) {
    CAPTURE(attempt);
    CHECK(result_of(attempt) == "Operation not permitted");
  }
  for (const pid_t process :
       {::getpid(), static_cast<pid_t>(std::stol(status_of(this->compiler(), "PPid")))}) {
    for (const char* const call : {"kill ", "tgkill ", "ptrace ", "memory ", "descriptor "}) {
      CAPTURE(call);
      CHECK(result_of(call + std::to_string(process)) == "Operation not permitted");
    }
  }
  const std::string bomb = result_of("threads 2000");
  CHECK(contains(bomb, "Resource temporarily unavailable") == (hello.max_tasks != 0));
  for (const std::string& attempt :
       {"read " + key, "create " + (scratch / "shared.new"), std::string("read /etc/passwd"),
        "read " + store, "create " + (scratch / "store/other.lock"), "list " + (scratch / "store"),
        "remove " + lock, "write /proc/" + self + "/mem"}) {
    CAPTURE(attempt);
    if (hello.landlock != 0) {
      CHECK(result_of(attempt) == "Permission denied");
    }
  }
  CHECK(read_all(store) == "entries");
}

TEST_CASE_FIXTURE(Fixture, "fault 153: a user that is not the daemon's finds nothing to read") {
  if (!can_be_others()) {
    MESSAGE("not root: no other user can be played");
    return;
  }
  // Without its sandbox a worker still is another user.
  scratch.write("store/store.db", "entries");
  const std::string key = scratch.write("secret.key", "secret");
  std::filesystem::permissions(key, std::filesystem::perms(0600));
  const WorkerListener listener(this->listener());
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = ::setresgid(kWorkerUser, kWorkerUser, kWorkerUser) == 0 &&
                   ::setresuid(kWorkerUser, kWorkerUser, kWorkerUser) == 0;
    for (const std::string& path : {key, scratch / "store/store.db", scratch / "store"}) {
      refused = refused && ::open(path.c_str(), O_RDONLY) < 0;
    }
    refused = refused && !connect_to_worker(socket) && ::kill(::getppid(), 0) != 0;
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE_FIXTURE(Fixture, "fault 154: a worker of another user ends at its timeout") {
  const WorkerListener listener(this->listener());
  NvrtcCompiler compiler(options());
  TestModule module("// fake: spin\n" + kKernel);
  module.timeout = 1s;
  const auto outcome = module.run(compiler, guard());
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::timeout);
  CHECK(no_worker_is_left());
  CHECK(lock_is_free());
  TestModule next(kKernel);
  must(next.run(compiler, guard()));
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 154: a worker of another user ends when its compile is cancelled") {
  const WorkerListener listener(this->listener());
  const std::string count = shared_file("count");
  NvrtcCompiler compiler(options());
  TestModule module("// fake: count " + count + "\n// fake: spin\n" + kKernel);
  std::atomic<bool> cancelled = false;
  std::thread canceller([&] {
    CHECK(becomes_true([&] { return !read_all(count).empty(); }));
    cancelled = true;
  });
  const auto outcome = module.run(compiler, guard(), cancelled);
  canceller.join();
  REQUIRE_FALSE(outcome);
  CHECK(contains(outcome.error().message(), "cancelled"));
  CHECK(no_worker_is_left());
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 154: a compiler that keeps the worker from ending itself is ended all the same") {
  const WorkerListener listener(this->listener());
  NvrtcCompiler compiler(options());
  TestModule module("// fake: deafen\n// fake: spin\n" + kKernel);
  module.timeout = 1s;
  CHECK_FALSE(module.run(compiler, guard()));
  CHECK(no_worker_is_left());
  CHECK(lock_is_free());
}

TEST_CASE_FIXTURE(Fixture, "fault 155: a crash in a worker of another user is reported") {
  const WorkerListener listener(this->listener());
  NvrtcCompiler compiler(options());
  TestModule crash("// fake: abort\n" + kKernel);
  auto outcome = crash.run(compiler, guard());
  REQUIRE_FALSE(outcome);
  CAPTURE(outcome.error().message());
  CHECK(contains(outcome.error().message(), "SIGABRT"));
  CHECK(contains(outcome.error().message(), "fake NVRTC aborts"));
  CHECK(lock_gets_free());

  const std::string count = shared_file("count");
  TestModule killed("// fake: count " + count + "\n// fake: spin\n" + kKernel);
  std::thread killer([&] {
    CHECK(becomes_true([&] { return !read_all(count).empty(); }));
    kill_compiler(SIGKILL);
  });
  outcome = killed.run(compiler, guard());
  killer.join();
  REQUIRE_FALSE(outcome);
  CAPTURE(outcome.error().message());
  CHECK(contains(outcome.error().message(), "ended while it compiled"));
  CHECK(contains(outcome.error().message(), "journalctl -u 'cukiln-worker@*'"));
  CHECK(becomes_true([&] { return contains(read_all(log), "signal 9 (Killed)"); }));
  CHECK(lock_gets_free());
  TestModule next(kKernel);
  must(next.run(compiler, guard()));
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 156: the lock of a compile is held until its result is published") {
  const WorkerListener listener(this->listener());
  NvrtcCompiler compiler(options());
  TestModule module(kKernel);
  CompileGuard held = guard();
  std::string owner;
  bool was_free = true;
  CompileState there = CompileState::done;
  held.publish = [&](const CompileResult&) {
    was_free = lock_is_free();
    NvrtcCompiler another(options());
    TestModule same(kKernel);
    const auto outcome = same.run(another, guard());
    REQUIRE(outcome);
    there = outcome->state;
    owner = outcome->owner;
  };
  must(module.run(compiler, held));
  CHECK_FALSE(was_free);
  CHECK(there == CompileState::busy);
  CHECK(owner.starts_with("pid " + std::to_string(::getpid()) + " since 2"));
  CHECK_FALSE(std::filesystem::exists(lock));

  held.still_needed = [] { return false; };
  const auto outcome = module.run(compiler, held);
  REQUIRE(outcome);
  CHECK(outcome->state == CompileState::superseded);
  CHECK_FALSE(std::filesystem::exists(lock));
}

namespace {

/// Forks an owner whose compile goes on for a minute.
pid_t fork_slow_owner(Fixture& fixture, const std::string& directives) {
  const pid_t owner = ::fork();
  if (owner == 0) {
    NvrtcCompiler compiler(fixture.options());
    TestModule module(directives + kKernel);
    ::_exit(module.run(compiler, fixture.guard()) ? 0 : 1);
  }
  return owner;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "fault 156: kill -9 of an owner ends its worker, and then its lock is free") {
  const WorkerListener listener(this->listener());
  const std::string count = shared_file("count");
  const pid_t owner = fork_slow_owner(*this, "// fake: count " + count + "\n// fake: spin\n");
  REQUIRE(becomes_true([&] { return !read_all(count).empty(); }));
  CHECK_FALSE(lock_is_free());
  const pid_t compiler = kill_compiler(SIGSTOP);  // it cannot notice anything itself
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  CHECK(lock_gets_free());
  CHECK(has_ended(compiler));
  CHECK(no_worker_is_left());
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 156: an owner that was silent does not remove the lock that another holds now") {
  const WorkerListener listener(this->listener());
  const std::string count = shared_file("count");
  const std::string go = scratch / "shared/go";
  const pid_t owner = fork_slow_owner(*this, "// fake: count " + count + "\n// fake: wait " + go +
                                                 "\n// fake: look /cukiln/src/nothing.h\n");
  REQUIRE(becomes_true([&] { return !read_all(count).empty(); }));
  ::kill(owner, SIGSTOP);
  scratch.write("shared/go", "");  // the worker asks, and gets no answer
  const UniqueFd file(::open(lock.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(becomes_true([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0; }));
  ::kill(owner, SIGCONT);
  int status = -1;
  ::waitpid(owner, &status, 0);
  CHECK(status == 0);
  CHECK(std::filesystem::exists(lock));
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 157: a worker serves no other user than the one it was started for") {
  WorkerListener::Options options = this->listener();
  options.accepted_user = ::geteuid() + 1;
  const WorkerListener listener(options);
  NvrtcCompiler compiler(this->options());
  TestModule module(kKernel);
  const auto outcome = module.run(compiler);
  REQUIRE_FALSE(outcome);
  CAPTURE(outcome.error().message());
  CHECK(contains(outcome.error().message(), "journalctl"));
  CHECK(contains(read_all(log), "user " + std::to_string(::geteuid()) + " connected, expected " +
                                    std::to_string(options.accepted_user)));
  CHECK(no_worker_is_left());
}

TEST_CASE_FIXTURE(Fixture, "fault 158: the socket of another user is not used") {
  if (!can_be_others()) {
    MESSAGE("not root: no other user can be played");
    return;
  }
  const std::string folder = scratch / "theirs";
  std::filesystem::create_directory(folder);
  REQUIRE(::chown(folder.c_str(), kMallory, kMallory) == 0);
  socket = folder + "/worker.sock";
  const pid_t mallory = ::fork();
  if (mallory == 0) {
    static_cast<void>(::setresgid(kMallory, kMallory, kMallory) == 0 &&
                      ::setresuid(kMallory, kMallory, kMallory) == 0);
    const auto to = wire::unix_address(socket);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    static_cast<void>(::bind(fd, reinterpret_cast<const sockaddr*>(&to->address), to->size) == 0 &&
                      ::listen(fd, 8) == 0);
    ::pause();
    ::_exit(0);
  }
  REQUIRE(becomes_true(
      [&] { return connect_to_worker(socket).error().code() == ErrorCode::invalid_argument; }));
  CHECK(contains(connect_to_worker(socket).error().message(),
                 "user " + std::to_string(kMallory) + " listens at"));
  ::kill(mallory, SIGKILL);
  ::waitpid(mallory, nullptr, 0);
}

TEST_CASE_FIXTURE(Fixture, "fault 159: without its socket no worker runs as this user instead") {
  const std::string started = scratch / "started";
  NvrtcCompilerOptions options = this->options();
  options.worker = counted_worker(scratch, started);
  NvrtcCompiler compiler(std::move(options));
  TestModule module(kKernel);
  auto outcome = module.run(compiler);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::not_found);
  CHECK(contains(outcome.error().message(), "start cukiln-worker.socket"));
  CHECK_FALSE(std::filesystem::exists(started));
  const WorkerListener listener(this->listener());
  must(module.run(compiler));
}

TEST_CASE_FIXTURE(Fixture, "a worker of another protocol says so") {
  const WorkerListener listener(this->listener());
  const auto connection = connect_to_worker(socket);
  REQUIRE(connection);
  wire::FrameSocket frames(connection->get());
  wire::Start start;
  start.protocol = 1;
  CHECK(frames.send(static_cast<std::uint16_t>(wire::WorkerOp::start), {start.encode()}) ==
        wire::IoStatus::ok);
  wire::Frame frame;
  REQUIRE(frames.receive(frame) == wire::IoStatus::ok);
  const auto other = wire::Hello::decode(frame.body);
  REQUIRE(other);
  CHECK(other->protocol == wire::kWorkerProtocol);
  CHECK_FALSE(other->error.empty());
  CHECK(frames.receive(frame) == wire::IoStatus::closed);
}
