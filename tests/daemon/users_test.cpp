// SPDX-License-Identifier: Apache-2.0
// Several users on one machine. Only root can act as all of them; as another user fewer tests run.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/daemon_users.hpp"
#include "support/fake_daemon.hpp"
#include "support/raw_client.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::Being;
using cukiln::testing::Child;
using cukiln::testing::FakeDaemon;
using cukiln::testing::kAlice;
using cukiln::testing::kMallory;
using cukiln::testing::kService;
using cukiln::testing::RawClient;
using cukiln::testing::Users;
using std::chrono::seconds;

// fault 121
TEST_CASE_FIXTURE(Users, "fault 36: a client does not use another user's socket") {
  if (!is_root) {
    const auto daemon = start();
    auto as_another = options();
    as_another.own_user = [] { return ::geteuid() + 1; };
    const auto refused = wire::DaemonLink(as_another).greet();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("expected " + std::to_string(::geteuid() + 1)) !=
          std::string::npos);
    return;
  }
  // In a folder where all users may create folders, Mallory was first.
  const std::string shared = scratch / "tmp";
  std::filesystem::create_directory(shared);
  open_to_all(shared, 01777);
  const std::string place = shared + "/cukiln-" + std::to_string(kAlice);
  std::unique_ptr<FakeDaemon> squatter;
  {
    const Being mallory(kMallory);
    squatter = std::make_unique<FakeDaemon>(place + "/cukilnd.sock", wire::Greeting().encode());
    open_to_all(place, 0755);
    open_to_all(place + "/cukilnd.sock", 0777);
  }
  const auto alice =
      run_as(kAlice,
             {in_bin("build_process"), home_of(kAlice) + "/store", in_bin("libnvrtc_fake.so"),
              in_bin("cukiln-compile-worker"), readable("k.cu", "// alice's\n"), "log"},
             {"TMPDIR=" + shared, "XDG_RUNTIME_DIR=", "HOME=" + home_of(kAlice)});
  const std::string said = all_of(*alice);
  CAPTURE(said);
  CHECK(alice->wait() == 0);
  CHECK(said.find("is user " + std::to_string(kMallory) + "'s, expected user " +
                  std::to_string(kAlice)) != std::string::npos);
  CHECK(said.find("\ncompiled ") != std::string::npos);
  CHECK(becomes_true([&] { return squatter->accepted == 1; }, seconds(20)));
  CHECK(squatter->heard == 0);

  // Alice's own daemon does not use that folder either.
  const auto daemon = run_as(kAlice, {in_bin("cukilnd"), "--store", home_of(kAlice) + "/store"},
                             {"TMPDIR=" + shared, "XDG_RUNTIME_DIR="});
  CHECK(all_of(*daemon).find("cannot be trusted") != std::string::npos);
  CHECK(daemon->wait() == 1);
}

TEST_CASE_FIXTURE(Users, "fault 36: a user's daemon serves no other user, not even root") {
  if (!is_root) {
    return;
  }
  runtime = home_of(kAlice);
  socket = runtime + "/cukiln/cukilnd.sock";
  const auto daemon = run_as(kAlice, {in_bin("cukilnd"), "--store", runtime + "/store"},
                             {"XDG_RUNTIME_DIR=" + runtime});
  const auto rejected = [&] {
    const Being alice(kAlice);
    return counter("rejected_user");
  };
  REQUIRE(becomes_true(
      [&] {
        const Being alice(kAlice);
        return state().has_value();
      },
      seconds(20)));
  const RawClient root(socket, false);
  CHECK(root.text(1).empty());
  CHECK(rejected() == 1);
  // Mallory is not let into the folder in the first place.
  const auto mallory =
      client_of(kMallory, readable("k.cu", "// mallory's\n"), "XDG_RUNTIME_DIR=" + runtime);
  CHECK(all_of(*mallory).find("compiled ") != std::string::npos);
  CHECK(mallory->wait() == 0);
  CHECK(rejected() == 1);
}

TEST_CASE_FIXTURE(
    Users, "a system daemon serves each user's own entries, and reads files through the client") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  const auto give_header = [&](const std::string& name, uid_t owner) {
    const std::string path = readable(name, "of " + std::to_string(owner));
    REQUIRE(::chown(path.c_str(), owner, owner) == 0);
    open_to_all(path, 0400);
  };
  const std::string count = "// fake: count " + readable("count", "") + "\n";
  open_to_all(scratch / "src/count", 0666);
  const auto compiles_here = [&] {
    return cukiln::testing::read_all(scratch / "src/count").size();
  };
  // Repeated with new sources until the daemon compiled, because a client on a busy machine may
  // compile locally.
  int number = 0;
  const auto next = [&](const std::string& directives) {
    const std::string name = "k" + std::to_string(++number);
    return readable(name + ".cu", count + "// " + name + "\n" + directives);
  };

  // A header that Alice may read and the daemon may not. Mallory does not get its result.
  give_header("tile.h", kAlice);
  CHECK(becomes_true(
      [&] {
        const std::string path = next("// fake: include /cukiln/src/tile.h\n");
        CHECK(asks(kAlice, path).find("compiled ") != std::string::npos);
        CHECK(asks(kMallory, path).find("Permission denied") != std::string::npos);
        return counter("compiles_ok") > 0;
      },
      seconds(30)));

  // What needs no header is compiled once for each.
  CHECK(becomes_true(
      [&] {
        const std::string path = next({});
        const std::size_t before = compiles_here();
        CHECK(asks(kAlice, path).find("compiled ") != std::string::npos);
        CHECK(asks(kMallory, path).find("compiled ") != std::string::npos);
        const bool hit = asks(kAlice, path, "another-store").find("hit ") != std::string::npos;
        CHECK(compiles_here() == before + (hit ? 2 : 3));
        return hit;
      },
      seconds(30)));

  // Mallory cannot read a file through the daemon's user.
  give_header("secret.h", kService);
  const std::uint64_t asked_before = counter("compile_requests");
  CHECK(becomes_true(
      [&] {
        const std::string said = asks(kMallory, next("// fake: include /cukiln/src/secret.h\n"));
        CAPTURE(said);
        CHECK(said.find("Permission denied") != std::string::npos);
        return counter("compile_requests") > asked_before;
      },
      seconds(30)));
}

TEST_CASE_FIXTURE(Users,
                  "a system daemon: a crash on one user's files refuses no other user's request") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  int number = 0;
  const auto next = [&](const char* whose, const std::string& header) {
    const std::string name = "k" + std::to_string(number);
    readable(std::string(whose) + "/" + name + ".h", header);
    open_to_all(scratch / "src/" + whose, 0755);
    return readable(std::string(whose) + "/" + name + ".cu",
                    "// fake: include /cukiln/src/" + name + ".h\n");
  };
  const auto mallory = [&](const std::string& header) {
    ++number;
    return client_of(kMallory, next("mallory", header), "XDG_RUNTIME_DIR=" + runtime);
  };
  const auto alice_is_served = [&] {
    return asks(kAlice, next("alice", "fine")).find("compiled ") != std::string::npos;
  };
  // Repeated until the daemon compiled.
  CHECK(becomes_true(
      [&] {
        CHECK(all_of(*mallory("// fake: segv\n")).find("crashed") != std::string::npos);
        CHECK(alice_is_served());
        return counter("compiles_crashed") > 0 && counter("compiles_ok") > 0;
      },
      seconds(30)));
  CHECK(becomes_true(
      [&] {
        const auto slow = mallory("// fake: sleep 500\n// fake: segv\n");
        becomes_true([&] { return state()->jobs.size() == 1; }, seconds(1));
        CHECK(alice_is_served());
        CHECK(all_of(*slow).find("crashed") != std::string::npos);
        return counter("compiles_crashed") > 1 && counter("compiles_ok") > 1;
      },
      seconds(30)));
}

TEST_CASE_FIXTURE(Users, "a system daemon: one user's many compiles do not delay another user's") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all({"--jobs", "1"});
  std::vector<std::unique_ptr<Child>> many;
  CHECK(becomes_true(
      [&] {  // those that were not greeted in time compile for themselves
        const std::size_t before = state()->jobs.size();
        const std::string name = "slow" + std::to_string(many.size()) + ".cu";
        many.push_back(client_of(kMallory,
                                 readable(name, "// " + name + "\n// fake: sleep 60000\n"),
                                 "XDG_RUNTIME_DIR=" + runtime));
        becomes_true([&] { return state()->jobs.size() > before; }, seconds(1));
        return state()->jobs.size() >= 3;
      },
      seconds(20)));
  int number = 0;
  CHECK(becomes_true(
      [&] {
        const std::string name = "quick" + std::to_string(++number) + ".cu";
        CHECK(asks(kAlice, readable(name, "// " + name + "\n")).find("compiled ") !=
              std::string::npos);
        return counter("compiles_ok") == 1;
      },
      seconds(20)));
  CHECK(state()->jobs.size() >= 3);
}
