// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/store/sqlite_handle.hpp"
#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"

using namespace cukiln;

namespace {

/// The events that a loader and its store had, with the thread of each.
struct Recorded {
  mutable std::mutex mutex;
  std::vector<Event> events;
  std::vector<std::thread::id> threads;

  EventSink sink() {
    return [this](const Event& event) {
      const std::lock_guard lock(mutex);
      events.push_back(event);
      threads.push_back(std::this_thread::get_id());
    };
  }
  std::string kinds() const {
    const std::lock_guard lock(mutex);
    std::string all;
    for (const Event& event : events) {
      all += std::string(all.empty() ? "" : " ") + name_of(event.kind);
    }
    return all;
  }
  std::vector<Event> of(EventKind kind) const {
    const std::lock_guard lock(mutex);
    std::vector<Event> some;
    std::copy_if(events.begin(), events.end(), std::back_inserter(some),
                 [&](const Event& event) { return event.kind == kind; });
    return some;
  }
};

struct Fixture : testing::LoaderFixture {
  Recorded recorded;

  LoaderOptions options() {
    LoaderOptions options = fake_options();
    options.events = recorded.sink();
    return options;
  }
  StoreOptions store() {
    StoreOptions options = store_options();
    options.events = recorded.sink();
    return options;
  }
  ModuleSpec module(const std::string& name, const std::string& text = {}) const {
    ModuleSpec module = spec(
        scratch.write(name + ".cu", "__global__ void " + name + "() {}\n" + text), {{90, 'a'}});
    module.name = name;
    return module;
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "events: a miss and its compile, then hits, in the caller's thread") {
  const Opened opened = open(store(), options());
  const std::string header = scratch.write("tile.cuh", "#define TILE 16\n");
  const ModuleSpec asked = module("k", "// fake: include /cukiln/src/tile.cuh\n");
  const ModuleReport compiled = testing::only(opened->compile(asked));
  CHECK(recorded.kinds() == "miss compile");
  const Event miss = recorded.events.at(0);
  CHECK(miss.module == "k");
  CHECK(miss.target == Target{90, 'a'});
  CHECK(miss.key == CacheKey{});
  CHECK(miss.reason == "not in the store");
  const Event compile = recorded.events.at(1);
  CHECK(compile.key == compiled.key);
  CHECK(compile.elapsed.count() > 0);
  CHECK(compile.elapsed <= compiled.elapsed);
  CHECK_FALSE(compile.failed);

  testing::only(opened->compile(asked));
  REQUIRE(recorded.kinds() == "miss compile hit");
  CHECK(recorded.events.at(2).reason == "in the store");
  CHECK(recorded.events.at(2).key == compiled.key);

  scratch.write("tile.cuh", "#define TILE 32\n");
  testing::only(opened->compile(asked));
  REQUIRE(recorded.kinds() == "miss compile hit miss compile");
  CHECK(recorded.events.at(3).reason == "header changed: " + header);
  for (const std::thread::id thread : recorded.threads) {
    CHECK(thread == std::this_thread::get_id());
  }
}

TEST_CASE_FIXTURE(Fixture, "events: a compile that fails has the error's message") {
  const Opened opened = open(store(), options());
  const auto reports = opened->compile(module("k", "// fake: error it is wrong\n"));
  REQUIRE(reports);
  REQUIRE(reports->front().error);
  REQUIRE(recorded.kinds() == "miss compile");
  CHECK(recorded.events.at(1).failed);
  CHECK(recorded.events.at(1).key == CacheKey{});
  CHECK(recorded.events.at(1).reason == reports->front().error->message());
}

TEST_CASE_FIXTURE(Fixture, "events: a preload has those of all its threads when it returns") {
  const Opened opened = open(store(), options());
  Manifest manifest;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    manifest.add(module(name));
  }
  REQUIRE(opened->preload(manifest, testing::without_load()));
  CHECK(recorded.of(EventKind::miss).size() == 6);
  CHECK(recorded.of(EventKind::compile).size() == 6);
}

TEST_CASE_FIXTURE(Fixture, "events: a load, one that is refused, and what is sealed") {
  testing::FakeCuda driver;
  LoaderOptions options = with_driver(driver.path);  // NVRTC itself: the fake reads its cubins
  options.events = recorded.sink();
  const Opened opened = open(store(), options);
  const auto module_of = [&](const std::string& name) {
    return spec(scratch.write(name + ".cu", "extern \"C\" __global__ void " + name + "() {}"),
                {{90, 'a'}});
  };
  REQUIRE(opened->get(module_of("first")));
  REQUIRE(recorded.kinds() == "miss compile load");
  CHECK(recorded.events.at(2).module == "first");
  CHECK(recorded.events.at(2).key == recorded.events.at(1).key);
  REQUIRE(opened->get(module_of("first")));  // loaded already
  CHECK(recorded.kinds() == "miss compile load hit");

  driver.fail("cuLibraryLoadData", static_cast<CUresult>(2), 1);  // out of memory
  const auto refused = opened->get(module_of("second"));
  REQUIRE_FALSE(refused);
  REQUIRE(recorded.kinds() == "miss compile load hit miss compile load");
  CHECK(recorded.events.at(6).failed);
  CHECK(refused.error().message().find(recorded.events.at(6).reason) != std::string::npos);

  opened->seal();
  REQUIRE_FALSE(opened->get(module_of("third")));
  const auto violations = recorded.of(EventKind::sealed);
  REQUIRE(violations.size() == 1);
  CHECK(violations[0].module == "third");
  CHECK(violations[0].failed);
  CHECK(violations[0].reason.find("a compile of third: not in the store") != std::string::npos);
  opened->seal(SealPolicy::warn);
  REQUIRE(opened->get(module_of("third")));
  CHECK(recorded.of(EventKind::sealed).size() == 3);  // the compile and the load
  CHECK_FALSE(recorded.of(EventKind::sealed)[2].failed);
}

TEST_CASE_FIXTURE(Fixture, "events: what the store evicts, and damage that it finds") {
  const ModuleSpec damaged = module("damaged");
  CacheKey key;
  {
    const Opened opened = open(store(), options());
    key = testing::only(opened->compile(damaged)).key;
  }
  {
    auto db = SqliteHandle::open(scratch / "store/v6/gen-0001/store.db", {});
    REQUIRE(db);
    REQUIRE(db->execute("UPDATE payload SET data=zeroblob(length(data))"));
  }
  {
    const Opened opened = open(store(), options());
    testing::only(opened->compile(damaged));
    const auto found = recorded.of(EventKind::corrupt);
    REQUIRE(found.size() == 1);
    CHECK(found[0].key == key);
    CHECK_FALSE(found[0].reason.empty());
    CHECK(opened->stats().corrupt == 1);
  }
  StoreOptions small = store();
  small.max_bytes = 256 << 10;
  const Opened opened = open(small, options());
  for (int i = 0; i < 200 && recorded.of(EventKind::evict).empty(); ++i) {
    testing::only(opened->compile(
        module("m" + std::to_string(i), "// " + std::string(static_cast<std::size_t>(i), 'x'))));
  }
  const auto evicted = recorded.of(EventKind::evict);
  REQUIRE_FALSE(evicted.empty());
  CHECK(evicted.size() == opened->stats().evicted);
  CHECK(evicted[0].module == "damaged");  // the least recently used
  CHECK(evicted[0].key == key);
  CHECK(evicted[0].target == Target{90, 'a'});
}

// fault 96
TEST_CASE_FIXTURE(Fixture, "an event sink that throws loses its event and nothing else") {
  int calls = 0;
  LoaderOptions throwing = options();
  throwing.events = [&](const Event&) {
    ++calls;
    throw std::runtime_error("no room for an event");
  };
  const Opened opened = open(store_options(), throwing);
  testing::only(opened->compile(module("k")));
  CHECK(testing::only(opened->compile(module("k"))).outcome == Outcome::hit);
  CHECK(calls == 3);
}

// fault 230
TEST_CASE_FIXTURE(Fixture, "an event sink that is stuck delays its own thread only") {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_stuck = false;
  bool may_go = false;
  LoaderOptions stuck = options();
  std::optional<std::thread::id> victim;
  stuck.events = [&](const Event&) {
    std::unique_lock lock(mutex);
    if (victim == std::this_thread::get_id()) {
      is_stuck = true;
      changed.notify_all();
      changed.wait(lock, [&] { return may_go; });
    }
  };
  StoreOptions store = store_options();
  store.events = stuck.events;
  const Opened opened = open(store, stuck);
  std::thread first([&] {
    {
      const std::lock_guard lock(mutex);
      victim = std::this_thread::get_id();
    }
    testing::only(opened->compile(module("k")));
  });
  {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return is_stuck; }));
  }
  CHECK(testing::only(opened->compile(module("k"))).outcome == Outcome::hit);  // the same
  CHECK(testing::only(opened->compile(module("other"))).outcome == Outcome::compiled);
  CHECK(opened->stats().compiles == 2);
  {
    const std::lock_guard lock(mutex);
    may_go = true;
    changed.notify_all();
  }
  first.join();
}

// fault 230
TEST_CASE_FIXTURE(Fixture, "an event sink may call the loader, for the same module too") {
  const KernelLoader* used = nullptr;
  int nested = 0;
  LoaderOptions calling = options();
  Recorded all;
  const EventSink record = all.sink();
  const ModuleSpec asked = module("k");
  calling.events = [&](const Event& event) {
    record(event);
    if (event.kind == EventKind::miss && nested++ == 0) {
      const auto again = const_cast<KernelLoader*>(used)->compile(asked);
      CHECK(testing::only(again).outcome == Outcome::hit);
      CHECK(used->stats().compiles == 1);
    }
  };
  const Opened opened = open(store_options(), calling);
  used = &opened.loader;
  testing::only(opened->compile(asked));
  CHECK(nested == 1);
  CHECK(all.kinds() == "miss hit compile");
}
