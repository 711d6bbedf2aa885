// SPDX-License-Identifier: Apache-2.0
#include "wire/signing_messages.hpp"

#include <doctest/doctest.h>

#include <string>

#include "unit/wire/whole_messages.hpp"
#include "wire/sealed_file.hpp"

using namespace cukiln;
using namespace cukiln::wire;

namespace {

SigningOffer offer() {
  SigningOffer offer;
  offer.order.request.sources.emplace_back("/cukiln/src/a.cu", SharedBytes("void a() {}"));
  offer.order.request.options.arguments = {"--gpu-architecture=sm_100a"};
  offer.order.request.target = *Target::parse("sm_100a");
  offer.order.request.toolchain = {"13.0.88", hash_of("nvrtc")};
  offer.order.labels = {"a", "a.cu", "sm_100a", "", "nvrtc 13.0.88"};
  offer.files = {SharedBytes("one"), SharedBytes(std::string())};
  offer.entry = SharedBytes("an entry");
  return offer;
}

}  // namespace

TEST_CASE("an offer to the signer round-trips through its sealed file") {
  const auto sealed = offer().seal();
  REQUIRE(sealed);
  const auto bytes = map_sealed_file(sealed->get(), kMaxOfferBytes);
  REQUIRE(bytes);
  const auto decoded = SigningOffer::decode(*bytes);
  REQUIRE(decoded);
  CHECK(decoded->order.encode() == offer().order.encode());
  REQUIRE(decoded->files.size() == 2);
  CHECK(decoded->files[0].view() == "one");
  CHECK(decoded->files[1].empty());
  CHECK(decoded->entry.view() == "an entry");
}

TEST_CASE("an offer that is cut before its entry is refused") {
  const auto sealed = offer().seal();
  const std::string bytes(map_sealed_file(sealed->get(), kMaxOfferBytes)->view());
  const std::size_t head = bytes.size() - offer().entry.size();
  for (std::size_t size = 0; size < head; ++size) {
    CHECK_FALSE(SigningOffer::decode(SharedBytes(bytes.substr(0, size))).has_value());
  }
}

TEST_CASE("a verdict is accepted whole or not at all, and its text is bounded") {
  testing::check_only_whole(SigningVerdict{SigningRefusal::differs, "another cubin"});
  const SigningVerdict endless{SigningRefusal::rate, std::string(100'000, 'x')};
  CHECK(endless.encode().size() <= kMaxVerdictBytes);
  std::string unknown = SigningVerdict{}.encode();
  unknown[0] = static_cast<char>(last_of(SigningRefusal{})) + 1;
  CHECK_FALSE(SigningVerdict::decode(unknown).has_value());
}
