// SPDX-License-Identifier: Apache-2.0
// A system daemon: no result of one user's compile reaches another user.

#include <sys/stat.h>

#include <optional>

#include "store/daemon_store.hpp"
#include "support/daemon_claims.hpp"
#include "support/daemon_users.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::Being;
using cukiln::testing::Child;
using cukiln::testing::Claim;
using cukiln::testing::claim_absent;
using cukiln::testing::claim_file;
using cukiln::testing::first_word;
using cukiln::testing::kAlice;
using cukiln::testing::kMallory;
using cukiln::testing::kService;
using cukiln::testing::Users;
using std::chrono::seconds;

namespace {

/// The key in a client's output; empty if the outcome is another.
std::string key_after(const std::string& outcome, const std::string& said) {
  const std::string lines = "\n" + said;
  const std::size_t at = lines.find("\n" + outcome);
  return at == std::string::npos ? std::string()
                                 : first_word(lines.substr(at + 1 + outcome.size()));
}

struct Isolation : Users {
  const std::string count_directive = "// fake: count " + (scratch / "src/count") + "\n";
  int number = 0;

  Isolation() {
    if (is_root) {
      readable("count", "");
      open_to_all(scratch / "src/count", 0666);
    }
  }
  std::size_t compiles_begun() const {
    return cukiln::testing::read_all(scratch / "src/count").size();
  }
  /// A new source.
  std::string next(const std::string& directives = {}) {
    const std::string name = "k" + std::to_string(++number);
    return readable(name + ".cu", count_directive + "// " + name + "\n" + directives);
  }
  std::unique_ptr<Child> client(uid_t user, const std::string& path,
                                const std::string& store = "store") const {
    return client_of(user, path, "XDG_RUNTIME_DIR=" + runtime, store);
  }
  /// Has the daemon compile a source for this user and returns the key. Repeated with another
  /// source if the client compiled locally, without a greeting in time.
  std::string compiled_for(uid_t user, std::string& path) {
    std::string key;
    const bool done = becomes_true(
        [&] {
          path = next();
          const std::uint64_t before = counter("compiles_ok");
          const std::string said = asks(user, path);
          key = key_after("compiled ", said);
          return counter("compiles_ok") == before + 1;
        },
        seconds(30));
    REQUIRE(done);
    return key;
  }
  bool compile_by_hand(uid_t user, const std::string& path, const Claim& claim) const {
    wire::DaemonLink link(options());
    auto conversation = [&] {
      const Being them(user);
      return link.begin();
    }();
    return cukiln::testing::compile_by_hand(std::move(conversation), scratch / "bin", path, claim);
  }
};

}  // namespace

// fault 109
TEST_CASE_FIXTURE(Isolation, "a system daemon: an entry of one user is no other user's hit") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  std::string path;
  const std::string key = compiled_for(kMallory, path);
  const std::size_t before = compiles_begun();
  CHECK(key_after("compiled ", asks(kAlice, path)) != "");
  CHECK(compiles_begun() == before + 1);
  // Each has an entry of their own, and hits it with a store of their own that is empty.
  CHECK(becomes_true([&] { return key_after("hit ", asks(kMallory, path, "empty")) == key; },
                     seconds(20)));
  namespace fs = std::filesystem;
  const std::string users = home_of(kService) + "/store/users/";
  CHECK(fs::is_directory(users + std::to_string(kAlice)));
  CHECK(fs::is_directory(users + std::to_string(kMallory)));
}

// fault 109
TEST_CASE_FIXTURE(Isolation,
                  "a system daemon: the key and request of another user give neither entry nor "
                  "dependency sets") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  std::string path;
  const std::string text = compiled_for(kAlice, path);
  const auto digest = CacheKey::from_hex(text);
  REQUIRE(digest);
  const CacheKey key{*digest};
  std::optional<StoreEntry> entry;
  {
    const Being alice(kAlice);
    DaemonStore store(std::make_shared<wire::DaemonLink>(options()));
    auto found = store.get(key);
    REQUIRE(found);
    REQUIRE(*found);
    entry = **found;
    const auto sets = store.list_sets(entry->request, entry->request_canonical);
    REQUIRE(sets);
    CHECK(sets->size() == 1);
  }
  for (const uid_t other : {kMallory, kService, uid_t{0}}) {
    CAPTURE(other);
    const Being them(other);
    DaemonStore store(std::make_shared<wire::DaemonLink>(options()));
    const auto found = store.get(key);
    REQUIRE(found);
    CHECK_FALSE(*found);
    const auto sets = store.list_sets(entry->request, entry->request_canonical);
    REQUIRE(sets);
    CHECK(sets->empty());
  }
}

// fault 109
TEST_CASE_FIXTURE(Isolation,
                  "a system daemon: one request of two users is two compiles, of one user one") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all({"--jobs", "4"});
  CHECK(becomes_true(
      [&] {
        const std::string path = next("// fake: sleep 1500\n");
        const std::uint64_t joined_before = counter("coalesced");
        std::vector<std::unique_ptr<Child>> asking;
        asking.push_back(client(kMallory, path));
        asking.push_back(client(kAlice, path));
        asking.push_back(client(kAlice, path, "another-store"));
        const bool two = becomes_true(
            [&] {
              const auto now = state();
              const auto waiters = [&](uid_t user) -> std::uint32_t {
                for (const auto& job : now->jobs) {
                  if (job.owner_user == user && job.running) {
                    return job.waiters;
                  }
                }
                return 0;
              };
              return now && now->jobs.size() == 2 && waiters(kMallory) == 1 && waiters(kAlice) == 2;
            },
            seconds(1));
        for (const auto& one : asking) {
          const std::string said = all_of(*one);
          CHECK(key_after("compiled ", said) + key_after("hit ", said) != "");
        }
        return two && counter("coalesced") == joined_before + 1;
      },
      seconds(60)));
}

// fault 108
TEST_CASE_FIXTURE(Isolation, "a system daemon: false answers of a client affect no other user") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  const std::string true_bytes = "of a header";
  readable("a.h", true_bytes);
  readable("b.h", true_bytes);
  const std::string includes =
      "// fake: include /cukiln/src/a.h\n// fake: include /cukiln/src/b.h\n";
  // True bytes, and one file's identity for two.
  const Claim one_file_for_two = [&](const std::string& path) {
    return path.ends_with(".h") ? claim_file(path, 5, true_bytes) : claim_absent(path);
  };
  SUBCASE("before the other asks") {
    const std::string path = next(includes);
    CHECK(compile_by_hand(kMallory, path, one_file_for_two));
    const std::size_t before = compiles_begun();
    CHECK(key_after("compiled ", asks(kAlice, path)) != "");
    CHECK(compiles_begun() == before + 1);
  }
  const auto while_the_other_waits = [&](const Claim& claim, bool is_compiled) {
    CHECK(becomes_true(
        [&] {
          const std::string path = next(includes);
          const std::uint64_t compiled_before = counter("compiles_ok");
          std::unique_ptr<Child> alice;
          bool is_served = false;
          const Claim when_the_other_was_served = [&](const std::string& asked) {
            if (alice == nullptr) {
              alice = client(kAlice, path);
              is_served = becomes_true([&] { return counter("compiles_ok") > compiled_before; },
                                       seconds(3));
            }
            return claim(asked);
          };
          const std::size_t before = compiles_begun();
          CHECK(compile_by_hand(kMallory, path, when_the_other_was_served) == is_compiled);
          REQUIRE(alice != nullptr);
          CHECK(key_after("compiled ", all_of(*alice)) != "");
          CHECK(compiles_begun() == before + 2);
          return is_served;
        },
        seconds(30)));
  };
  SUBCASE("while the other waits") { while_the_other_waits(one_file_for_two, true); }
  SUBCASE("that it cannot be read") {
    while_the_other_waits(cukiln::testing::claim_unreadable, false);
  }
  SUBCASE("about another file") {
    while_the_other_waits([](const std::string& path) { return claim_absent(path + ".h"); }, false);
  }
}
