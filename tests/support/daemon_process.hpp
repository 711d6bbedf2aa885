// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "addons/daemon/client/daemon_client.hpp"
#include "support/build_process.hpp"
#include "support/child.hpp"

#include <cukiln/cukiln.hpp>

namespace cukiln::testing {

/// cukilnd for one user, in a folder of its own, and clients of it.
struct DaemonFixture : FlightFixture {
  std::string runtime = scratch / "run";
  std::string socket = scratch / "run/cukiln/cukilnd.sock";
  std::string
      daemon_log;  ///< the file to which a daemon that starts logs; empty: the test's stderr
  int clients = 0;

  DaemonFixture() {
    std::filesystem::create_directory(runtime);
    std::filesystem::permissions(runtime, std::filesystem::perms::owner_all);
  }

  /// Running, and answering.
  std::unique_ptr<Child> start(std::vector<std::string> extra = {},
                               std::vector<std::string> environment = {}) const {
    std::vector<std::string> command = {bin() + "/cukilnd", "--store", scratch / "store",
                                        "--socket", socket};
    command.insert(command.end(), extra.begin(), extra.end());
    if (!daemon_log.empty()) {
      command.insert(command.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>>" + daemon_log});
    }
    environment.push_back("XDG_RUNTIME_DIR=" + runtime);
    environment.push_back("XDG_CONFIG_HOME=" + scratch / "config");
    environment.push_back("CUKILN_NVRTC_LIBRARY=" + bin() + "/libnvrtc_fake.so");
    auto daemon = std::make_unique<Child>(command, environment);
    CHECK(becomes_true([this] { return state().has_value(); }, std::chrono::seconds(20)));
    return daemon;
  }

  /// What the daemon says of itself; nothing when it does not answer.
  std::optional<wire::DaemonSnapshot> state() const {
    DaemonClient link(options());
    auto frame = link.ask(wire::DaemonOp::state, {});
    auto content = frame ? content_of(*frame) : Result<SharedBytes>(frame.error());
    return content ? wire::DaemonSnapshot::decode(*content) : std::nullopt;
  }
  /// Asks until the daemon answers: one that is at a limit closes the connection that asks.
  wire::DaemonSnapshot answered_state() const {
    std::optional<wire::DaemonSnapshot> now;
    CHECK(becomes_true([&] { return (now = state()).has_value(); }, std::chrono::seconds(20)));
    return now.value_or(wire::DaemonSnapshot());
  }
  std::uint64_t counter(const std::string& name) const { return answered_state().counter(name); }
  DaemonClient::Options options() const {
    DaemonClient::Options options;
    options.sockets = {socket};
    options.connect_timeout =
        std::chrono::seconds(5);  // a look at the daemon is not what is tested
    return options;
  }

  /// The cubin that a store has under a key's text.
  std::string image_in(const std::string& store, const std::string& key) const {
    StoreOptions store_options;
    store_options.directory = scratch / store;
    store_options.system_directory.clear();
    auto opened = Store::open(store_options);
    REQUIRE(opened);
    auto loader = KernelLoader::create(*opened, {});
    REQUIRE(loader);
    const auto digest = CacheKey::parse(key);
    REQUIRE(digest);
    const auto image = loader->cubin(*digest);
    REQUIRE(image);
    return *image;
  }

  std::unique_ptr<BuildProcess> client(const std::string& path,
                                       const std::vector<std::string>& extra = {},
                                       const std::string& store = "store") {
    return std::make_unique<BuildProcess>(scratch, path, clients++, extra,
                                          bin() + "/cukiln-compile-worker", runtime, store);
  }
  /// One that knows of no daemon.
  std::unique_ptr<BuildProcess> client_alone(const std::string& path, const std::string& store) {
    return std::make_unique<BuildProcess>(scratch, path, clients++, std::vector<std::string>(),
                                          bin() + "/cukiln-compile-worker", std::string(), store);
  }
  /// Lets the store know NVRTC.
  void probe_nvrtc() {
    CHECK(client_alone(scratch.write("probe.cu", "// probe\n"), "store")->wait() == 0);
  }
  /// One whose compile the daemon has begun. A client that a busy machine's daemon does not greet
  /// in time does without: then another is tried.
  std::unique_ptr<BuildProcess> compiling_client(const std::string& path,
                                                 const std::vector<std::string>& extra = {}) {
    std::unique_ptr<BuildProcess> process;
    const bool begun = becomes_true(
        [&] {
          process.reset();
          std::filesystem::remove(count_file);
          process = client(path, extra);
          return becomes_true([this] { return compiles() == 1; }, std::chrono::seconds(20)) &&
                 !state().value_or(wire::DaemonSnapshot()).jobs.empty();
        },
        std::chrono::seconds(30));
    REQUIRE(begun);
    return process;
  }
};

inline std::string first_word(const std::string& line) { return line.substr(0, line.find(' ')); }

}  // namespace cukiln::testing
