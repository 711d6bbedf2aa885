// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include "support/daemon_process.hpp"

using cukiln::testing::becomes_true;
using cukiln::testing::first_word;
using cukiln::testing::read_all;
using std::chrono::seconds;

namespace {

struct Fixture : cukiln::testing::DaemonFixture {
  /// A source that the daemon compiled for a client and watches now. Repeated with another if the
  /// client compiled locally.
  std::string watched_source(const std::string& text) {
    std::string path;
    for (int i = 0; i < 20 && path.empty(); ++i) {
      const std::string name = "k" + std::to_string(i) + ".cu";
      const auto before = counter("compiles_ok") + counter("compiles_failed");
      auto process = client(scratch.write(name, text + "// " + name + "\n"));
      process->wait();
      if (counter("compiles_ok") + counter("compiles_failed") > before) {
        path = scratch / name;
      }
    }
    REQUIRE_FALSE(path.empty());
    CHECK(becomes_true([&] { return counter("watch_directories") > 0; }, seconds(20)));
    return path;
  }
  /// Checks that a changed source was compiled ahead, and that the next client hits.
  void check_ahead(const std::string& path, std::uint64_t compiles_before) {
    CHECK(becomes_true([&] { return counter("compiles_ok") > compiles_before; }, seconds(20)));
    auto next = client(path);
    CHECK(next->wait() == 0);
    CAPTURE(next->log());
    CHECK(first_word(next->output()) == "hit");
  }
  bool never_happens(const std::function<bool()>& what) { return !becomes_true(what, seconds(1)); }
};

const std::string kIncludes = "// fake: include /cukiln/src/tile.h\n";

}  // namespace

TEST_CASE_FIXTURE(
    Fixture, "after a header is saved its module is compiled ahead, and the next client hits") {
  const auto daemon = start();
  scratch.write("tile.h", "one");
  const std::string path = watched_source(kIncludes);
  const auto compiled = counter("compiles_ok");
  scratch.write("tile.h", "two, and longer");
  check_ahead(path, compiled);
  CHECK(counter("compiles_ahead") == 1);
  CHECK(counter("watch_events") > 0);
  CHECK(counter("watch_limit_reached") == 0);
  CHECK(state()->jobs.empty());
  // And again, by another file that is renamed: what was compiled ahead is watched too.
  std::filesystem::rename(scratch.write(".tile.h.swp", "three, by a rename"), scratch / "tile.h");
  check_ahead(path, compiled + 1);
  // What the store knows is not compiled again.
  const auto events = counter("watch_events");
  scratch.write("tile.h", "two, and longer");
  CHECK(becomes_true([&] { return counter("watch_events") > events; }, seconds(20)));
  CHECK(never_happens([&] { return counter("compiles_ahead") > 2; }));
}

TEST_CASE_FIXTURE(Fixture, "a module that spells __TIME__ and is compiled ahead is not stored") {
  const auto daemon = start();
  scratch.write("tile.h", "one");
  const std::string path = watched_source(kIncludes);
  const auto compiled = counter("compiles_ok");
  scratch.write("tile.h", "const char* when = __TI\\\nME__;\n");
  CHECK(becomes_true([&] { return counter("compiles_ok") > compiled; }, seconds(20)));
  auto next = client(path);
  CHECK(next->wait() == 0);
  CHECK(first_word(next->output()) == "compiled");
}

TEST_CASE_FIXTURE(Fixture,
                  "a saved source, or a header that appears in front, causes a compile ahead") {
  const auto daemon = start();
  const std::string path = watched_source("// fake: look /cukiln/src/option.h\n");
  auto compiled = counter("compiles_ok");
  scratch.write("option.h", "");
  check_ahead(path, compiled);
  compiled = counter("compiles_ok");
  std::ofstream(path, std::ios::app) << "// edited\n";
  check_ahead(path, compiled);
}

TEST_CASE_FIXTURE(Fixture, "a source that failed is compiled ahead when it is corrected") {
  const auto daemon = start();
  scratch.write("tile.h", "one");
  const std::string path = watched_source(kIncludes + "// fake: error no\n");
  CHECK(counter("compiles_failed") == 1);
  std::string text = read_all(path);
  text.erase(text.find("// fake: error"), std::string("// fake: error no\n").size());
  scratch.write(path.substr(scratch.path().size() + 1), text);
  check_ahead(path, 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "a client that requests a module that is compiled ahead joins that compile") {
  const auto daemon = start();
  scratch.write("tile.h", "one");
  const std::string path = watched_source(kIncludes + "// fake: sleep 900\n");
  const auto compiled = counter("compiles_ok");
  const int begun = compiles();
  scratch.write("tile.h", "two, and longer");
  REQUIRE(becomes_true([&] { return counter("compiles_ahead") == 1; }, seconds(20)));
  const auto now = state();
  REQUIRE(now);
  if (!now->jobs.empty()) {
    CHECK(now->jobs[0].owner_process == now->process);
    CHECK_FALSE(now->jobs[0].orphaned);
  }
  auto next = client(path);
  CHECK(next->wait() == 0);
  CHECK(first_word(next->output()) == "hit");
  CHECK(counter("compiles_ok") == compiled + 1);
  CHECK(compiles() <= begun + 1);
}

TEST_CASE_FIXTURE(Fixture, "a daemon that drains does not wait for a compile ahead") {
  const auto daemon = start();
  scratch.write("tile.h", "one");
  const std::string path = watched_source(kIncludes);
  const int begun = compiles();
  std::ofstream(path, std::ios::app) << "// fake: sleep 9000\n// fake: count " + count_file + "\n";
  REQUIRE(becomes_true([&] { return counter("compiles_ahead") == 1; }, seconds(20)));
  daemon->signal(SIGTERM);
  CHECK(daemon->wait() == 0);
  CHECK(compiles() == begun);  // counted at its end
}

TEST_CASE_FIXTURE(Fixture,
                  "a header that is saved during its module's compile causes another compile") {
  const auto daemon = start();
  scratch.write("tile.h", "one");
  std::string path;
  REQUIRE(becomes_true(
      [&] {  // repeated if the client compiles locally
        const std::string has_header = scratch / ("has-header-" + std::to_string(clients));
        path = source(kIncludes + "// fake: count " + has_header + "\n// fake: sleep 1200\n// " +
                      std::to_string(clients) + "\n");
        auto process = client(path);
        const bool runs = becomes_true([&] { return !read_all(has_header).empty(); }, seconds(3)) &&
                          counter("questions") > 0 && counter("compiles_ok") == 0;
        if (runs) {
          scratch.write("tile.h", "two, and longer");
        }
        process->wait();
        return runs;
      },
      seconds(20)));
  check_ahead(path, 1);
}

TEST_CASE_FIXTURE(Fixture, "with daemon_watch off nothing is watched") {
  const auto daemon = start({}, {"CUKILN_DAEMON_WATCH=0"});
  scratch.write("tile.h", "one");
  const std::string path = source(kIncludes);
  CHECK(client(path)->wait() == 0);
  scratch.write("tile.h", "two, and longer");
  CHECK(never_happens([&] { return counter("compiles_ahead") > 0; }));
  const auto now = state();
  REQUIRE(now);
  for (const auto& [name, value] : now->counters) {
    CHECK(name.rfind("watch_", 0) != 0);
  }
}
