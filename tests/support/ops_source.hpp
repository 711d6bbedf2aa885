// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "addons/daemon/ops/ops_source.hpp"
#include "support/store_entries.hpp"

namespace cukiln::testing {

/// A name that breaks a page, a log or a metric that does not escape it.
inline const std::string kHostileName =
    "<script>document.title='owned'</script>\"'&\n\r\x1b[31m\\ \xff" + std::string(4096, 'x');

/// The state of a daemon that does nothing, over a store of its own.
class FakeOpsSource final : public ops::OpsSource {
 public:
  explicit FakeOpsSource(const std::string& folder) {
    TieredStore::Options options;
    options.store.directory = folder;
    options.store.system_directory.clear();
    options.store.max_bytes = 64ull << 20;
    store_ = *TieredStore::open(std::move(options));
  }

  Result<wire::DaemonSnapshot> state(std::chrono::milliseconds wait) override {
    if (hung) {
      std::this_thread::sleep_for(std::min(wait, std::chrono::milliseconds(200)));
      return Error(ErrorCode::timeout, "the daemon's event loop did not respond");
    }
    wire::DaemonSnapshot state;
    state.process = 4711;
    state.build = "0.2.0";
    state.store = store_->directory();
    state.socket = "/run/user/1000/cukiln/cukilnd.sock";
    state.draining = draining;
    state.uptime_ms = 93'784'000;
    state.jobs = jobs;
    state.counters = counters;
    const auto running = static_cast<std::size_t>(
        std::count_if(jobs.begin(), jobs.end(), [](const auto& job) { return job.running; }));
    std::uint64_t waiters = 0;
    for (const wire::DaemonSnapshot::Job& job : jobs) {
      waiters += job.waiters;
    }
    state.counters.insert(state.counters.end(), {{"compiles_running", running},
                                                 {"compiles_queued", jobs.size() - running},
                                                 {"compile_waiters", waiters},
                                                 {"compile_clients", 7}});
    return state;
  }
  TieredStore& store() override { return *store_; }
  RemoteReport remotes() override { return remote; }
  Result<std::string> compiler() override {
    if (!compiler_trouble.empty()) {
      return Error(ErrorCode::not_found, compiler_trouble);
    }
    return std::string("nvrtc 13.0.88");
  }

  std::atomic<bool> hung{false}, draining{false};
  std::vector<wire::DaemonSnapshot::Job> jobs;
  RemoteReport remote;
  std::string compiler_trouble;
  std::vector<std::pair<std::string, std::uint64_t>> counters = {
      {"compiles_ok", 41},
      {"compiles_failed", 2},
      {"coalesced", 63},
      {"connections_accepted", 70},
      {"rejected_user", 1},
      {"requests_obtain_ok", 500},
      {"protocol_errors", 3},
      {"protocol_errors_length", 3},
      {"compile_times_us_to_50000", 11},
      {"compile_times_us_to_2500000", 29},
      {"compile_times_us_beyond", 1},
      {"compile_times_us_sum", 61'500'000}};

 private:
  std::unique_ptr<TieredStore> store_;
};

}  // namespace cukiln::testing
