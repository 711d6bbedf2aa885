// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/ops/http_responder.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <set>
#include <sstream>

#include "core/base/file_lock.hpp"
#include "support/ops_source.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using Json = nlohmann::json;

namespace {

struct Answer {
  int status = 0;
  std::string head, body;
};

struct Fixture {
  ScratchFolder folder;
  FakeOpsSource source{folder / "store"};
  ops::HttpResponder responder{source};

  Answer send(const std::string& head, bool tcp = false) {
    const std::string bytes = responder.respond(head, tcp);
    Answer answer;
    const std::size_t end = bytes.find("\r\n\r\n");
    REQUIRE(end != std::string::npos);
    REQUIRE(bytes.substr(0, 9) == "HTTP/1.1 ");
    answer.status = std::stoi(bytes.substr(9, 3));
    answer.head = bytes.substr(0, end + 2);
    answer.body = bytes.substr(end + 4);
    return answer;
  }
  Answer get(const std::string& target) {
    return send("GET " + target + " HTTP/1.1\r\nHost: cukiln\r\n\r\n");
  }
  Json json(const std::string& target) {
    const Answer answer = get(target);
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    return Json::parse(answer.body);
  }
  StoreEntry put(std::uint64_t number, const std::string& name = "", std::int64_t compile_us = 0) {
    StoreEntry entry = make_entry(number);
    if (!name.empty()) {
      entry.labels.name = name;
      entry.cubin.kernels[0].name = name;
    }
    entry.compile_us = compile_us != 0 ? compile_us : entry.compile_us;
    REQUIRE(source.store().put(entry));
    return entry;
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "only GET and HEAD of an existing path succeed") {  // fault 65
  struct Row {
    std::string head;
    int status;
  };
  const Row rows[] = {
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200},
      {"GET / HTTP/1.0\r\n\r\n", 200},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n", 405},
      {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n", 405},
      {"PUT /api/entries HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 405},
      {"DELETE /api/entries HTTP/1.1\r\nHost: x\r\n\r\n", 405},
      {"OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n", 405},
      {"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", 405},
      {"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405},
      {"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"\r\n\r\n", 400},
      {std::string("\0\xff\x01\r\n\r\n", 7), 400},
      {"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /page.css/../page.js HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET //etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /" + std::string(8000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET / HTTP/1.1\r\nHost: x\r\nRange: bytes=" + std::string(7900, '1') + "\r\n\r\n", 416},
      {"GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", 200},
  };
  for (const Row& row : rows) {
    CAPTURE(row.head.substr(0, 60));
    const Answer answer = send(row.head);
    CHECK(answer.status == row.status);
    CHECK(has(answer.head, "Connection: close\r\n"));
    CHECK(has(answer.head, "default-src 'none'"));
    CHECK_FALSE(has(answer.body, "root:"));
  }
}

TEST_CASE_FIXTURE(Fixture, "every head gets one response, with the policy in it") {  // fault 65
  const StoreEntry entry = put(1);
  const std::string seeds[] = {
      "GET /api/entries?q=a%20b&sort=name&limit=3&offset=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "HEAD /api/entries/" + entry.key.hex() + " HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
      "GET /page.js HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1,5-\r\nAccept-Encoding: gzip, "
      "br\r\n\r\n",
      "POST / HTTP/1.0\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: "
      "9\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"};
  const std::string pieces[] = {"\r\n",
                                "\n",
                                "%",
                                "%u1234",
                                "..",
                                "\t",
                                "/",
                                "?",
                                "&&==",
                                ": ",
                                std::string(300, '('),
                                std::string(1, '\0'),
                                "\xff\xfe"};
  std::uint64_t state = 20'26;
  const auto random = [&](std::size_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::size_t>(state >> 33) % below;
  };
  for (int i = 0; i < 3000; ++i) {
    std::string head = seeds[random(std::size(seeds))];
    for (std::size_t changes = random(6); changes > 0; --changes) {
      const std::size_t at = random(head.size());
      switch (random(4)) {
        case 0: head[at] = static_cast<char>(random(256)); break;
        case 1: head.erase(at, random(20) + 1); break;
        case 2: head.insert(at, pieces[random(std::size(pieces))]); break;
        default: head.insert(at, head.substr(random(head.size()), random(40))); break;
      }
      if (head.empty()) {
        break;
      }
    }
    head += "\r\n\r\n";  // AdminHttpServer passes complete heads only
    const std::string bytes = responder.respond(head, i % 2 == 0);
    CAPTURE(head);
    REQUIRE(bytes.rfind("HTTP/1.1 ", 0) == 0);
    REQUIRE(bytes.find("HTTP/1.1 ", 1) == std::string::npos);
    REQUIRE(bytes.find("\r\nContent-Security-Policy: default-src 'none'") < bytes.find("\r\n\r\n"));
    REQUIRE(bytes.size() < 40'000);
  }
}

TEST_CASE_FIXTURE(Fixture, "HEAD is GET without the body") {
  const Answer got = get("/page.js");
  const Answer head = send("HEAD /page.js HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(head.status == 200);
  CHECK(head.body.empty());
  CHECK(has(head.head, "Content-Length: " + std::to_string(got.body.size()) + "\r\n"));
}

TEST_CASE_FIXTURE(Fixture, "ranges are ignored") {
  const std::string whole = get("/page.js").body;
  std::string ranges = "0-";
  while (ranges.size() < 4000) {
    ranges += ",0-";
  }
  const Answer answer =
      send("GET /page.js HTTP/1.1\r\nHost: x\r\nRange: bytes=" + ranges + "\r\n\r\n");
  CHECK(answer.body.size() == whole.size());
}

TEST_CASE_FIXTURE(Fixture, "over TCP a request must name this host") {  // fault 65
  const auto status = [&](const std::string& host) {
    return send("GET /metrics HTTP/1.1\r\n" + host + "\r\n", true).status;
  };
  for (const char* good : {"127.0.0.1", "127.0.0.1:9464", "localhost:1", "LocalHost", "[::1]:80"}) {
    CAPTURE(good);
    CHECK(status("Host: " + std::string(good) + "\r\n") == 200);
  }
  for (const char* bad : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80",
                          "192.168.0.1", "", "[::1", "localhost@evil"}) {
    CAPTURE(bad);
    CHECK(status("Host: " + std::string(bad) + "\r\n") == 400);
  }
  CHECK(status("") == 400);
  CHECK(status("Host: localhost\r\nHost: evil.example\r\n") == 400);
}

TEST_CASE_FIXTURE(Fixture, "the page has no inline script or style, and a policy that forbids it") {
  const Answer page = get("/");
  CHECK(has(page.head, "Content-Type: text/html"));
  CHECK_FALSE(has(page.body, " style="));
  CHECK_FALSE(has(page.body, "<style"));
  CHECK_FALSE(has(page.body, "onclick"));
  CHECK_FALSE(has(page.head, "unsafe"));
  for (const char* part : {"/page.css", "/page.js", "/icon.svg"}) {
    CHECK(get(part).status == 200);
    CHECK(has(page.body, std::string(part).substr(1)));
  }
  CHECK_FALSE(has(get("/page.js").body, "innerHTML"));
}

TEST_CASE_FIXTURE(Fixture, "a daemon that responds is healthy, one that can compile is ready") {
  CHECK(get("/healthz").status == 200);
  const Answer ready = get("/readyz");
  CHECK(ready.status == 200);
  CHECK(has(ready.body, "store: ok"));
  CHECK(has(ready.body, "nvrtc 13.0.88"));

  SUBCASE("with a hung event loop it is neither") {
    source.hung = true;
    CHECK(get("/healthz").status == 503);
    CHECK(get("/readyz").status == 503);
  }
  SUBCASE("while it drains it is not ready") {
    source.draining = true;
    CHECK(get("/healthz").status == 200);
    CHECK(get("/readyz").status == 503);
  }
  SUBCASE("without a compiler it is not ready") {
    source.compiler_trouble = "NVRTC was not found";
    CHECK(get("/healthz").status == 200);
    const Answer answer = get("/readyz");
    CHECK(answer.status == 503);
    CHECK(has(answer.body, "compiler: NVRTC was not found"));
  }
  SUBCASE("with a store that cannot be written it is not ready") {
    const auto writer = FileLock::acquire(source.store().disk()->directory().path("writer.lock"),
                                          FileLock::Mode::exclusive, std::chrono::milliseconds(0));
    REQUIRE(writer);
    CHECK(get("/readyz").status == 503);
    CHECK(get("/healthz").status == 200);
    CHECK(has(get("/metrics").body, "cukiln_store_lock_timeouts_total 1\n"));
  }
}

TEST_CASE_FIXTURE(Fixture, "the inventory is searched, filtered, sorted and split into pages") {
  put(1, "amax", 9'000);
  put(2, "softmax", 90'000);
  const StoreEntry gemm = put(3, "gemm", 50'000);
  const auto names = [&](const std::string& target) {
    std::string all;
    const Json found = json(target);
    for (const Json& entry : found["entries"]) {
      all += entry["name"].get<std::string>() + " ";
    }
    return all;
  };
  CHECK(names("/api/entries?sort=name") == "amax gemm softmax ");
  CHECK(names("/api/entries?sort=time") == "softmax gemm amax ");
  CHECK(names("/api/entries?q=MAX&sort=name") == "amax softmax ");
  CHECK(names("/api/entries?q=" + gemm.key.hex().substr(0, 9)) == "gemm ");
  CHECK(names("/api/entries?target=sm_90").empty());
  CHECK(names("/api/entries?target=sm_100a&origin=remote").empty());
  CHECK(names("/api/entries?sort=name&offset=1&limit=1") == "gemm ");
  CHECK(names("/api/entries?offset=99999999999999999999").size() > 0);  // no number: from the start
  CHECK(get("/api/entries?sort=colour").status == 400);
  const Json page = json("/api/entries?q=max&limit=1");
  CHECK(page["all"] == 3);
  CHECK(page["matching"] == 2);
  CHECK(page["targets"] == Json::array({"sm_100a"}));
}

TEST_CASE_FIXTURE(
    Fixture, "an entry is described without its source, and showing it does not count as use") {
  const StoreEntry entry = put(7, "gemm");
  const Json shown = json("/api/entries/" + entry.key.hex());
  CHECK(shown["key"] == entry.key.hex());
  CHECK(shown["kernels"][0]["registers"] == 32);
  CHECK(shown["dependencies"].size() == 3);
  CHECK(shown["absent"][0] == "/cukiln/src/cuda_fp16.h");
  CHECK(shown["log"] == entry.cubin.log);
  CHECK(shown["request"]["arguments"][1] == "-std=c++17");
  CHECK_FALSE(has(shown.dump(), "__global__"));
  CHECK(json("/api/entries/" + entry.key.hex())["hits"] == 0);
  CHECK(get("/api/entries/" + std::string(32, '0')).status == 404);
  CHECK(get("/api/entries/abc").status == 404);
}

TEST_CASE_FIXTURE(Fixture,
                  "hostile names are truncated and escaped, and in no metric") {  // fault 78
  const StoreEntry entry = put(1, kHostileName);
  wire::DaemonSnapshot::Job job;
  job.name = job.target = kHostileName;
  source.jobs = {job};
  source.remote.servers = {{kHostileName, "http", false}};
  const std::string targets[] = {"/api/status", "/api/entries", "/api/entries/" + entry.key.hex()};
  for (const std::string& target : targets) {
    CAPTURE(target);
    const Answer answer = get(target);
    CHECK(answer.status == 200);
    CHECK(has(answer.head, "Content-Type: application/json"));
    CHECK(has(answer.head, "X-Content-Type-Options: nosniff"));
    CHECK(Json::accept(answer.body));
    CHECK_FALSE(has(answer.body, "\n"));
    CHECK_FALSE(has(answer.body, "\x1b"));
    CHECK(answer.body.size() < 16'000);
  }
  const std::string listed = json("/api/entries")["entries"][0]["name"];
  CHECK(listed.size() < 310);
  CHECK_FALSE(has(get("/metrics").body, "<script"));
}

TEST_CASE_FIXTURE(Fixture, "metrics show the counters in Prometheus' text format") {
  put(1);
  put(2);
  REQUIRE(source.store().disk()->maintain());
  source.store().count("hits", 30);
  source.store().count("misses_new", 2);
  source.store().count("misses_header_changed", 5);
  source.store().count("look_up_disk_us_to_100", 6);
  source.store().count("look_up_disk_us_to_250", 1);
  source.store().count("look_up_disk_us_beyond", 1);
  source.store().count("look_up_disk_us_sum", 5'000'000);
  source.store().count("fallbacks_declined", 8);
  source.store().count("not_stored_time", 1);
  source.store().count("store_errors_put_io", 2);
  source.store().count("corrupt_set", 1);
  source.store().count("blob_hits", 3);
  REQUIRE(source.store().put(StoreBlob::borrowed("triton", "KEY/a", "bytes")));
  wire::DaemonSnapshot::Job running;
  running.running = true;
  running.waiters = 4;
  source.jobs = {running, {}, {}};
  source.remote.servers = {{"redis://a:1", "redis", false},
                           {"redis://b:1", "redis", true},
                           {"https://c", "http", false}};
  source.remote.hits = 9;
  source.remote.queued = 7;
  source.remote.traffic = {
      {"redis", "get", {{"ok", 5}, {"timeout", 3}}, {{0.001, 4}, {0.2, 5}}, 0.75},
      {"http", "put", {{"ok", 2}}, {{0.001, 0}, {0.2, 2}}, 0.5}};
  source.remote.breaker_transitions = {{"closed", 0}, {"open", 2}};
  source.remote.rejected = {{"bad_signature", 2}};
  const Answer answer = get("/metrics");
  CHECK(has(answer.head, "Content-Type: text/plain; version=0.0.4"));
  for (const char* line : {"cukiln_store_entries 2\n",
                           "cukiln_lookups_total{tier=\"all\",result=\"hit\"} 30\n",
                           "cukiln_lookups_total{tier=\"all\",result=\"miss\"} 7\n",
                           "cukiln_misses_total{reason=\"new\"} 2\n",
                           "cukiln_misses_total{reason=\"header_changed\"} 5\n",
                           "cukiln_misses_total{reason=\"evicted\"} 0\n",
                           "cukiln_compiles_total{result=\"ok\"} 41\n",
                           "cukiln_compiles_in_flight 1\n",
                           "nvrtc=\"13.0.88\",protocol=\"4\"} 1\n",
                           "_duration_seconds_bucket{tier=\"disk\",le=\"5e-05\"} 0\n",
                           "_duration_seconds_bucket{tier=\"disk\",le=\"0.0001\"} 6\n",
                           "_duration_seconds_bucket{tier=\"disk\",le=\"2.5\"} 7\n",
                           "_duration_seconds_bucket{tier=\"disk\",le=\"+Inf\"} 8\n",
                           "cukiln_lookup_duration_seconds_sum{tier=\"disk\"} 5\n",
                           "cukiln_lookup_duration_seconds_count{tier=\"disk\"} 8\n",
                           "cukiln_client_fallbacks_total{reason=\"declined\"} 8\n",
                           "cukiln_uncacheable_total{reason=\"time\"} 1\n",
                           "cukiln_store_errors_total{op=\"put\",code=\"io\"} 2\n",
                           "cukiln_store_corrupt_entries_total{kind=\"set\"} 1\n",
                           "cukiln_store_blobs 1\n",
                           "cukiln_store_blobs_size_bytes 5\n",
                           "cukiln_store_blob_lookups_total{result=\"hit\"} 3\n",
                           "cukiln_store_stored_blobs_total 1\n",
                           "cukiln_store_rebuilds_total{reason=\"damaged\"} 0\n",
                           "cukiln_ipc_protocol_errors_total{reason=\"length\"} 3\n",
                           "cukiln_compile_queue_length 2\n",
                           "cukiln_singleflight_waiters 4\n",
                           "cukiln_store_limit_bytes{type=\"soft\"} 67108864\n",
                           "cukiln_gc_runs_total{trigger=\"timer\",result=\"ok\"} 1\n",
                           "cukiln_gc_runs_total{trigger=\"put\",result=\"ok\"} 0\n",
                           "cukiln_gc_duration_seconds_count 1\n",
                           "cukiln_store_checkpoints_total{result=\"error\"} 0\n",
                           "cukiln_store_checkpoint_duration_seconds_count ",
                           "cukiln_gc_last_success_timestamp_seconds 1",
                           "cukiln_store_oldest_entry_age_seconds ",
                           "cukiln_remote_breaker_open{backend=\"redis\"} 1\n",
                           "cukiln_remote_breaker_open{backend=\"http\"} 0\n",
                           "cukiln_remote_lookups_total{result=\"hit\"} 9\n",
                           "cukiln_remote_requests_total{backend=\"redis\",op=\"get\","
                           "result=\"timeout\"} 3\n",
                           "cukiln_remote_requests_total{backend=\"http\",op=\"put\","
                           "result=\"ok\"} 2\n",
                           "cukiln_remote_request_duration_seconds_bucket{backend=\"redis\","
                           "op=\"get\",le=\"0.2\"} 5\n",
                           "cukiln_remote_request_duration_seconds_bucket{backend=\"redis\","
                           "op=\"get\",le=\"+Inf\"} 8\n",
                           "cukiln_remote_request_duration_seconds_sum{backend=\"http\","
                           "op=\"put\"} 0.5\n",
                           "cukiln_remote_request_duration_seconds_count{backend=\"http\","
                           "op=\"put\"} 2\n",
                           "cukiln_remote_breaker_transitions_total{to=\"open\"} 2\n",
                           "cukiln_remote_upload_queue_length 7\n",
                           "cukiln_remote_rejected_total{reason=\"bad_signature\"} 2\n",
                           "cukiln_compile_duration_seconds_bucket{le=\"0.05\"} 11\n",
                           "cukiln_compile_duration_seconds_bucket{le=\"2.5\"} 40\n",
                           "cukiln_compile_duration_seconds_bucket{le=\"+Inf\"} 41\n",
                           "cukiln_compile_duration_seconds_sum 61.5\n",
                           "# TYPE cukiln_compiles_total counter\n",
                           "# TYPE cukiln_store_entries gauge\n"}) {
    CAPTURE(line);
    CHECK(has(answer.body, line));
  }
  CHECK_FALSE(has(answer.body, "result=\"crash\""));  // this daemon does not count those
  // Each metric is introduced once, before its samples.
  std::set<std::string> introduced;
  std::istringstream lines(answer.body);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) {
      CHECK(introduced.insert(line.substr(7, line.find(' ', 7) - 7)).second);
    } else if (line[0] != '#') {
      const std::string name = line.substr(0, line.find_first_of("{ "));
      const std::size_t part = name.rfind("_seconds_");  // of a histogram or a summary
      const bool is_part = part != name.npos && introduced.count(name.substr(0, part + 8)) == 1;
      CHECK((is_part || introduced.count(name) == 1));
    }
  }
}
