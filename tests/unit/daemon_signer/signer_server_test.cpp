// SPDX-License-Identifier: Apache-2.0
#include "daemon/signer/signer_server.hpp"

#include <doctest/doctest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "support/scratch.hpp"
#include "support/seqpacket_socket.hpp"
#include "unit/daemon_signer/signer_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using cukiln::daemon::Signer;
using cukiln::daemon::SignerServer;
using wire::SigningRefusal;
using wire::SigningVerdict;

namespace {

/// A server in a thread of its own.
struct ServerFixture : SignerFixture {
  explicit ServerFixture(uid_t accepts = ::geteuid())
      : path(folder / "sign.sock"),
        wake(::eventfd(0, EFD_CLOEXEC)),
        signer(options, compiler, remote),
        server({accepts, nullptr, {}}, seqpacket_listener(path), signer),
        thread([this] { CHECK(server.run(stopping, wake.get())); }) {}
  ~ServerFixture() {
    stopping = true;
    ::eventfd_write(wake.get(), 1);
    thread.join();
  }

  ScratchFolder folder;
  std::string path;
  UniqueFd wake;
  std::atomic<bool> stopping{false};
  Signer signer;
  SignerServer server;
  std::thread thread;
};

}  // namespace

TEST_CASE_FIXTURE(ServerFixture, "the daemon's offers are answered one by one") {
  const UniqueFd client = seqpacket_client(path);
  const UniqueFd good = offer_of(entry());
  const UniqueFd malformed = *wire::make_sealed_file({"text"});
  for (const auto& [offer, refusal] :
       {std::pair(&good, SigningRefusal::none), std::pair(&malformed, SigningRefusal::malformed),
        std::pair(&good, SigningRefusal::none)}) {
    CHECK(wire::send_some(client.get(), {wire::kSigningDatagram}, offer->get()) > 0);
    const auto verdict = SigningVerdict::decode(next_datagram(client.get()));
    REQUIRE(verdict);
    CHECK(verdict->refusal == refusal);
  }
}

TEST_CASE("fault 147: a connection of another user than the daemon's is closed") {
  ServerFixture server(::geteuid() + 1);
  const UniqueFd client = seqpacket_client(server.path);
  static_cast<void>(wire::send_some(client.get(), {wire::kSigningDatagram},
                                    server.offer_of(server.entry()).get()));
  CHECK(next_datagram(client.get()) == "");
  CHECK(server.remote.entries.empty());
}

TEST_CASE_FIXTURE(ServerFixture, "fault 144: a datagram that is no offer ends the connection") {
  const UniqueFd offer = offer_of(entry());
  for (const auto& [said, descriptor] : {std::pair("CKS1", -1), std::pair("CKS2", offer.get()),
                                         std::pair("CKS1 more", offer.get())}) {
    const UniqueFd client = seqpacket_client(path);
    CHECK(wire::send_some(client.get(), {said}, descriptor) > 0);
    CHECK(next_datagram(client.get()) == "");
  }
  CHECK(compiler.compiles == 0);
}
