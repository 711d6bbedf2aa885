// SPDX-License-Identifier: Apache-2.0
// Several users on one machine. Only root can act as all of them; as another user fewer tests run.

#include <fcntl.h>
#include <signal.h>
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
using cukiln::testing::RawClient;
using cukiln::testing::Users;
using std::chrono::seconds;

// fault 121
TEST_CASE_FIXTURE(Users, "fault 36: a client does not use another user's socket") {
  if (!is_root) {
    const auto daemon = start();
    auto as_another = options();
    as_another.own_user = [] { return ::geteuid() + 1; };
    const auto refused = DaemonClient(as_another).begin();
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
  daemon->signal(SIGTERM);
  const std::string log = all_of(*daemon);
  CAPTURE(log);
  CHECK(log.find(" of user 0: this cukilnd serves user " + std::to_string(kAlice) + " only") !=
        std::string::npos);
}
