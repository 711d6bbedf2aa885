// SPDX-License-Identifier: Apache-2.0
// KernelLoader::watch: edits of files while kernels are launched. The driver is a fake, and so is
// NVRTC where it need not be itself. Tests wait for events.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <elf.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"
#include "support/wait.hpp"

using namespace cukiln;
namespace fs = std::filesystem;

namespace {
std::atomic<bool> g_no_inotify{false};
}  // namespace

/// Stands before libc's in this program, so that a test can have no watch left.
extern "C" int inotify_add_watch(int fd, const char* path, std::uint32_t mask) noexcept {
  if (g_no_inotify) {
    errno = ENOSPC;
    return -1;
  }
  static const auto real = reinterpret_cast<int (*)(int, const char*, std::uint32_t)>(
      dlsym(RTLD_NEXT, "inotify_add_watch"));
  return real(fd, path, mask);
}

namespace {

constexpr Target kTarget{90, 'a'};
constexpr std::size_t kMaxOldModules = 64;

/// A loader with a context of the fake driver in this thread, and the reloads that it had.
struct Fixture : testing::LoaderFixture {
  testing::FakeCuda fake;
  CUcontext context = fake.new_context(0);
  mutable std::mutex mutex;
  std::vector<Event> reloads;
  std::function<void(const Event&)> on_reload;

  Fixture() { push_context(); }
  ~Fixture() { g_no_inotify = false; }

  void push_context() const {
    const auto push =
        reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(fake.handle, "cuCtxPushCurrent_v2"));
    REQUIRE(push(context) == 0);
  }
  LoaderOptions options(LoaderOptions base = fake_options()) {
    base.events = [this](const Event& event) {
      if (event.kind == EventKind::reload) {
        const std::lock_guard lock(mutex);
        reloads.push_back(event);
      }
    };
    return base;
  }
  std::size_t count() const {
    const std::lock_guard lock(mutex);
    return reloads.size();
  }
  /// The first reload from number `first` on that is as wanted.
  Event reload(bool failed, std::size_t first = 0) const {
    Event found;
    REQUIRE(testing::becomes_true([&] {
      const std::lock_guard lock(mutex);
      const auto at =
          std::find_if(reloads.begin() + static_cast<std::ptrdiff_t>(first), reloads.end(),
                       [&](const Event& e) { return e.failed == failed; });
      if (at != reloads.end()) {
        found = *at;
      }
      return at != reloads.end();
    }));
    return found;
  }

  static std::string text(const std::string& name, int version) {
    return "__global__ void " + name + "() {}  // version " + std::to_string(version) + "\n";
  }
  ModuleSpec module(const std::string& name, const std::string& more = {}) const {
    ModuleSpec made = spec(scratch.write("src/" + name + ".cu", more + text(name, 0)), {kTarget});
    made.include = {scratch / "first", scratch / "second"};
    return made;
  }
  /// FakeLaunch::image of the fake NVRTC's cubins.
  static std::uint64_t image_of(std::string_view cubin) {
    return std::hash<std::string_view>()(cubin.substr(0, sizeof(Elf64_Ehdr)));
  }
  std::uint64_t image(const Kernel& kernel) const { return fake.image(kernel.native()); }
  /// The image that a launch by this thread runs.
  std::uint64_t launched(const Kernel& kernel) const {
    REQUIRE(kernel.launch(nullptr, {{1}, {32}}, nullptr));
    return fake.last_launch().image;
  }
};

struct Edited : Fixture {
  const ModuleSpec asked = module("k",
                                  "// fake: include /cukiln/src/tile.cuh\n"
                                  "// fake: look /cukiln/inc/0/late.cuh\n"
                                  "// fake: include /cukiln/inc/1/late.cuh\n");
  const std::string source = name_of(asked.sources.front());
  const std::string header = scratch.write("src/tile.cuh", "#define TILE 16\n");
  const std::string late = scratch.write("second/late.cuh", "#define LATE\n");
  Opened opened = open(options());
  Kernel kernel = *opened->get(asked, "k");
  const std::uint64_t before = image(kernel);

  void save(const std::string& path, const std::string& content) const {  // whole at each moment
    fs::rename(scratch.write("src/.saved", content), path);
  }
  void edit(const std::string& end) const { save(source, testing::read_all(source) + end); }
};

}  // namespace

TEST_CASE_FIXTURE(Edited, "watch: an edit is launched next, by handle, id and name of before") {
  fs::create_directory(scratch / "first");
  REQUIRE(opened->preload(Manifest({asked})));
  const auto watch = opened->watch();
  REQUIRE(watch);
  std::string reason = "source changed: " + source;
  SUBCASE("saved in place") { scratch.write("src/k.cu", text("k", 1)); }
  SUBCASE("saved by renaming another file") {
    fs::rename(scratch.write("src/.k.cu.swp", Fixture::text("k", 1)), source);
  }
  SUBCASE("saved by renaming the old one away") {
    fs::rename(source, source + "~");
    scratch.write("src/k.cu", Fixture::text("k", 1));
  }
  SUBCASE("a header") {
    scratch.write("src/tile.cuh", "#define TILE 32\n");
    reason = "header changed: " + header;
  }
  SUBCASE("a new header that comes first in the search") {
    reason = "header appeared: " + scratch.write("first/late.cuh", "#define FIRST\n");
  }
  const Event event = reload(false);
  CHECK(event.module == "k");
  CHECK(event.target == kTarget);
  CHECK(event.elapsed.count() > 0);
  CHECK(event.reason == reason);
  const std::uint64_t now = launched(kernel);
  CHECK(now != before);
  CHECK(launched(opened->kernels().at(0)) == now);
  CHECK(launched(opened->kernels().find("k/k@sm_90a")) == now);
  // What is asked for again is what is loaded.
  const auto again = opened->get(asked, "k");
  REQUIRE(again);
  CHECK(again->native() == kernel.native());
  CHECK(fake.libraries() == 2);
  CHECK(testing::only(opened->compile(asked)).key == event.key);
  CHECK(testing::only(opened->compile(asked)).outcome == Outcome::hit);  // it was stored
}

TEST_CASE_FIXTURE(Edited,
                  "watch: what was edited before it began, or is loaded later, counts too") {
  edit("// before\n");
  const auto watch = opened->watch();
  REQUIRE(watch);
  CHECK(reload(false).module == "k");
  const ModuleSpec later = module("later");
  const Kernel kernel_of_later = *opened->get(later);
  const std::size_t seen = count();
  scratch.write("src/later.cu", text("later", 1));
  CHECK(reload(false, seen).module == "later");
  CHECK(launched(kernel_of_later) != launched(kernel));
}

TEST_CASE_FIXTURE(Edited, "watch: two modules that share a header are both reloaded") {
  const ModuleSpec other = module("other", "// fake: include /cukiln/src/tile.cuh\n");
  const Kernel of_other = *opened->get(other);
  const std::uint64_t other_before = image(of_other);
  const auto watch = opened->watch();
  REQUIRE(watch);
  scratch.write("src/tile.cuh", "#define TILE 32\n");
  REQUIRE(testing::becomes_true(
      [&] { return image(of_other) != other_before && image(kernel) != before; }));
}

TEST_CASE_FIXTURE(Edited, "watch: a request that sees an edit first shares its module") {
  const auto watch = opened->watch();
  REQUIRE(watch);
  edit("// seen by get\n");
  const Kernel other = *opened->get(asked, "k");  // before the watch, or after it
  reload(false);
  CHECK(launched(kernel) == launched(other));
  edit("// by the watch\n");
  const std::uint64_t now = image_of(*opened->cubin(testing::only(opened->compile(asked)).key));
  REQUIRE(testing::becomes_true([&] { return image(kernel) == now && image(other) == now; }));
  CHECK(fake.libraries() <= 4);  // one more if both loaded the first edit
}

TEST_CASE_FIXTURE(Edited, "watch: a new header that is edited while it is compiled counts too") {
  const auto watch = opened->watch();
  REQUIRE(watch);
  const std::string included = scratch.write("src/new.cuh", "#define NEW 1\n");
  const std::string started = scratch / "started", go = scratch / "go";
  edit("// fake: include /cukiln/src/new.cuh\n// fake: count " + started + "\n// fake: wait " + go +
       "\n");
  REQUIRE(testing::becomes_true([&] { return fs::exists(started); }));
  save(included, "#define NEW 2\n");
  scratch.write("go", "");
  reload(false);
  const std::uint64_t now = image_of(*opened->cubin(testing::only(opened->compile(asked)).key));
  CHECK(testing::becomes_true([&] { return image(kernel) == now; }));
}

TEST_CASE_FIXTURE(Edited, "watch: a file that is written with the same bytes reloads nothing") {
  REQUIRE(opened->get(module("other")));
  const auto watch = opened->watch();
  REQUIRE(watch);
  edit("// seen by the first check\n");
  reload(false);
  save(header, testing::read_all(header));
  for (int version = 1; version < 3; ++version) {  // by then the header was looked at
    const std::size_t seen = count();
    scratch.write("src/other.cu", text("other", version));
    CHECK(reload(false, seen).module == "other");
  }
  CHECK(count() == 3);
}

TEST_CASE_FIXTURE(Edited, "fault 339: watch: a broken edit keeps the kernels that were") {
  const auto watch = opened->watch();
  REQUIRE(watch);
  SUBCASE("it does not compile") {
    edit("// fake: error k.cu(4): error: expected a \";\"\n");
    const std::string reason = reload(true).reason;
    CHECK(reason.find("k does not compile for sm_90a") != std::string::npos);
    CHECK(reason.find("k.cu(4): error: expected a \";\"") != std::string::npos);
    CHECK(launched(kernel) == before);
    scratch.write("src/k.cu", text("k", 2));
    reload(false);
    CHECK(launched(kernel) != before);
  }
  SUBCASE("its parameters changed") {
    const std::size_t sizes[] = {8};
    fake.set_parameters("k", sizes, 1);
    edit("// a parameter\n");
    CHECK(reload(true).reason.find("k has parameters of 8 bytes now") != std::string::npos);
    CHECK(image(kernel) == before);
    fake.set_parameters("k", nullptr, 0);
    edit("// none\n");
    reload(false);
    CHECK(launched(kernel) != before);
  }
  SUBCASE("its kernel was renamed") {
    scratch.write("src/k.cu", text("other", 0));
    CHECK(reload(true).reason.find("the kernel k is gone") != std::string::npos);
    CHECK(launched(kernel) == before);
  }
  SUBCASE("its source was removed, and comes back") {
    fs::remove(source);
    CHECK(reload(true).reason.find("k.cu") != std::string::npos);
    CHECK(launched(kernel) == before);
    scratch.write("src/k.cu", text("k", 3));
    reload(false);
    CHECK(launched(kernel) != before);
  }
}

TEST_CASE_FIXTURE(Fixture, "watch: NVRTC itself: its log with the line, and a header that comes") {
  fake.read_parameters(1);
  const auto source = [&](const std::string& first, const std::string& parameters) {
    return scratch.write("src/k.cu", first + "\nextern \"C\" __global__ void k(" + parameters +
                                         ") {\n  *x *= 2;\n}\n");
  };
  const ModuleSpec asked = spec(source("", "float* x"), {kTarget});
  Opened opened = open(options(with_driver(fake.path)));
  const auto kernel = opened->get(asked);
  REQUIRE_MESSAGE(kernel, kernel.error().message());
  CHECK(kernel->parameter_count() == 1);
  const std::uint64_t before = image(*kernel);
  const auto watch = opened->watch();
  REQUIRE(watch);
  const std::string path = source("", "double* y");
  std::string reason = reload(true).reason;
  CHECK(reason.find(path + "(3): error: identifier \"x\" is undefined\n    *x *= 2;") !=
        std::string::npos);
  std::size_t seen = count();
  source("", "float* x, int n");
  reason = reload(true, seen).reason;
  CHECK(reason.find("k has parameters of 8, 4 bytes now; expected 8 bytes") != std::string::npos);
  seen = count();
  source("#include \"later.cuh\"", "float* x");
  CHECK(reload(true, seen).reason.find("later.cuh") != std::string::npos);
  CHECK(image(*kernel) == before);
  scratch.write("src/later.cuh", "#define x (x + 1)\n");
  reload(true, seen + 1);  // not an lvalue: the header was seen
  scratch.write("src/later.cuh", "__device__ int unused;\n");
  reload(false);
  CHECK(image(*kernel) != before);
}

TEST_CASE_FIXTURE(Edited, "watch: a kernel that an edit adds is there for the next request") {
  const auto watch = opened->watch();
  REQUIRE(watch);
  edit(text("added", 0));
  const Event event = reload(false);
  const auto added = opened->get(asked, "added");
  REQUIRE(added);
  CHECK(launched(*added) == launched(kernel));
  REQUIRE(opened->unload(event.key));
  CHECK_FALSE(opened->kernels().find("k"));
}

TEST_CASE_FIXTURE(Edited, "watch: what is not stored, since it uses the time, has its cubin") {
  const auto watch = opened->watch();
  REQUIRE(watch);
  edit("__device__ const char* when = __TIME__;\n");
  const auto cubin = opened->cubin(reload(false).key);
  REQUIRE(cubin);
  CHECK(image_of(*cubin) == image(kernel));
}

TEST_CASE_FIXTURE(Edited, "watch: a sealed loader reloads only if it was asked to") {
  REQUIRE(opened->preload(Manifest({asked})));
  opened->seal();
  SUBCASE("it was not") {
    const auto watch = opened->watch();
    REQUIRE(watch);
    edit("// after\n");
    CHECK(reload(true).reason.find("the loader is sealed; set WatchOptions::after_seal") == 0);
    CHECK(launched(kernel) == before);
  }
  SUBCASE("it was") {
    const auto watch = opened->watch({true});
    REQUIRE(watch);
    edit("// after\n");
    reload(false);
    CHECK(launched(kernel) != before);
  }
}

TEST_CASE_FIXTURE(Edited, "fault 355: watch: 64 old modules are kept, and no more are made") {
  const auto watch = opened->watch();
  REQUIRE(watch);
  for (std::size_t i = 0; i < kMaxOldModules; ++i) {
    const std::size_t seen = count();
    scratch.write("src/k.cu", text("k", 100 + static_cast<int>(i)));
    reload(false, seen);
  }
  const std::uint64_t last = launched(kernel);
  CHECK(fake.libraries() == 1 + static_cast<int>(kMaxOldModules));
  std::size_t seen = count();
  scratch.write("src/k.cu", text("k", 1000));
  CHECK(reload(true, seen).reason.find("stop: 64 old modules are loaded") == 0);
  CHECK(launched(kernel) == last);
  seen = count();
  scratch.write("src/k.cu", text("k", 120));  // one of those that are loaded
  reload(false, seen);
  CHECK(launched(kernel) != last);
  CHECK(fake.libraries() == 1 + static_cast<int>(kMaxOldModules));
}

TEST_CASE_FIXTURE(Edited, "fault 354: watch: without a free watch of inotify, files are polled") {
  g_no_inotify = true;
  const auto watch = opened->watch();
  REQUIRE(watch);
  edit("// seen by the first check\n");
  reload(false);
  const std::uint64_t first = launched(kernel);
  edit("// polled\n");
  reload(false, 1);
  CHECK(launched(kernel) != first);
}

TEST_CASE_FIXTURE(Edited, "fault 352: watch: its end, and the loader's, cancel a compile of it") {
  std::optional<Opened> other(open(options()));
  REQUIRE((*other)->get(asked));
  auto watch = (*other)->watch();
  REQUIRE(watch);
  const std::string started = scratch / "started";
  edit("// fake: count " + started + "\n// fake: wait " + (scratch / "never") + "\n");
  REQUIRE(testing::becomes_true([&] { return fs::exists(started); }));
  SUBCASE("the loader's") { other.reset(); }
  SUBCASE("its own") { watch->end(); }
  CHECK(count() == 0);
}

TEST_CASE_FIXTURE(Edited, "watch: one at a time, and after its end nothing is reloaded") {
  auto watch = opened->watch();
  REQUIRE(watch);
  const auto second = opened->watch();
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().code() == ErrorCode::invalid_argument);
  watch->end();
  edit("// not seen\n");
  CHECK(launched(kernel) == before);
  const int others[] = {::eventfd(0, EFD_NONBLOCK), ::eventfd(0, EFD_NONBLOCK),
                        ::eventfd(0, EFD_NONBLOCK)};  // under the numbers that it had
  REQUIRE(opened->get(module("later")));
  for (const int other : others) {
    eventfd_t written = 0;
    CHECK(::eventfd_read(other, &written) == -1);
    ::close(other);
  }
  const auto third = opened->watch();
  REQUIRE(third);
  reload(false);
}

TEST_CASE_FIXTURE(Edited, "watch: its thread leaves signals to the host's") {
  const auto threads = [] {
    std::set<std::string> all;
    for (const auto& one : fs::directory_iterator("/proc/self/task")) {
      all.insert(one.path().filename());
    }
    return all;
  };
  const std::set<std::string> others = threads();
  const auto watch = opened->watch();
  REQUIRE(watch);
  edit("// a thread that begins, or starts a worker, takes none anyway\n");
  reload(false);
  std::size_t found = 0;
  for (const std::string& thread : threads()) {
    if (!others.contains(thread)) {
      const std::string blocked = testing::status_of(std::stoi(thread), "SigBlk");
      CHECK((std::stoull(blocked, nullptr, 16) >> (SIGUSR1 - 1) & 1) == 1);
      ++found;
    }
  }
  CHECK(found == 1);
}

TEST_CASE_FIXTURE(Edited, "watch: an unloaded module is not watched, under either key") {
  const CacheKey first = testing::only(opened->compile(asked)).key;
  const auto watch = opened->watch();
  REQUIRE(watch);
  edit("// once\n");
  const Event event = reload(false);
  REQUIRE(event.key != first);
  SUBCASE("by the key of its load") { REQUIRE(opened->unload(first)); }
  SUBCASE("by that of the edit") { REQUIRE(opened->unload(event.key)); }
  CHECK(fake.libraries() == 0);
  CHECK_FALSE(opened->kernels().find("k"));
}

TEST_CASE_FIXTURE(Edited, "watch: a capture delays a reload") {
  const auto watch = opened->watch();
  REQUIRE(watch);
  fake.set_legacy_capture(1);
  edit("// captured\n");
  REQUIRE(testing::becomes_true([&] { return opened->stats().compiles == 2; }));
  fake.set_legacy_capture(0);
  REQUIRE(testing::becomes_true([&] { return image(kernel) != before; }));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE_FIXTURE(Edited, "watch: a forked child has none, may close the loader, and start one") {
  auto watch = opened->watch();
  REQUIRE(watch);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    watch->end();
    ::_exit(opened->watch() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  edit("// the parent's goes on\n");
  reload(false);
}
#endif

TEST_CASE_FIXTURE(Fixture, "watch: 1,000 random edits while threads launch") {
  constexpr int kRounds = 100, kEdits = 10;
  constexpr int kVersions = 6, kHeaders = 4;  // 48 contents, fewer than may be loaded
  const std::string include = "// fake: include /cukiln/src/tile.cuh\n";
  scratch.write("src/tile.cuh", "#define TILE 0\n");
  const ModuleSpec specs[] = {module("a", include), module("b", include)};
  Opened opened = open(options());
  REQUIRE(opened->preload(Manifest({specs[0], specs[1]})));
  const auto watch = opened->watch();
  REQUIRE(watch);
  std::atomic<bool> stop{false};
  std::atomic<long> failures{0}, launches{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      push_context();
      for (std::uint32_t i = 0; !stop; ++i) {
        const Kernel kernel =
            t == 0 ? opened->kernels().at(i % 2) : opened->kernels().find(i % 2 == 0 ? "a" : "b/b");
        failures += kernel && kernel.launch(nullptr, {{1}, {32}}, nullptr) ? 0 : 1;
        failures += i % 64 != 0 || kernel.reserve_shared(50'000 + i % 1000) ? 0 : 1;
        ++launches;
        std::this_thread::yield();
      }
    });
  }
  std::mt19937 random(38);
  const auto edit = [&](bool may_break) {
    const std::string name = random() % 2 == 0 ? "a" : "b";
    std::string path = name + ".cu";
    std::string content = include + text(name, static_cast<int>(random() % kVersions));
    if (random() % 4 == 0) {
      path = "tile.cuh";
      content = "#define TILE " + std::to_string(random() % kHeaders) + "\n";
    } else if (may_break && random() % 5 == 0) {
      content += "// fake: error it is wrong\n";
    }
    switch (random() % 3) {
      case 0: fs::rename(scratch.write("src/.saved", content), scratch / "src/" + path); break;
      case 1: fs::remove(scratch / "src/" + path); [[fallthrough]];
      default: scratch.write("src/" + path, content);
    }
  };
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kEdits - 2; ++i) {
      edit(true);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3));
    }
    for (const char* name : {"a", "b"}) {
      scratch.write(std::string("src/") + name + ".cu",
                    include + text(name, static_cast<int>(random() % kVersions)));
    }
    for (std::size_t m = 0; m < 2;
         ++m) {  // what a compile makes of the files, the kernels run soon
      const std::uint64_t now =
          image_of(*opened->cubin(testing::only(opened->compile(specs[m])).key));
      REQUIRE(testing::becomes_true([&] { return image(opened->kernels().at(m)) == now; }));
    }
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(failures == 0);
  MESSAGE(launches.load(), " launches, ", count(), " reloads, ", fake.libraries(), " modules");
}
