// SPDX-License-Identifier: Apache-2.0
#include "daemon/signer_link.hpp"

#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "store/daemon_store.hpp"
#include "support/scratch.hpp"
#include "support/seqpacket_socket.hpp"
#include "support/store_entries.hpp"
#include "wire/sealed_file.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using cukiln::daemon::SignerLink;
using std::chrono::milliseconds;
using wire::SigningOffer;
using wire::SigningRefusal;
using wire::SigningVerdict;

namespace {

constexpr milliseconds kEnough{10'000};

SignerLink::Offer offer_of(const std::string& name) {
  wire::CompileOrder order;
  order.request.sources.emplace_back("/cukiln/src/a.cu", SharedBytes("void a() {}"));
  order.labels.name = name;
  return {std::make_shared<const wire::CompileOrder>(std::move(order)),
          std::vector<SharedBytes>{SharedBytes("a header")},
          std::make_shared<UniqueFd>(*to_wire(make_entry(1)).seal())};
}

struct LinkFixture {
  ScratchFolder folder;
  std::string path = folder / "sign.sock";
  Mutex mutex;
  std::vector<std::string> logged CUKILN_GUARDED_BY(mutex);
  SignerLink::Options options{.socket = path, .retry_after = milliseconds(0)};
  Logger log{[this](LogLevel level, std::string_view text) {
    const MutexLock lock(mutex);
    if (level <= LogLevel::warn) {
      logged.emplace_back(text);
    }
  }};
  std::size_t warnings() {
    const MutexLock lock(mutex);
    return logged.size();
  }
};

/// A signer that answers each offer as its module's name says: the text of a verdict.
class FakeSigner {
 public:
  explicit FakeSigner(const std::string& path) : listener_(seqpacket_listener(path)) {}
  /// Accepts a connection, receives an offer and returns it with the connection.
  std::pair<UniqueFd, std::optional<SigningOffer>> receive() {
    pollfd polled{listener_.get(), POLLIN, 0};
    REQUIRE(::poll(&polled, 1, 10'000) == 1);
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    auto offer = next_offer(client.get());
    return {std::move(client), std::move(offer)};
  }
  static std::optional<SigningOffer> next_offer(int client) {
    std::vector<UniqueFd> descriptors;
    CHECK(next_datagram(client, &descriptors) == wire::kSigningDatagram);
    REQUIRE(descriptors.size() == 1);
    const auto bytes = wire::map_sealed_file(descriptors.front().get(), wire::kMaxOfferBytes);
    REQUIRE(bytes);
    return SigningOffer::decode(*bytes);
  }
  static void answer(int client, SigningRefusal refusal) {
    const std::string verdict = SigningVerdict{refusal, "why"}.encode();
    CHECK(wire::send_some(client, {verdict}, -1) > 0);
  }

 private:
  UniqueFd listener_;
};

}  // namespace

TEST_CASE_FIXTURE(LinkFixture, "offers reach the signer whole, and its verdicts are counted") {
  FakeSigner signer(path);
  SignerLink link(options, log);
  link.offer(offer_of("first"));
  link.offer(offer_of("second"));
  const auto [client, first] = signer.receive();
  REQUIRE(first);
  CHECK(first->order.labels.name == "first");
  REQUIRE(first->files.size() == 1);
  CHECK(first->files.front().view() == "a header");
  const auto body = wire::EntryBody::decode(first->entry);
  REQUIRE(body);
  CHECK(body->key == make_entry(1).key);
  FakeSigner::answer(client.get(), SigningRefusal::none);
  CHECK(FakeSigner::next_offer(client.get())->order.labels.name == "second");
  FakeSigner::answer(client.get(), SigningRefusal::scope);
  CHECK(link.finish(kEnough));
  const SignerLink::Stats stats = link.stats();
  CHECK(stats.connected);
  CHECK(stats.signed_entries == 1);
  CHECK(stats.declined == 1);
  CHECK(stats.dropped == 0);
  CHECK(stats.queued == 0);
}

TEST_CASE_FIXTURE(LinkFixture,
                  "fault 148: offers to a signer that is away are dropped, with one warning") {
  SignerLink link(options, log);
  for (int i = 0; i < 5; ++i) {
    link.offer(offer_of("dropped"));
  }
  CHECK(link.finish(kEnough));
  CHECK(link.stats().dropped == 5);
  CHECK_FALSE(link.stats().connected);
  CHECK(warnings() == 1);

  FakeSigner signer(path);  // it comes back
  link.offer(offer_of("signed"));
  FakeSigner::answer(signer.receive().first.get(), SigningRefusal::none);
  CHECK(link.finish(kEnough));
  CHECK(link.stats().signed_entries == 1);
}

TEST_CASE_FIXTURE(LinkFixture, "fault 148: an offer goes to the next signer when one has ended") {
  SignerLink link(options, log);
  {
    FakeSigner signer(path);
    link.offer(offer_of("first"));
    FakeSigner::answer(signer.receive().first.get(), SigningRefusal::none);
    CHECK(link.finish(kEnough));
  }
  ::unlink(path.c_str());
  FakeSigner signer(path);
  link.offer(offer_of("second"));
  const auto [client, second] = signer.receive();
  FakeSigner::answer(client.get(), SigningRefusal::none);
  CHECK(link.finish(kEnough));
  CHECK(second->order.labels.name == "second");
  CHECK(link.stats().signed_entries == 2);
}

TEST_CASE_FIXTURE(
    LinkFixture,
    "fault 148: a signer that does not answer delays no offer, and the queue is bounded") {
  options.max_queued = 3;
  FakeSigner signer(path);
  const auto began = std::chrono::steady_clock::now();
  {
    SignerLink link(options, log);
    link.offer(offer_of("asked"));
    const auto [client, offer] = signer.receive();
    for (int i = 0; i < 10; ++i) {
      link.offer(offer_of("queued"));
    }
    CHECK(link.stats().dropped == 7);
    CHECK(link.stats().queued == 4);
    CHECK_FALSE(link.finish(milliseconds(10)));
  }  // waits for no answer
  CHECK(std::chrono::steady_clock::now() - began < kEnough);
}

TEST_CASE_FIXTURE(LinkFixture,
                  "fault 148: an answer that is none, or comes too late, is a dropped offer") {
  FakeSigner signer(path);
  SignerLink link(options, log);
  link.offer(offer_of("garbage"));
  const auto garbage = signer.receive();
  CHECK(wire::send_some(garbage.first.get(), {"garbage"}, -1) > 0);
  CHECK(link.finish(kEnough));
  CHECK(link.stats().dropped == 1);

  options.answer_timeout = milliseconds(50);
  SignerLink hasty(options, log);
  hasty.offer(offer_of("late"));
  const auto late = signer.receive();
  CHECK(hasty.finish(kEnough));
  CHECK(hasty.stats().dropped == 1);
}

TEST_CASE_FIXTURE(LinkFixture, "an offer whose files were too large to keep is dropped") {
  FakeSigner signer(path);
  SignerLink link(options, log);
  SignerLink::Offer offer = offer_of("large");
  offer.files.reset();
  link.offer(std::move(offer));
  CHECK(link.stats().dropped == 1);
}
