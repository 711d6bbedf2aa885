// SPDX-License-Identifier: Apache-2.0
// Servers that are down, slow, wrong or hostile: each call ends in time, says what happened, and
// takes no more memory than an object may.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include "addons/fleet/remote_store.hpp"
#include "support/scripted_server.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using std::chrono::milliseconds;
using Status = RemoteStatus;

namespace {

constexpr milliseconds kDeadline{20'000};    // far more than an answer takes here
constexpr milliseconds kShortDeadline{200};  // of servers that do not answer

struct Asked {
  RemoteAnswer answer;
  double ms = 0;
  long grown_kib = 0;
};

Asked get_from(const std::string& url, milliseconds deadline = kDeadline) {
  auto endpoint = make_remote_endpoint(url);
  REQUIRE_MESSAGE(endpoint.has_value(), url);
  struct rusage before {};
  ::getrusage(RUSAGE_SELF, &before);
  const auto start = std::chrono::steady_clock::now();
  Asked asked;
  asked.answer = (*endpoint)->get(ObjectName::of_sets("anything"), start + deadline);
  asked.ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  struct rusage after {};
  ::getrusage(RUSAGE_SELF, &after);
  asked.grown_kib = after.ru_maxrss - before.ru_maxrss;
  CHECK(asked.grown_kib < 160 << 10);  // 64 MiB of object, in a buffer that grew
  CHECK(asked.ms < 20'000);            // the servers hang for longer
  return asked;
}

Status status_in_time(const std::string& url) {
  return get_from(url, kShortDeadline).answer.status;
}

/// What comes of a server that answers an HTTP request with these bytes, and closes.
Asked http_answer(const std::string& bytes) {
  const ScriptedServer server([&](const ScriptedPeer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send(bytes);
  });
  return get_from(server.http());
}
Asked http_status(int status, const std::string& more = {}) {
  return http_answer("HTTP/1.1 " + std::to_string(status) + " Whatever\r\nContent-Length: 0\r\n" +
                     more + "\r\n");
}
Asked redis_answer(const std::string& bytes) {
  const ScriptedServer server([&](const ScriptedPeer& peer) {
    peer.read_until("\r\n");
    peer.send(bytes);
  });
  return get_from(server.redis());
}

std::string ok_with(const std::string& body, const std::string& headers = {}) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
         "\r\n" + body;
}

std::unique_ptr<RemoteStore> store_on(const std::vector<std::string>& urls, const SecretKey& key,
                                      bool writer = false,
                                      milliseconds look_up = milliseconds(10'000)) {
  RemoteStore::Options options;
  options.look_up_timeout = look_up;  // only where it is waited for, it is a short one
  for (const std::string& url : urls) {
    options.endpoints.push_back(*make_remote_endpoint(url));
  }
  options.trusted.add(key.public_key());
  if (writer) {
    options.key = key;
  }
  return std::make_unique<RemoteStore>(std::move(options));
}

std::uint64_t count(const RemoteStats& stats, Rejection why) {
  return stats.rejected[static_cast<std::size_t>(why)];
}

constexpr auto kUsual = RemoteTier::Freshness::usual;
constexpr auto kNow = RemoteTier::Freshness::now;

/// Whether the fleet has something for a request and no files at all.
bool asks(RemoteStore& store, ByteView request_canonical, RemoteTier::Freshness freshness) {
  FilesOf files({});
  return store.find(request_canonical, "kernel", files, freshness).has_value();
}

FleetSets sets_of(const StoreEntry& entry) {
  FleetSets sets;
  sets.add({entry.key, entry.dependencies}, [](const SetTree::Leaf&) { return std::nullopt; });
  return sets;
}

}  // namespace

TEST_CASE("fault 68: no listener, no such host, addresses that drop packets") {
  std::string url;
  std::string redis;
  {
    const ScriptedServer gone([](const ScriptedPeer&) {});
    url = gone.http();
    redis = gone.redis();
  }
  CHECK(get_from(url).answer.status == Status::unreachable);
  CHECK(get_from(redis).answer.status == Status::unreachable);
  CHECK(get_from(url).answer.is_restarting);  // fault 348
  CHECK(get_from(redis).answer.is_restarting);
  for (const std::string nowhere :
       {"http://no-such-host.invalid/c", "redis://no-such-host.invalid:6379"}) {
    CAPTURE(nowhere);
    const Status status = status_in_time(nowhere);
    CHECK((status == Status::timeout || status == Status::unreachable));
  }
  const BlackHole hole;
  CHECK(status_in_time("http://127.0.0.1:" + hole.port() + "/c") == Status::timeout);
  // To be reached may take half of the time to answer.
  const Asked unreached = get_from("redis://127.0.0.1:" + hole.port(), milliseconds(4000));
  CHECK(unreached.answer.status == Status::timeout);
  CHECK(unreached.ms < 3900);
}

TEST_CASE(
    "fault 68, fault 69: a server that reads the request and never replies, or a byte at a time") {
  const ScriptedServer silent([](const ScriptedPeer& peer) { peer.hang(); });
  CHECK(status_in_time(silent.http()) == Status::timeout);
  CHECK(status_in_time(silent.redis()) == Status::timeout);
  for (const std::string& url : {silent.http(), silent.redis()}) {  // in the handshake, too
    CHECK(status_in_time(std::string(url).insert(url.find(':'), "s")) == Status::timeout);
  }
  const ScriptedServer slow_http([](const ScriptedPeer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    peer.send_endlessly("x", milliseconds(5));
  });
  CHECK(status_in_time(slow_http.http()) == Status::timeout);
  const ScriptedServer slow_redis([](const ScriptedPeer& peer) {
    peer.read_until("\r\n");
    peer.send("$100000\r\n");
    peer.send_endlessly("x", milliseconds(5));
  });
  CHECK(status_in_time(slow_redis.redis()) == Status::timeout);
}

TEST_CASE("fault 69: Redis's temporary and permanent errors are distinguished") {
  CHECK(redis_answer("$-1\r\n").answer.status == Status::absent);
  const Asked good = redis_answer("$5\r\nhello\r\n");
  CHECK(good.answer.status == Status::ok);
  CHECK(good.answer.body == "hello");
  CHECK(redis_answer("-OOM command not allowed\r\n").answer.status == Status::busy);
  CHECK(redis_answer("-MISCONF errors writing to the disk\r\n").answer.status == Status::busy);
  CHECK(redis_answer("-LOADING the dataset\r\n").answer.status == Status::busy);
  CHECK(redis_answer("-LOADING the dataset\r\n").answer.is_restarting);
  CHECK(redis_answer("-NOAUTH Authentication required.\r\n").answer.status == Status::denied);
  CHECK(redis_answer("-NOPERM no permissions\r\n").answer.status == Status::denied);
  CHECK(redis_answer("-MOVED 3999 10.0.0.1:6381\r\n").answer.status == Status::redirected);
  CHECK(redis_answer("-WRONGTYPE a list\r\n").answer.status == Status::bad_answer);
}

TEST_CASE(
    "fault 69: replies of the wrong type and malformed ones are refused before they are parsed") {
  for (const char* answer :
       {"*4294967295\r\n", "*2147483647\r\n", "*1\r\n$1\r\nx\r\n", ":7\r\n", "+OK\r\n", "%1\r\n",
        "_\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "$x\r\n", "$-5\r\n", "$5x\r\nhello\r\n",
        "\r\n", "$3\r\nhello\r\n", ""}) {
    CAPTURE(answer);
    const Asked asked = redis_answer(answer);
    CHECK((asked.answer.status == Status::bad_answer || asked.answer.status == Status::ok));
    if (asked.answer.status == Status::ok) {
      CHECK(asked.answer.body == "hel");  // what follows is never believed to be an answer
    }
    CHECK(asked.grown_kib < 8 << 10);
  }
}

TEST_CASE("fault 69, fault 71: lengths above the limit are refused unread") {
  for (const char* answer : {"$2147483647\r\n", "$67108865\r\n", "$9223372036854775807\r\n"}) {
    CAPTURE(answer);
    const Asked asked = redis_answer(answer);
    CHECK(asked.answer.status == Status::oversize);
    CHECK(asked.grown_kib < 8 << 10);
  }
  CHECK(redis_answer("$99999999999999999999\r\n").answer.status == Status::bad_answer);
  const ScriptedServer endless([](const ScriptedPeer& peer) {
    peer.read_until("\r\n");
    peer.send_endlessly("+" + std::string(1000, 'a'));
  });
  CHECK(get_from(endless.redis()).answer.status == Status::bad_answer);
  CHECK(http_answer("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nx").answer.status ==
        Status::oversize);
}

TEST_CASE("fault 70: each HTTP status is classified") {
  CHECK(http_status(404).answer.status == Status::absent);
  CHECK(http_status(410).answer.status == Status::absent);
  CHECK(http_status(401).answer.status == Status::denied);
  CHECK(http_status(403).answer.status == Status::denied);
  CHECK(http_status(429).answer.status == Status::busy);
  CHECK(http_status(500).answer.status == Status::busy);
  CHECK(http_status(503).answer.status == Status::busy);
  CHECK(http_status(418).answer.status == Status::bad_answer);
}

TEST_CASE("fault 70: a redirection is not followed") {
  const ScriptedServer other([](const ScriptedPeer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send(ok_with("stolen"));
  });
  for (const int status : {301, 302, 303, 307, 308}) {
    CHECK(http_status(status, "Location: " + other.http() + "\r\n").answer.status ==
          Status::redirected);
  }
  CHECK(other.connections() == 0);
}

TEST_CASE("fault 71: short and endless bodies, and replies that are not HTTP") {
  CHECK(http_answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this").answer.status ==
        Status::bad_answer);
  CHECK(http_answer("garbage\r\n\r\n").answer.status == Status::bad_answer);
  CHECK(http_answer("").answer.status == Status::bad_answer);
  CHECK(http_answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").answer.status ==
        Status::bad_answer);
  const ScriptedServer endless([](const ScriptedPeer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    peer.send_endlessly("10000\r\n" + std::string(0x10000, 'x') + "\r\n");
  });
  const Status status = get_from(endless.http()).answer.status;
  CHECK((status == Status::oversize || status == Status::timeout));
}

TEST_CASE("fault 71: a folded first header is not joined to the reply before") {
  int answers = 0;
  const ScriptedServer server([&](const ScriptedPeer& peer) {
    while (!peer.read_until("\r\n\r\n").empty()) {
      peer.send(++answers == 1
                    ? "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nX-Last: header\r\n\r\n"
                    : "HTTP/1.1 404 Not Found\r\n folded\r\nContent-Length: 0\r\n\r\n");
    }
  });
  auto endpoint = make_remote_endpoint(server.http());
  REQUIRE(endpoint);
  for (int i = 0; i < 3; ++i) {  // AddressSanitizer sees what libcurl does with freed memory
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    (*endpoint)->get(ObjectName::of_sets("anything"), deadline);
  }
  CHECK(server.connections() < 3);  // the second went over the first one's
}

TEST_CASE(
    "fault 71: empty, long, gzip'd and HTML bodies are rejected, counted, and open the breaker") {
  const SecretKey key = *SecretKey::generate("fleet");
  for (const std::string& answer :
       {ok_with(""), ok_with("<html><body>Sign in to the hotel's network</body></html>"),
        ok_with("\x1f\x8b\x08\x00 packed", "Content-Encoding: gzip\r\n"),
        ok_with("CKE6") + "and more than was said"}) {
    const ScriptedServer server([&](const ScriptedPeer& peer) {
      peer.read_until("\r\n\r\n");
      peer.send(answer);
    });
    const auto store = store_on({server.http()}, key);
    for (int i = 0; i < 5; ++i) {
      CHECK_FALSE(asks(*store, "request " + std::to_string(i), kUsual));
    }
    CHECK(count(store->stats(), Rejection::malformed) == 3);
    CHECK(store->stats().skipped == 2);
    CHECK(store->health().front().state == ServerBreaker::State::open);
    CHECK(server.connections() <= 3);
  }
}

TEST_CASE("fault 72: an object that no trusted key signed is not requested again") {
  const SecretKey key = *SecretKey::generate("fleet");
  const SecretKey stranger = *SecretKey::generate("stranger");
  const StoreEntry entry = make_entry(1);
  const ScriptedServer server([&](const ScriptedPeer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send(ok_with(seal_sets(entry.request_canonical, sets_of(entry), &stranger, 0)));
  });
  const auto store = store_on({server.http()}, key);
  CHECK_FALSE(asks(*store, entry.request_canonical, kUsual));
  CHECK_FALSE(asks(*store, entry.request_canonical, kUsual));
  CHECK(count(store->stats(), Rejection::unknown_signer) == 1);
  CHECK(server.connections() == 1);
  // The same from whom it trusts.
  const auto trusting = store_on({server.http()}, stranger);
  CHECK_FALSE(asks(*trusting, entry.request_canonical,
                   kUsual));  // the list is good; the entry is not there
}

TEST_CASE("fault 68: a dead server costs one deadline, then nothing; another one still answers") {
  const SecretKey key = *SecretKey::generate("fleet");
  const ScriptedServer silent([](const ScriptedPeer& peer) { peer.hang(); });
  const ScriptedServer good([](const ScriptedPeer& peer) {
    peer.read_until("\r\n");
    peer.send("$-1\r\n");
  });
  constexpr milliseconds kOneDeadline{1000};
  const auto store = store_on({silent.http(), good.redis()}, key, false, kOneDeadline);
  for (int i = 0; i < 20; ++i) {
    CHECK_FALSE(asks(*store, "request " + std::to_string(i), kUsual));
  }
  CHECK(silent.connections() == 1);
  CHECK(store->stats().requests[static_cast<std::size_t>(Status::absent)] == 20);
}

TEST_CASE("fault 70: a server that denies access is not asked again") {
  const SecretKey key = *SecretKey::generate("fleet");
  const ScriptedServer server([](const ScriptedPeer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  });
  const auto store = store_on({server.http()}, key);
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(asks(*store, "request " + std::to_string(i), kUsual));
  }
  CHECK(server.connections() == 1);
  CHECK(store->health().front().state == ServerBreaker::State::forbidden);
}

TEST_CASE(
    "fault 348: a PUT that a proxy answers with 404 while its server restarts is one failure") {
  const SecretKey key = *SecretKey::generate("fleet");
  const ScriptedServer server([](const ScriptedPeer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  const auto store = store_on({server.http()}, key, true);
  store->put(make_entry(1));
  store->finish(milliseconds(300));
  CHECK(store->stats().requests[static_cast<std::size_t>(Status::busy)] >= 1);
  CHECK(store->report().not_uploaded.at(0).reason == "busy");
  CHECK(store->stats().stored == 0);
  CHECK(store->health().front().state == ServerBreaker::State::closed);
}

TEST_CASE(
    "fault 70: an absent object is not requested again, unless another machine may be compiling "
    "it") {
  const SecretKey key = *SecretKey::generate("fleet");
  const ScriptedServer server([](const ScriptedPeer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  const auto store = store_on({server.http()}, key);
  asks(*store, "request", kUsual);
  asks(*store, "request", kUsual);
  CHECK(server.connections() == 1);
  asks(*store, "request", kNow);
  CHECK(server.connections() == 2);
  asks(*store, "another", kUsual);
  CHECK(server.connections() == 3);
}

TEST_CASE("uploads are bounded, and dropped at the deadline") {
  const SecretKey key = *SecretKey::generate("fleet");
  const ScriptedServer silent([](const ScriptedPeer& peer) { peer.hang(); });
  RemoteStore::Options options;
  options.endpoints.push_back(*make_remote_endpoint(silent.http()));
  options.key = key;
  options.max_queued = 2;
  options.upload_timeout = milliseconds(1000);
  RemoteStore store(std::move(options));
  for (std::uint64_t i = 0; i < 10; ++i) {
    store.put(make_entry(i));
  }
  CHECK(store.stats().dropped >= 7);
  store.finish(milliseconds(50));
  CHECK(store.stats().dropped == 10);
  CHECK(store.stats().stored == 0);
}

TEST_CASE("a reader uploads nothing") {
  const SecretKey key = *SecretKey::generate("fleet");
  const ScriptedServer server([](const ScriptedPeer&) {});
  const auto store = store_on({server.http()}, key);
  store->put(make_entry(1));
  CHECK(store->finish(milliseconds(100)));
  CHECK(server.connections() == 0);
}

TEST_CASE("malformed addresses are refused with the expected form") {
  for (const char* url :
       {"", "cache:6379", "ftp://host/x", "redis://", "redis://host:port", "redis://host:99999",
        "redis://[::1", "http://", "http://h/x?query=1", "rediss://", "redis://h?ca=/dev/null",
        "https://h/x?ca=", "s3+http://h/bucket", "s3+http://user@h/bucket", "s3+ftp://u:p@h/b",
        "https://h/x?region=r"}) {
    CAPTURE(url);
    const auto endpoint = make_remote_endpoint(url);
    REQUIRE_FALSE(endpoint);
    CHECK(endpoint.error().message().find("expected") != std::string::npos);
  }
  // A password is for the server alone.
  for (const char* const url : {"htp://u:secret@h", "u:secret@h:6379", "secret",
                                "redis:/u:secret@h", "https://h/x?token=secret"}) {
    CAPTURE(url);
    const auto endpoint = make_remote_endpoint(url);
    REQUIRE_FALSE(endpoint);
    CHECK(endpoint.error().message().find("secret") == std::string::npos);
  }
  CHECK((*make_remote_endpoint("redis://u:secret@h:1/p"))->where() == "redis://h:1/p");
  CHECK((*make_remote_endpoint("http://u:secret@h:1/p/"))->where() == "http://h:1/p");
  CHECK((*make_remote_endpoint("rediss://:secret@h/p?ca=/dev/null"))->where() ==
        "rediss://h:6379/p");
  CHECK((*make_remote_endpoint("s3+https://key:secret@h/b/p?region=r"))->where() ==
        "s3+https://h/b/p");
  CHECK((*make_remote_endpoint("redis://[::1]:7"))->where() == "redis://::1:7/cukiln6");
}
