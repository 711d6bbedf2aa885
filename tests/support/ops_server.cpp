// SPDX-License-Identifier: Apache-2.0
// An admin HTTP server over a fake daemon, for tests of the page and of hostile clients:
//
//     ops_server FOLDER [ENTRIES]
//
// Prints the port that it listens at on 127.0.0.1; its Unix socket is FOLDER/ops.sock. Then it runs
// the commands on its standard input, one a line, until end of file: `put NUMBER`, `hang`, `wake`,
// `drain`, `idle`, `descriptors LIMIT`, `interrupt COUNT`.

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>

#include "addons/daemon/ops/admin_http_server.hpp"
#include "addons/daemon/ops/http_responder.hpp"
#include "support/ops_source.hpp"

namespace {

using namespace cukiln;
using namespace cukiln::testing;

constexpr const char* kNames[] = {"amax_gsa", "quantize_nvfp4", "moe_gemm", "softmax_topk",
                                  "rope_kv",  "rms_norm",       "sample",   "paged_attention"};
constexpr const char* kTargets[] = {"sm_100a", "sm_90a", "sm_80"};

void put(TieredStore& store, std::uint64_t number) {
  EntryShape shape;
  shape.target = kTargets[number % 3];
  shape.cubin_bytes = 8'000 + number * 977 % 90'000;
  StoreEntry entry = make_entry(number, shape);
  const std::string name =
      number == 0 ? kHostileName : kNames[number % 8] + ("_" + std::to_string(number));
  entry.labels.name = name;
  entry.cubin.kernels = {{name, "_Z" + name, 40, 4096, 0, 0}, {name + "_tail", "_t", 24, 0, 16, 8}};
  entry.compile_us = static_cast<std::int64_t>(30'000 + number * 7'919 % 2'000'000);
  entry.origin = number % 5 == 4 ? Origin::remote : Origin::compiled;
  if (!store.put(entry)) {
    std::fprintf(stderr, "entry %d was not stored\n", static_cast<int>(number));
  }
}

void make_busy(FakeOpsSource& source) {
  source.jobs = {{"paged_attention<128, half>", "sm_100a", {}, 20411, 3'240, 7, true, false},
                 {"moe_gemm_fp8", "sm_90a", {}, 20412, 812, 1, true, true},
                 {kHostileName, "sm_100a", {}, 20413, 0, 2, false, false}};
  for (const char* name : {"compiles_crashed", "compiles_timed_out", "compile_requests",
                           "lookup_requests", "declined_busy"}) {
    source.counters.emplace_back(name, 1);
  }
  source.remote.servers = {{"redis://cache.example:6379", "redis", false},
                           {"https://cubins.example/fleet", "http", true}};
  source.remote.hits = 1'210;
  source.remote.misses = 53;
  source.remote.received_bytes = 48u << 20;
  source.remote.sent_bytes = 9u << 20;
  source.remote.stored = 41;
  source.remote.dropped = 4;
  source.remote.requests = {{"ok", 1'251}, {"absent", 53}, {"timeout", 31}};
  source.remote.traffic = {
      {"redis", "get", {{"ok", 1'251}, {"absent", 53}}, {{0.005, 1'304}}, 1.9}};
  source.remote.rejected = {{"bad_signature", 1}, {"bad_hash", 0}};
}

void ignore_signal(int) {}

void run_command(FakeOpsSource& source, const std::string& line) {
  // No stream: UndefinedBehaviorSanitizer cannot check one once descriptors have run out.
  const std::size_t space = line.find(' ');
  const std::string word = line.substr(0, space);
  const std::uint64_t number = space == line.npos ? 0 : std::stoull(line.substr(space));
  if (word == "put") {
    put(source.store(), number);
  } else if (word == "descriptors") {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = number;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  } else if (word == "interrupt") {
    struct sigaction action {};
    action.sa_handler = ignore_signal;  // without SA_RESTART
    ::sigaction(SIGUSR1, &action, nullptr);
    for (std::uint64_t i = 0; i < number; ++i) {
      ::kill(::getpid(), SIGUSR1);
    }
  } else {
    source.hung = word == "hang" || (source.hung && word != "wake");
    source.draining = word == "drain";
  }
}

}  // namespace

int main(int count, char** values) {
  if (count < 2) {
    return 2;
  }
  const std::string folder = values[1];
  FakeOpsSource source(folder + "/store");
  const std::uint64_t entries = count > 2 ? std::stoull(values[2]) : 0;
  for (std::uint64_t i = 0; i < entries; ++i) {
    put(source.store(), i);
  }
  const std::string bytes(2048, 'b');
  if (!source.store().put(StoreBlob::borrowed("triton", "KEY/add.cubin", bytes))) {
    std::fputs("the blob was not stored\n", stderr);
    return 1;
  }
  source.store().count("hits", 48'211);
  source.store().count("misses_new", 412);
  source.store().count("misses_header_changed", 61);
  source.store().count("misses_header_appeared", 4);
  source.store().count("compiles", 430);
  source.store().count("failed", 3);
  source.store().count("saved_us", 3'912'000'000);
  source.store().count("look_up_memory_us_to_10", 30'211);
  source.store().count("look_up_disk_us_to_100", 17'800);
  source.store().count("look_up_disk_us_to_250", 180);
  source.store().count("look_up_daemon_us_to_250", 20);
  source.store().count("fallbacks_absent", 12);
  source.store().count("fallbacks_declined", 3);
  make_busy(source);
  ops::HttpResponder responder(source);
  std::vector<ops::HttpListener> listeners;
  for (auto listener : {ops::listen_on_unix, +[](const std::string&) {
                          return ops::listen_on_loopback("127.0.0.1:0");
                        }}) {
    auto opened = listener(folder + "/ops.sock");
    if (!opened) {
      std::fprintf(stderr, "%s\n", opened.error().message().c_str());
      return 1;
    }
    listeners.push_back(*std::move(opened));
  }
  const int port = port_of(listeners.back());
  auto server = ops::AdminHttpServer::open(
      std::move(listeners), [&](ByteView head, bool tcp) { return responder.respond(head, tcp); });
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message().c_str());
    return 1;
  }
  std::cout << port << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    run_command(source, line);
    std::cout << "done" << std::endl;
  }
  return 0;
}
