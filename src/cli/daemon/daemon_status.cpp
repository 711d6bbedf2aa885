// SPDX-License-Identifier: Apache-2.0
#include "cli/daemon/daemon_status.hpp"

#include "addons/daemon/client/daemon_client.hpp"
#include "cli/human.hpp"
#include "cli/running_daemon.hpp"
#include "core/base/printable.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

Result<wire::DaemonSnapshot> ask_daemon(const std::vector<std::string>& sockets) {
  DaemonClient::Options options;
  options.sockets = sockets;
  options.required = true;  // a daemon that is busy may greet late, and nobody else can answer
  DaemonClient link(std::move(options));
  CUKILN_TRY(wire::DaemonFrame frame, link.ask(wire::DaemonOp::state, {}));
  CUKILN_TRY(const SharedBytes content, content_of(frame));
  auto snapshot = wire::DaemonSnapshot::decode(content);
  if (!snapshot) {
    return Error(ErrorCode::corrupt,
                 "malformed status of cukilnd; expected that of this version; restart it");
  }
  return *std::move(snapshot);
}

Result<std::string> running_daemon(const std::vector<std::string>& sockets) {
  CUKILN_TRY(const wire::DaemonSnapshot running, ask_daemon(sockets));
  return fmt::format("cukilnd {} at {}, process {}", running.build, running.socket,
                     running.process);
}

Json json_of(const wire::DaemonSnapshot& snapshot) {
  Json jobs = Json::array();
  for (const wire::DaemonSnapshot::Job& job : snapshot.jobs) {
    jobs.push_back(Json{{"name", job.name},
                        {"target", job.target},
                        {"request", job.request.hex()},
                        {"running", job.running},
                        {"milliseconds", job.elapsed_ms},
                        {"waiters", job.waiters},
                        {"owner_process", job.owner_process},
                        {"orphaned", job.orphaned}});
  }
  Json counters = Json::object();
  for (const auto& [name, value] : snapshot.counters) {
    counters[name] = value;
  }
  return Json{{"running", true},
              {"process", snapshot.process},
              {"version", snapshot.build},
              {"socket", snapshot.socket},
              {"page", snapshot.page},
              {"store", snapshot.store},
              {"draining", snapshot.draining},
              {"uptime_ms", snapshot.uptime_ms},
              {"compiles", std::move(jobs)},
              {"counters", std::move(counters)}};
}

std::string text_of(const wire::DaemonSnapshot& snapshot) {
  std::string text = fmt::format(
      "Running: process {}, version {}{}\nSocket:  {}\nPage:    {}\nStore:   {}\n"
      "Since its start {} s ago: {} compiled, {} failed, {} joined a running compile, {} hits.\n",
      snapshot.process, snapshot.build, snapshot.draining ? ", stopping" : "", snapshot.socket,
      snapshot.page.empty() ? "none on TCP" : snapshot.page,
      snapshot.store.empty() ? "none on disk" : snapshot.store, snapshot.uptime_ms / 1000,
      snapshot.counter("compiles_ok"),
      snapshot.counter("compiles_failed") + snapshot.counter("compiles_crashed") +
          snapshot.counter("compiles_timed_out"),
      snapshot.counter("coalesced"), snapshot.counter("entries_sent"));
  for (const wire::DaemonSnapshot::Job& job : snapshot.jobs) {
    const std::string owner = job.orphaned ? "its client has disconnected"
                                           : fmt::format("for process {}", job.owner_process);
    text +=
        fmt::format("  {} {} {}: {} ms, {}, {} waiting\n", job.running ? "compiling" : "queued",
                    printable(job.name), printable(job.target), job.elapsed_ms, owner, job.waiters);
  }
  const std::uint64_t all =
      snapshot.counter("compiles_running") + snapshot.counter("compiles_queued");
  if (all > snapshot.jobs.size()) {
    text += fmt::format("  and {} more\n", all - snapshot.jobs.size());
  }
  return text;
}

}  // namespace cukiln::cli
