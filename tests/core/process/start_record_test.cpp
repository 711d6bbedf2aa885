// SPDX-License-Identifier: Apache-2.0
// The record that a start leaves, and that it costs a host nothing where it cannot be left.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/loader/start_record.hpp"
#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"

using namespace cukiln;
using Json = nlohmann::json;

namespace fs = std::filesystem;

namespace {

struct Fixture : testing::LoaderFixture {
  testing::FakeCuda driver;
  const fs::path folder = scratch / "store/v6/starts";

  ModuleSpec module(const std::string& name, const std::string& text = {}) const {
    ModuleSpec module = spec(
        scratch.write(name + ".cu", "__global__ void " + name + "() {}\n" + text), {{90, 'a'}});
    module.name = name;
    return module;
  }
  std::vector<Json> starts() const {
    std::vector<Json> found;
    for (const std::string& text : read_starts(open(fake_options()).store)) {
      found.push_back(Json::parse(text));
    }
    return found;
  }
  std::size_t files() const {
    return fs::exists(folder) ? static_cast<std::size_t>(std::distance(
                                    fs::directory_iterator(folder), fs::directory_iterator()))
                              : 0;
  }
  void start(const std::vector<ModuleSpec>& modules) const {
    const Opened opened = open(fake_options());
    REQUIRE(opened->preload(Manifest(modules)));
    opened->seal();
  }
};

}  // namespace

// fault 447
TEST_CASE_FIXTURE(Fixture, "a start leaves one record: phases, and each module with its reason") {
  start({module("a")});
  {
    const Opened opened = open(fake_options());
    REQUIRE(opened->preload(Manifest({module("a"), module("b")})));
    REQUIRE(opened->get(module("c")));
    REQUIRE(opened->get(module("c")));
    CHECK(files() == 1);
    opened->seal();
    CHECK(files() == 2);
    CHECK_FALSE(opened->get(module("d")));
    opened->seal(SealPolicy::warn);
    REQUIRE(opened->get(module("d")));
  }
  const auto found = starts();
  REQUIRE(found.size() == 2);  // none of the loader that only read them
  const Json& last = found.back();
  CHECK(last["sealed"] == true);
  CHECK(last["process"] == getpid());
  CHECK(last["program"].get<std::string>().starts_with("process_faults"));
  CHECK(last["hits"] == 1);
  CHECK(last["compiled"] == 2);
  CHECK(last["failed"] == 0);
  CHECK(last["open_ms"] > 0);
  CHECK(last["phases"]["compile_ms"] > 0);
  CHECK(last["phases"]["look_up_ms"] > 0);
  CHECK(last["milliseconds"] >= last["open_ms"]);
  REQUIRE(last["modules"].size() == 3);
  const Json& hit = last["modules"][2];  // the misses come first
  CHECK(hit["name"] == "a");
  CHECK(hit["outcome"] == "hit");
  CHECK(hit["reason"] == "in the store");
  const Json& miss = last["modules"][0];
  CHECK(miss["outcome"] == "compiled");
  CHECK(miss["target"] == "sm_90a");
  CHECK(miss["reason"] == "not in the store");
  CHECK(miss["stored"] == true);
}

TEST_CASE_FIXTURE(Fixture, "a loader that is never sealed leaves it at its end, if it loaded") {
  {
    const Opened opened = open(fake_options());
    REQUIRE(opened->preload(Manifest({module("a")}), testing::without_load()));
  }
  CHECK(files() == 0);
  {
    LoaderOptions offline = fake_options();
    offline.offline = true;
    const Opened opened = open(offline);
    CHECK_FALSE(opened->preload(Manifest({module("a"), module("b")})));
  }
  const auto found = starts();
  REQUIRE(found.size() == 1);
  CHECK(found[0]["sealed"] == false);
  CHECK(found[0]["failed"] == 1);
  CHECK(found[0]["modules"][0]["outcome"] == "missing");
  CHECK(found[0]["modules"][0]["stored"] == false);
}

// fault 448
TEST_CASE_FIXTURE(Fixture, "records are few and small, and what is none is left alone") {
  std::vector<ModuleSpec> many;
  for (int i = 0; i < 60; ++i) {
    many.push_back(module("m" + std::to_string(i)));
    many.back().name += std::string(300, 'x') + '\x1b';
  }
  start(many);
  REQUIRE(files() == 1);
  const auto first = starts();
  REQUIRE(first.size() == 1);
  CHECK(first[0]["compiled"] == 60);
  CHECK(first[0]["modules"].size() > 5);
  CHECK(first[0]["modules"].size() < 60);
  std::ofstream(folder / "notes.txt") << "of the user";
  fs::create_symlink(folder / "notes.txt", folder / "0000000000000004-0000000001.json");
  CHECK(starts().size() == 1);
  for (int i = 0; i < 18; ++i) {
    start({module("a")});
  }
  CHECK(starts().size() == 16);
  CHECK(files() == 17);
  CHECK(fs::exists(folder / "notes.txt"));
  for (const auto& entry : fs::directory_iterator(folder)) {
    struct stat status {};
    REQUIRE(::lstat(entry.path().c_str(), &status) == 0);
    CHECK(status.st_size <= 4096);
    CHECK((entry.path().filename() == "notes.txt" || (status.st_mode & 0777) == 0600));
  }
}

TEST_CASE_FIXTURE(Fixture, "where no record can be left, the host does not notice") {
  start({module("a")});
  fs::remove_all(folder);
  fs::create_directory_symlink(scratch.path(), folder);  // another place
  start({module("a")});
  CHECK(starts().empty());
  fs::remove(folder);
  std::ofstream(folder) << "a file";
  start({module("a")});
  CHECK(starts().empty());
  fs::remove(folder);
  fs::permissions(scratch / "store/v6", fs::perms::owner_read | fs::perms::owner_exec);
  start({module("a")});
  fs::permissions(scratch / "store/v6", fs::perms::owner_all);
  CHECK_FALSE(fs::exists(folder));
}
