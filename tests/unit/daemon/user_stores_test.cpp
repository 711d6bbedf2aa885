// SPDX-License-Identifier: Apache-2.0
#include "daemon/user_stores.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <thread>
#include <vector>

#include "support/scratch.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using cukiln::daemon::UserStores;
using cukiln::testing::make_entry;
using cukiln::testing::ScratchFolder;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kAlice = 1001, kBob = 1002, kCarol = 1003;

struct Fixture {
  ScratchFolder scratch;
  UserStores::Options options;
  std::unique_ptr<TieredStore> own;

  Fixture() {
    options.each.store.directory = scratch / "store";
    options.each.store.system_directory.clear();
    options.each.memory_bytes = 0;
    options.each.disk.maintenance_owner = true;
    own = *TieredStore::open(options.each);
  }
  std::string folder_of(uid_t user) const {
    return scratch / ("store/users/" + std::to_string(user));
  }
  static void put(UserStores& stores, uid_t user, std::uint64_t number) {
    const auto store = stores.open(user);
    REQUIRE(store);
    const auto put = (*store)->put(make_entry(number));
    REQUIRE(put);
    REQUIRE(*put == PutOutcome::stored);
  }
  static bool has(UserStores& stores, uid_t user, std::uint64_t number) {
    const auto store = stores.find(user);
    const auto found = store != nullptr ? store->get(make_entry(number).key) : Lookup(std::nullopt);
    REQUIRE(found);
    return found->has_value();
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a daemon of one user has one store") {
  UserStores stores(*own);
  put(stores, kAlice, 1);
  CHECK(has(stores, kBob, 1));
  CHECK(stores.find(kAlice).get() == own.get());
  CHECK(stores.maintain());
}

// fault 109
TEST_CASE_FIXTURE(Fixture,
                  "an entry of one user is in no other user's store, nor in the daemon's") {
  UserStores stores(*own, options);
  CHECK(stores.find(kAlice) == nullptr);
  put(stores, kAlice, 1);
  put(stores, kBob, 2);
  CHECK(has(stores, kAlice, 1));
  CHECK_FALSE(has(stores, kAlice, 2));
  CHECK_FALSE(has(stores, kBob, 1));
  CHECK_FALSE(has(stores, kCarol, 1));
  const auto in_own = own->list();
  REQUIRE(in_own);
  CHECK(in_own->empty());
  struct stat status {};
  REQUIRE(::stat(folder_of(kAlice).c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
}

TEST_CASE_FIXTURE(Fixture, "the store of a previous daemon is found again") {
  {
    UserStores stores(*own, options);
    put(stores, kAlice, 1);
  }
  fs::create_directory(scratch / "store/users/no-user");
  UserStores stores(*own, options);
  CHECK(has(stores, kAlice, 1));
}

TEST_CASE_FIXTURE(Fixture, "few stores are open at a time; the least recently used is closed") {
  options.max_open = 2;
  UserStores stores(*own, options);
  const std::weak_ptr<TieredStore> alice = *stores.open(kAlice);
  const std::weak_ptr<TieredStore> bob = *stores.open(kBob);
  put(stores, kAlice, 1);
  put(stores, kCarol, 3);
  CHECK_FALSE(alice.expired());
  CHECK(bob.expired());
  put(stores, kBob, 2);
  CHECK(alice.expired());
  CHECK(has(stores, kAlice, 1));

  const UserStores::Handle in_use = *stores.open(kAlice);
  put(stores, kBob, 4);
  put(stores, kCarol, 5);
  CHECK(stores.find(kAlice) == in_use);
}

TEST_CASE_FIXTURE(Fixture, "as many stores as may be open keep entries") {
  constexpr uid_t kFirst = 2000;
  const auto count = static_cast<uid_t>(options.max_open);
  UserStores stores(*own, options);
  for (uid_t user = kFirst; user < kFirst + count; ++user) {
    put(stores, user, user);
  }
  for (uid_t user = kFirst; user < kFirst + count; ++user) {
    CHECK(has(stores, user, user));
  }
}

TEST_CASE_FIXTURE(Fixture, "users have equal shares of one cap, also those whose store is closed") {
  const std::uint64_t cap = 400'000;
  options.each.store.max_bytes = cap;
  options.max_open = 1;
  UserStores stores(*own, options);
  const auto bytes_of = [&](uid_t user) { return stores.find(user)->stats().bytes; };
  for (std::uint64_t number = 0; number < 30; ++number) {
    put(stores, kAlice, number);
  }
  CHECK(bytes_of(kAlice) > cap / 2);
  constexpr std::uint64_t kPage = 4096;
  CHECK(bytes_of(kAlice) <= cap + kPage);
  for (std::uint64_t number = 0; number < 30; ++number) {
    put(stores, kBob, number);
  }
  CHECK(bytes_of(kBob) <= cap / 2);
  CHECK(stores.maintain());
  CHECK(bytes_of(kAlice) <= cap / 2);
  CHECK(bytes_of(kAlice) > 0);

  stores.set_max_bytes(cap / 4);
  CHECK(stores.maintain());
  CHECK(bytes_of(kAlice) + bytes_of(kBob) <= cap / 4);
}

TEST_CASE_FIXTURE(Fixture, "with too many users the store that was unused longest is removed") {
  options.max_users = 2;
  SUBCASE("unless all were used recently") {
    UserStores stores(*own, options);
    put(stores, kAlice, 1);
    put(stores, kBob, 2);
    const auto refused = stores.open(kCarol);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("stores of 2 users") != std::string::npos);
    CHECK(stores.find(kCarol) == nullptr);
    CHECK(has(stores, kAlice, 1));
    CHECK(has(stores, kBob, 2));
  }
  SUBCASE("also across a restart") {
    {
      UserStores stores(*own, options);
      put(stores, kAlice, 1);
      put(stores, kBob, 2);
    }
    const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    REQUIRE(::utimensat(AT_FDCWD, folder_of(kBob).c_str(), long_ago, 0) == 0);
    UserStores stores(*own, options);
    put(stores, kCarol, 3);
    CHECK(has(stores, kAlice, 1));
    CHECK(has(stores, kCarol, 3));
    CHECK_FALSE(fs::exists(folder_of(kBob)));
  }
}

TEST_CASE_FIXTURE(Fixture, "for_each visits every store, also closed ones") {
  options.max_open = 1;
  UserStores stores(*own, options);
  put(stores, kAlice, 1);
  put(stores, kBob, 2);
  std::size_t entries = 0;
  int visited = 0;
  stores.for_each([&](TieredStore& store) {
    ++visited;
    entries += store.list()->size();
  });
  CHECK(visited == 3);
  CHECK(entries == 2);
}

TEST_CASE_FIXTURE(Fixture,
                  "stores can be opened, closed, visited and maintained by several threads") {
  options.max_open = 2;
  UserStores stores(*own, options);
  std::vector<std::thread> threads;
  std::atomic<int> lost{0};
  for (uid_t first = 0; first < 3; ++first) {
    threads.emplace_back([&, first] {
      for (uid_t turn = 0; turn < 8; ++turn) {
        const uid_t user = (first + turn) % 4;
        const auto store = stores.open(user);
        lost +=
            store && (*store)->put(make_entry(user)) && (*store)->get(make_entry(user).key) ? 0 : 1;
      }
    });
  }
  for (int turn = 0; turn < 4; ++turn) {
    static_cast<void>(stores.maintain());  // one that is being closed may be another's to maintain
    stores.set_max_bytes(std::uint64_t{100'000'000} << turn);
    stores.for_each([&](TieredStore& store) { lost += store.list() ? 0 : 1; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(lost == 0);
  for (uid_t user = 0; user < 4; ++user) {
    CHECK(has(stores, user, user));
    CHECK_FALSE(has(stores, user, user + 1));
  }
}

TEST_CASE_FIXTURE(Fixture, "one user's slow open delays no other user") {
  std::promise<void> alice_opens;
  std::promise<void> go;
  options.open_store = [&, alices = folder_of(kAlice)](TieredStore::Options of_store) {
    if (of_store.store.directory == alices) {
      alice_opens.set_value();
      go.get_future().wait();
    }
    return TieredStore::open(std::move(of_store));
  };
  UserStores stores(*own, options);
  std::atomic<bool> alice_has_hers{false};
  std::thread alice([&] {
    put(stores, kAlice, 1);
    alice_has_hers = true;
  });
  alice_opens.get_future().wait();
  put(stores, kBob, 2);
  CHECK(has(stores, kBob, 2));
  stores.set_max_bytes(100'000'000);
  CHECK_FALSE(alice_has_hers);
  go.set_value();
  alice.join();
  CHECK(has(stores, kAlice, 1));
  CHECK_FALSE(has(stores, kAlice, 2));
}

TEST_CASE_FIXTURE(Fixture, "concurrent requests of one user open the store once") {
  std::atomic<int> opened{0};
  options.open_store = [&](TieredStore::Options of_store) {
    ++opened;
    return TieredStore::open(std::move(of_store));
  };
  UserStores stores(*own, options);
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { found += stores.open(kAlice) ? 1 : 0; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(found == 8);
  CHECK(opened == 1);
}

TEST_CASE_FIXTURE(Fixture, "a store that could not be opened is opened by the next request") {
  bool fails = true;
  options.open_store = [&](TieredStore::Options of_store) {
    return fails ? Result<std::unique_ptr<TieredStore>>(Error(ErrorCode::io, "no disk"))
                 : TieredStore::open(std::move(of_store));
  };
  UserStores stores(*own, options);
  const auto refused = stores.open(kAlice);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message() == "no disk");
  CHECK(stores.find(kAlice) == nullptr);
  fails = false;
  put(stores, kAlice, 1);
  CHECK(has(stores, kAlice, 1));
}
