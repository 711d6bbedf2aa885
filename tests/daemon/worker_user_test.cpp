// SPDX-License-Identifier: Apache-2.0
// A system daemon whose workers are another user's. The test plays systemd, which starts them.

#include <unistd.h>

#include "support/daemon_users.hpp"
#include "support/worker_listener.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::kAlice;
using cukiln::testing::kService;
using cukiln::testing::kWorkerUser;
using cukiln::testing::Users;
using cukiln::testing::WorkerListener;
using std::chrono::seconds;

namespace {

struct Fixture : Users {
  std::string workers = scratch / "worker.sock";
  int number = 0;

  WorkerListener::Options listener() const {
    WorkerListener::Options options;
    options.path = workers;
    options.program = in_bin("cukiln-compile-worker");
    options.log = scratch / "worker.log";
    options.socket_user = kService;
    options.accepted_user = kService;
    return options;
  }
  /// A client on a busy machine may compile locally, so a test asks until the daemon was asked.
  std::string asks_for_another() {
    const std::string name = "k" + std::to_string(++number);
    return asks(kAlice, readable(name + ".cu", "// " + name + "\n"));
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "fault 151: a system daemon compiles in workers of another user") {
  if (!is_root) {
    return;
  }
  const WorkerListener listener(this->listener());
  const auto daemon = serve_all({"--worker-socket", workers});
  CHECK(state()->worker_socket == workers);
  CHECK(state()->worker_user == wire::DaemonSnapshot::kNoUser);
  CHECK(becomes_true(
      [&] {
        CHECK(asks_for_another().find("compiled ") != std::string::npos);
        return counter("compiles_ok") > 0;
      },
      seconds(30)));
  CHECK(state()->worker_user == kWorkerUser);
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 159: without the workers' socket clients of a system daemon compile") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all({"--worker-socket", workers});
  CHECK(becomes_true(
      [&] {
        CHECK(asks_for_another().find("compiled ") != std::string::npos);
        return counter("compile_requests") > 0;
      },
      seconds(30)));
  CHECK(counter("compiles_ok") == 0);
  CHECK(state()->worker_user == wire::DaemonSnapshot::kNoUser);
}
