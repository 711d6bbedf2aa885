// SPDX-License-Identifier: Apache-2.0
// A hit through cukilnd, as a client has it: the recorded dependency sets of a request, then the
// entry.
//
//   cukiln_bench_daemon fill FOLDER          fills the store that the daemon is then started on
//   cukiln_bench_daemon ask SOCKET ROUNDS    asks it: one client, the sizes in turns; then several
//   concurrently
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "addons/daemon/client/daemon_client.hpp"
#include "core/store/sqlite_store.hpp"
#include "program.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;  // NOLINT: a program
using cukiln::bench::fail;
using cukiln::bench::median;
using cukiln::bench::now_us;

namespace {

constexpr std::array<std::size_t, 3> kImageBytes = {4 << 10, 64 << 10, 1 << 20};
constexpr std::size_t kHeaders = 20;
constexpr std::size_t kBatch = 200;
constexpr std::size_t kClients = 4;

StoreEntry entry_of(std::size_t bytes) { return testing::make_entry(bytes, {bytes, 0, kHeaders}); }

std::unique_ptr<DaemonClient> client_of(const std::string& socket) {
  DaemonClient::Options options;
  options.sockets = {socket};
  options.required = true;
  options.connect_timeout = std::chrono::seconds(5);  // not what is measured, on a busy machine
  return std::make_unique<DaemonClient>(std::move(options));
}

Lookup look_up(DaemonClient& store, const StoreEntry& wanted) {
  testing::FilesOf files(wanted.dependencies);
  return store.find(wanted.request, wanted.request_canonical, files);
}

bool is_hit(DaemonClient& store, const StoreEntry& wanted) {
  const Lookup found = look_up(store, wanted);
  return found && *found && (*found)->cubin.image.view() == wanted.cubin.image.view();
}

std::string json(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    text += (text.empty() ? "[" : ", ") + std::to_string(value);
  }
  return text + "]";
}

int fill(const std::string& folder) {
  SqliteStoreOptions options;
  options.directory = folder;
  auto store = SqliteStore::open(options);
  if (!store) return fail(store.error().message());
  for (const std::size_t bytes : kImageBytes) {
    if (const auto put = (*store)->put(entry_of(bytes)); !put) return fail(put.error().message());
  }
  std::puts("{}");
  return 0;
}

int ask(const std::string& socket, std::size_t rounds) {
  std::vector<StoreEntry> entries;
  for (const std::size_t bytes : kImageBytes) entries.push_back(entry_of(bytes));
  const auto alone = client_of(socket);
  for (const StoreEntry& entry : entries) {  // the daemon reads each from its store, once
    const auto found = look_up(*alone, entry);
    if (!found) return fail(found.error().message());
    if (!*found || !testing::same_content(**found, entry)) return fail("not what was stored");
  }

  std::array<std::vector<double>, kImageBytes.size()> took_us;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t size = 0; size < entries.size(); ++size) {
      std::vector<double> batch;
      for (std::size_t i = 0; i < kBatch; ++i) {
        const double start = now_us();
        if (!is_hit(*alone, entries[size])) return fail("not a hit");
        batch.push_back(now_us() - start);
      }
      took_us[size].push_back(median(std::move(batch)));
    }
  }

  // Several concurrently, so that the daemon always has something to do: what a hit costs it is
  // what bounds how many its one thread can give.
  DaemonClient::Options options;
  options.sockets = {socket};
  DaemonClient probe(options);
  const auto conversation = probe.begin();
  clockid_t cpu_clock{};
  if (!conversation || ::clock_getcpuclockid(static_cast<pid_t>(conversation->greeting().process),
                                             &cpu_clock) != 0) {
    return fail("the daemon's CPU time cannot be read");
  }
  const auto cpu_us = [cpu_clock] {
    timespec time{};
    ::clock_gettime(cpu_clock, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  };
  std::vector<double> daemon_cpu_us;
  std::vector<double> hits_a_second;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::atomic<bool> failed{false};
    std::vector<std::thread> threads;
    const double start = now_us();
    const double cpu_start = cpu_us();
    for (std::size_t client = 0; client < kClients; ++client) {
      threads.emplace_back([&] {
        const auto store = client_of(socket);
        for (std::size_t i = 0; i < kBatch; ++i) {
          if (!is_hit(*store, entries[i % entries.size()])) failed = true;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (failed) return fail("not a hit");
    const auto hits = static_cast<double>(kClients * kBatch);
    daemon_cpu_us.push_back((cpu_us() - cpu_start) / hits);
    hits_a_second.push_back(hits / (now_us() - start) * 1e6);
  }
  std::printf("{\"clients\": %zu, \"daemon_cpu_us\": %s, \"hits_a_second\": %s, \"hit_us\": {",
              kClients, json(daemon_cpu_us).c_str(), json(hits_a_second).c_str());
  for (std::size_t size = 0; size < entries.size(); ++size) {
    std::printf("%s\"%zu\": %s", size == 0 ? "" : ", ", kImageBytes[size],
                json(took_us[size]).c_str());
  }
  std::puts("}}");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "fill" && argc == 3) return fill(argv[2]);
  if (what == "ask" && argc == 4) {
    return ask(argv[2], std::max(1ul, std::strtoul(argv[3], nullptr, 10)));
  }
  return fail("usage: cukiln_bench_daemon fill FOLDER | ask SOCKET ROUNDS");
}
