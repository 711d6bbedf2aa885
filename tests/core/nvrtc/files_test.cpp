// SPDX-License-Identifier: Apache-2.0
// What a lookup goes by where files are links, cannot be looked at, keep their stamps, or come in
// many versions: always what NVRTC itself finds at that moment.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "core/store/store_admin.hpp"
#include "support/loader_fixture.hpp"
#include "support/plain_nvrtc.hpp"

using namespace cukiln;
using namespace cukiln::testing;
namespace fs = std::filesystem;

namespace {

/// X is 11 where it is read once, and 22 where it is read twice.
constexpr const char* kOnce =
    "#pragma once\n#ifdef X\n#undef X\n#define X 22\n#else\n#define X 11\n#endif\n";

struct Files : LoaderFixture {
  /// The outcome of one compile, whose X must be what NVRTC itself finds now.
  static ModuleReport checked(const Opened& opened, const std::string& source,
                              const Strings& flags) {
    ModuleSpec module = spec(source);
    module.flags = flags;
    ModuleReport report = only(opened->compile(module));
    CHECK(x_of(report) == plain_x(source, flags));
    return report;
  }
};

/// Another user for files, if this is root, whom no permission stops.
class Unprivileged {
 public:
  Unprivileged() { REQUIRE((!is_root_ || ::seteuid(65'534) == 0)); }
  ~Unprivileged() { static_cast<void>(!is_root_ || ::seteuid(0) == 0); }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  const bool is_root_ = ::geteuid() == 0;
};

}  // namespace

// fault 81
TEST_CASE_FIXTURE(Files,
                  "#pragma once: a link that becomes a copy is a miss, and the other way round") {
  scratch.write("one/x.h", kOnce);
  fs::create_directory(scratch / "two");
  const std::string source = scratch.write(
      "k.cu", std::string("#include \"one/x.h\"\n#include \"two/x.h\"\n") + kKernelOfX);
  const auto make_link = [&](const std::string& kind) {
    fs::remove_all(scratch / "two");
    if (kind == "linked folder") {
      fs::create_symlink("one", scratch / "two");
      return;
    }
    fs::create_directory(scratch / "two");
    if (kind == "hard link") {
      fs::create_hard_link(scratch / "one/x.h", scratch / "two/x.h");
    } else {
      fs::create_symlink("../one/x.h", scratch / "two/x.h");
    }
  };
  const auto make_copy = [&] {
    fs::remove_all(scratch / "two");
    scratch.write("two/x.h", kOnce);
  };
  for (const std::string kind : {"hard link", "symbolic link", "linked folder"}) {
    for (const bool link_first : {true, false}) {
      CAPTURE(kind);
      CAPTURE(link_first);
      const auto change_to = [&](bool link) { link ? make_link(kind) : make_copy(); };
      const auto opened = [&] {
        StoreOptions options = store_options();
        options.directory = scratch / (kind + (link_first ? " first" : " later"));
        return open(options);
      }();
      change_to(link_first);
      const ModuleReport first = checked(opened, source, {});
      CHECK(first.outcome == Outcome::compiled);
      CHECK(x_of(first) == (link_first ? 11 : 22));
      CHECK(checked(opened, source, {}).outcome == Outcome::hit);
      change_to(!link_first);
      const ModuleReport second = checked(opened, source, {});
      CHECK(second.outcome == Outcome::compiled);
      CHECK(second.reason == "header file identity changed: " + (scratch / "two/x.h"));
      CHECK(x_of(second) == (link_first ? 22 : 11));
      CHECK(second.key != first.key);
      CHECK(checked(opened, source, {}).outcome == Outcome::hit);
      change_to(link_first);
      const ModuleReport again = checked(opened, source, {});
      CHECK(again.outcome == Outcome::hit);
      CHECK(again.key == first.key);
    }
  }
}

// fault 95
TEST_CASE_FIXTURE(Files, "a loop of links is absent in lookup and compile") {
  const std::string source = scratch.write("k.cu", std::string("#include <x.h>\n") + kKernelOfX);
  scratch.write("late/x.h", "#define X 11\n");
  fs::create_directory(scratch / "early");
  const Strings flags = {"-I" + (scratch / "early"), "-I" + (scratch / "late")};
  const std::string place = scratch / "early/x.h";
  SUBCASE("that is there before") {
    fs::create_symlink("x.h", place);
    const auto opened = open();
    const ModuleReport first = checked(opened, source, flags);
    CHECK(first.outcome == Outcome::compiled);
    CHECK(x_of(first) == 11);
    CHECK(checked(opened, source, flags).outcome == Outcome::hit);
    fs::remove(place);
    CHECK(checked(opened, source, flags).outcome == Outcome::hit);
    scratch.write("early/x.h", "#define X 12\n");
    CHECK(checked(opened, source, flags).reason == "header appeared: " + place);
  }
  SUBCASE("that comes later") {
    const auto opened = open();
    const ModuleReport first = checked(opened, source, flags);
    CHECK(x_of(first) == 11);
    fs::create_symlink("x.h", place);
    CHECK(checked(opened, source, flags).outcome == Outcome::hit);
    StoreOptions elsewhere = store_options();
    elsewhere.directory = scratch / "another store";
    CHECK(checked(open(elsewhere), source, flags).key == first.key);
  }
}

// fault 95
TEST_CASE_FIXTURE(RealNvrtc, "a folder without permission is absent in lookup and compile") {
  must(TestModule("extern \"C\" __global__ void k() {}\n").run(compiler()));  // a worker is there
  const ScratchFolder scratch;
  scratch.write("late/x.h", "#define X 11\n");
  scratch.write("early/x.h", "#define X 12\n");
  const std::string text = std::string("#include <x.h>\n") + kKernelOfX;
  const std::string source = scratch.write("k.cu", text);
  fs::permissions(scratch.path(), fs::perms(0755));
  fs::permissions(scratch / "early", fs::perms::none);
  TestModule module(text, {scratch / "early", scratch / "late"});
  std::optional<CompileResult> result;
  std::uint32_t plain = 0;
  FileServer::Mismatch found;
  {
    const Unprivileged nobody;
    plain = plain_x(source, {"-I" + (scratch / "early"), "-I" + (scratch / "late")});
    result = must(module.run(compiler()));
    found = FileServer(module.roots, nullptr).check(result->dependencies);
  }
  fs::permissions(scratch / "early", fs::perms::owner_all | fs::perms(0055));
  CHECK(plain == 11);
  REQUIRE(result->cubin.kernels.size() == 1);
  CHECK(result->cubin.kernels.front().shared_bytes == 4 * plain);
  CHECK(result->dependencies.paths(Observation::Kind::file) == Strings{"/cukiln/inc/1/x.h"});
  CHECK(result->dependencies.paths(Observation::Kind::absent) == Strings{"/cukiln/inc/0/x.h"});
  using What = FileServer::Mismatch::What;
  CHECK(found.what == What::none);
  CHECK(FileServer(module.roots, nullptr).check(result->dependencies).what == What::appeared);
}

// fault 92
TEST_CASE_FIXTURE(Files, "on tmpfs a write through a mapping, which leaves the stamp, is noticed") {
  std::string folder = "/dev/shm/cukiln-test-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  struct Removed {
    std::string path;
    ~Removed() { fs::remove_all(path); }
  } const removed{folder};
  struct statfs facts {};
  REQUIRE(::statfs(folder.c_str(), &facts) == 0);
  REQUIRE(facts.f_type == 0x01021994);
  const std::string source = scratch.write("k.cu", std::string("#include <x.h>\n") + kKernelOfX);
  const std::string header = folder + "/x.h";
  const std::string text = "#define X 11\n";
  std::ofstream(header) << text;
  const UniqueFd file(::open(header.c_str(), O_RDWR | O_CLOEXEC));
  void* const mapped =
      ::mmap(nullptr, text.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  char* const digit = static_cast<char*>(mapped) + text.size() - 2;
  *digit = '1';  // the first write through it is stamped
  struct stat before {
  }, after{};
  REQUIRE(::stat(header.c_str(), &before) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));  // the stamp is no longer young

  const auto opened = open();
  CHECK(x_of(checked(opened, source, {"-I" + folder})) == 11);
  CHECK(checked(opened, source, {"-I" + folder}).outcome == Outcome::hit);
  *digit = '2';
  REQUIRE(::stat(header.c_str(), &after) == 0);
  CHECK(stamp_of(after) == stamp_of(before));
  for (const bool fresh_process : {false, true}) {
    CAPTURE(fresh_process);
    const auto reopened = open();
    const ModuleReport report = checked(fresh_process ? reopened : opened, source, {"-I" + folder});
    CHECK(report.outcome == (fresh_process ? Outcome::hit : Outcome::compiled));
    CHECK(x_of(report) == 12);
  }
  ::munmap(mapped, text.size());
}

// fault 101
TEST_CASE_FIXTURE(Files, "every compiled version of a header is a hit when it returns") {
  const std::string source = scratch.write(
      "k.cu", std::string("#include \"x.h\"\n") + "extern \"C\" __global__ void k() {}\n");
  ModuleSpec module = spec(source);
  std::size_t versions = 5;
  SUBCASE("of five") {}
  SUBCASE("of a hundred") { versions = 100; }
  std::vector<CacheKey> keys;
  const auto opened = open();
  const auto write_version = [&](std::size_t i) {
    scratch.write("x.h", "extern \"C\" __device__ int version" + std::to_string(i) + ";\n");
  };
  for (std::size_t i = 0; i < versions; ++i) {
    write_version(i);
    const ModuleReport report = only(opened->compile(module));
    CHECK(report.outcome == Outcome::compiled);
    CHECK(std::find(keys.begin(), keys.end(), report.key) == keys.end());
    keys.push_back(report.key);
  }
  CHECK(opened->stats().hits == 0);
  const auto reopened = open();  // another process: nothing is in memory
  for (int pass = 1; pass <= 2; ++pass) {
    for (std::size_t i = 0; i < versions; ++i) {
      write_version(i);
      const ModuleReport report = only(reopened->compile(module));
      CHECK(report.outcome == Outcome::hit);
      CHECK(report.key == keys[i]);
    }
    CHECK(reopened->stats().hits == versions * static_cast<std::size_t>(pass));
  }
  CHECK(reopened->stats().compiles == 0);
}

// fault 98
TEST_CASE_FIXTURE(Files, "an evicted entry is a miss with that reason, and counted") {
  const std::string source =
      scratch.write("k.cu", "#include \"x.h\"\nextern \"C\" __global__ void k() {}\n");
  const ModuleSpec module = spec(source);
  scratch.write("x.h", "#define OLD\n");
  only(open()->compile(module));
  std::this_thread::sleep_for(std::chrono::milliseconds(3100));
  scratch.write("x.h", "#define NEW\n");
  const auto opened = open();
  CHECK(only(opened->compile(module)).reason == "header changed: " + (scratch / "x.h"));
  GcOptions unused;
  unused.max_age_s = 1;
  const auto collected = StoreAdmin(opened.store).collect(unused);
  REQUIRE(collected);
  CHECK(collected->entries == 1);
  scratch.write("x.h", "#define OLD\n");
  const auto reopened = open();
  const ModuleReport report = only(reopened->compile(module));
  CHECK(report.outcome == Outcome::compiled);
  CHECK(report.reason == "the stored entry was evicted");
  const Stats stats = reopened->stats();
  CHECK(stats.misses_evicted == 1);
  CHECK(stats.misses_damaged == 0);
  CHECK(stats.corrupt == 0);
  CHECK(stats.misses == 1);
}

// fault 104
TEST_CASE_FIXTURE(Files, "explain compares with the nearest recorded set") {
  const std::string source = scratch.write(
      "k.cu", "#include \"a.h\"\n#include \"b.h\"\nextern \"C\" __global__ void k() {}\n");
  const ModuleSpec module = spec(source);
  const auto opened = open();
  const auto compile_with = [&](const std::string& a, const std::string& b) {
    scratch.write("a.h", "#define A " + a + "\n");
    scratch.write("b.h", "#define B " + b + "\n");
    return only(opened->compile(module)).key;
  };
  const CacheKey near = compile_with("1", "1");
  compile_with("2", "2");  // the youngest
  scratch.write("a.h", "#define A 3\n");
  scratch.write("b.h", "#define B 1\n");
  const auto explanation = opened->explain(module, {100, 'a'});
  REQUIRE(explanation);
  REQUIRE(explanation->nearest);
  CHECK(*explanation->nearest == near);
  REQUIRE(explanation->differences.size() == 1);
  CHECK(explanation->differences[0].field == "header changed");
  CHECK(explanation->differences[0].was.rfind(scratch / "a.h", 0) == 0);
}
