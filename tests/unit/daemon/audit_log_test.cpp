// SPDX-License-Identifier: Apache-2.0
#include "daemon/audit_log.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/scratch.hpp"
#include "support/wait.hpp"
#include "wire/unix_socket.hpp"

using cukiln::CacheKey;
using cukiln::Logger;
using cukiln::UniqueFd;
using cukiln::daemon::AuditLog;
using cukiln::testing::becomes_true;
using Json = nlohmann::json;

namespace {

struct Fixture {
  cukiln::testing::ScratchFolder scratch;
  std::vector<std::string> warnings;
  AuditLog::Options options;

  Fixture() { options.where = scratch / "audit.jsonl"; }
  std::unique_ptr<AuditLog> open() {
    auto log = AuditLog::open(options, Logger([this](cukiln::LogLevel, std::string_view text) {
                                warnings.emplace_back(text);
                              }));
    REQUIRE(log);
    return *std::move(log);
  }
  std::vector<Json> lines(const std::string& name = "audit.jsonl") const {
    std::vector<Json> all;
    std::ifstream in(scratch / name);
    for (std::string line; std::getline(in, line);) {
      all.push_back(Json::parse(line));
    }
    return all;
  }
};

}  // namespace

// fault 166
TEST_CASE_FIXTURE(Fixture, "an event is one line of JSON in ASCII, whatever its texts are") {
  const std::string evil = "\x1b[2J\n{\"event\":\"entry\"}\xe2\x80\xae\xff\r";
  open()->record({"compiled", 1000, 7, {{"name", evil}}, {{"milliseconds", 5}}});
  const auto all = lines();
  REQUIRE(all.size() == 1);
  CHECK(all[0]["event"] == "compiled");
  CHECK(all[0]["uid"] == 1000);
  CHECK(all[0]["pid"] == 7);
  CHECK(all[0]["seq"] == 1);
  CHECK(all[0]["milliseconds"] == 5);
  CHECK(all[0]["name"].get<std::string>().starts_with("\x1b[2J\n{"));
  CHECK(all[0]["time"].get<std::string>().size() == 24);
  const std::string bytes = cukiln::testing::read_all(options.where);
  for (const char c : bytes.substr(0, bytes.size() - 1)) {
    CHECK((c >= ' ' && c < 127));
  }
  struct stat status {};
  REQUIRE(::stat(options.where.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE_FIXTURE(Fixture, "equal events become one with a count, entries too") {
  {
    const auto log = open();
    for (int i = 0; i < 100; ++i) {
      log->record({"rejected", 1000, 0, {{"reason", "limit"}}});
      log->record_entry(1000, 7, CacheKey{});
    }
  }
  std::uint64_t rejected = 0, entries = 0;
  const auto all = lines();
  for (const Json& line : all) {
    (line["event"] == "entry" ? entries : rejected) += line.value("count", 1);
  }
  CHECK(rejected == 100);
  CHECK(entries == 100);
  CHECK(all.size() < 20);
}

TEST_CASE_FIXTURE(Fixture, "the file is rotated by size, and a bounded number is kept") {
  options.max_bytes = 1000;
  options.kept_files = 2;
  options.max_queued = 1000;
  {
    const auto log = open();
    for (std::uint64_t i = 0; i < 100; ++i) {
      log->record({"compiled", 1000, 7, {}, {{"number", i}}});
    }
  }
  namespace fs = std::filesystem;
  CHECK(fs::file_size(options.where) <= 1000);
  CHECK(fs::file_size(options.where + ".1") <= 1000);
  CHECK(fs::file_size(options.where + ".2") <= 1000);
  CHECK_FALSE(fs::exists(options.where + ".3"));
  CHECK(lines().back()["number"] == 99);
  CHECK(lines()[0]["seq"] == lines("audit.jsonl.1").back()["seq"].get<int>() + 1);
}

// fault 169
TEST_CASE_FIXTURE(Fixture, "what finds no room in the queue is counted as lost") {
  options.max_queued = 3;
  {
    const auto log = open();
    for (std::uint64_t i = 0; i < 1000; ++i) {
      log->record({"compiled", 1000, 7, {}, {{"number", i}}});
    }
  }
  std::uint64_t lost = 0, kept = 0;
  for (const Json& line : lines()) {
    lost += line["event"] == "lost" ? line.value("count", 1) : 0;
    kept += line["event"] == "compiled" ? 1 : 0;
  }
  CHECK(kept + lost == 1000);
  CHECK(lost > 0);
}

// fault 169
TEST_CASE_FIXTURE(Fixture,
                  "a full disk leaves whole lines, one warning, and the number of lost events") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, limit.rlim_max};
  options.interval = std::chrono::milliseconds(1);
  {
    const auto log = open();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    for (std::uint64_t i = 0; i < 50; ++i) {
      log->record({"compiled", 1000, 7, {}, {{"number", i}}});
    }
    CHECK(becomes_true([&] { return cukiln::testing::read_all(options.where).size() > 800; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    log->record({"stopped", 1000, 7, {}, {}});
  }
  ::signal(SIGXFSZ, before);
  std::uint64_t lost = 0, kept = 0, last = 0;
  for (const Json& line : lines()) {
    lost += line["event"] == "lost" ? line.value("count", 1) : 0;
    kept += line["event"] == "compiled" ? 1 : 0;
    CHECK(line["seq"] == ++last);
  }
  CHECK(lost > 0);
  CHECK(kept + lost == 50);
  CHECK(warnings.size() == 1);
}

TEST_CASE_FIXTURE(Fixture, "a link, a folder and another user's file are refused") {
  std::filesystem::create_symlink(scratch / "elsewhere", options.where);
  CHECK_FALSE(AuditLog::open(options, Logger()));
  CHECK_FALSE(std::filesystem::exists(scratch / "elsewhere"));
  std::filesystem::remove(options.where);
  scratch.write("audit.jsonl", "");
  REQUIRE(::chmod(options.where.c_str(), 0666) == 0);
  const auto refused = AuditLog::open(options, Logger());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("no other user can write") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "journald gets the line and fields, and no text begins another field") {
  const std::string path = scratch / "journal";
  const UniqueFd journal(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto at = cukiln::wire::unix_address(path);
  REQUIRE(at);
  REQUIRE(::bind(journal.get(), reinterpret_cast<const sockaddr*>(&at->address), at->size) == 0);
  options.where = "journal:" + path;
  open()->record({"compiled", 1000, 7, {{"name", "k\nPRIORITY=0"}}, {}});
  std::string message(1 << 16, '\0');
  const ssize_t size = ::recv(journal.get(), message.data(), message.size(), MSG_DONTWAIT);
  REQUIRE(size > 0);
  message.resize(static_cast<std::size_t>(size));
  CHECK(message.find("\nCUKILND_EVENT=compiled\n") != std::string::npos);
  CHECK(message.find("\nCUKILND_UID=1000\n") != std::string::npos);
  CHECK(message.find("\nCUKILND_NAME=\"k\\nPRIORITY=0\"\n") != std::string::npos);
  CHECK(message.find("\nPRIORITY=0") == std::string::npos);
}
