// SPDX-License-Identifier: Apache-2.0
#include "core/base/serial.hpp"

#include <doctest/doctest.h>

#include "core/base/hasher.hpp"

#include <cukiln/target.hpp>

using namespace cukiln;

TEST_CASE("an encoding round-trips, and its end is known") {
  SerialWriter out;
  out.u8(7).u32(70'000).u64(1ull << 40).bytes("text").bytes("").raw("xy");
  SerialReader in(out.view());
  CHECK(in.u8() == 7);
  CHECK(in.u32() == 70'000);
  CHECK(in.u64() == 1ull << 40);
  CHECK(in.bytes() == "text");
  CHECK(in.bytes().empty());
  CHECK_FALSE(in.at_end());
  CHECK(in.raw(2) == "xy");
  CHECK(in.at_end());
}

TEST_CASE("every truncation is noticed, and nothing is read out of bounds") {
  SerialWriter out;
  out.u32(3).bytes("abcdef").u64(9);
  for (std::size_t length = 0; length < out.view().size(); ++length) {
    const std::string cut(out.view().substr(0, length));
    SerialReader in(cut);
    in.u32();
    in.bytes();
    in.u64();
    CHECK_FALSE(in.ok());
  }
}

TEST_CASE("a length beyond the end is refused without allocating it") {
  SerialWriter out;
  out.u32(0xffff'ffff);
  SerialReader in(out.view());
  CHECK(in.bytes().empty());
  CHECK_FALSE(in.ok());
}

TEST_CASE("checksums are XXH3-128 in canonical order, as other tools print them") {
  CHECK(hash_of("").hex() == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  CHECK(hash_of({"a", "bc"}) == hash_of("abc"));
  constexpr std::uint8_t kFirstOfNothing = 0x99;
  CHECK(checksum_of("").bytes[0] == kFirstOfNothing);
  CHECK(Checksummer().add("a").add("bc").finish() == checksum_of("abc"));
  CHECK(*ContentHash::parse(hash_of("a").hex()) == hash_of("a"));
  CHECK(ContentHash::parse("xyz").error().message() ==
        "invalid digest \"xyz\"; expected 64 hex digits");
  CHECK_FALSE(ContentHash::parse(std::string(64, 'g')));
}

TEST_CASE("targets 100, 100a and 100f differ, and anything else is refused with an example") {
  const auto plain = Target::parse("sm_100");
  const auto arch = Target::parse("compute_100a");
  const auto family = Target::parse("100f");
  REQUIRE(plain);
  REQUIRE(arch);
  REQUIRE(family);
  CHECK(*plain != *arch);
  CHECK(*arch != *family);
  CHECK(arch->name() == "sm_100a");
  for (const char* bad : {"", "sm_", "sm_100b", "sm_100ax", "sm_-90", "gfx942", "sm_9", "sm_ 90"}) {
    const auto parsed = Target::parse(bad);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().message().find("sm_100a") != std::string::npos);
  }
}

TEST_CASE("a cubin runs on the devices that its suffix allows") {
  CHECK(Target{90, 'a'}.runs_on(90));
  CHECK_FALSE(Target{100, 'a'}.runs_on(103));
  CHECK(Target{100, 'f'}.runs_on(103));
  CHECK(Target{100, 'f'}.runs_on(107));
  CHECK_FALSE(Target{100, 'f'}.runs_on(101));
  CHECK_FALSE(Target{100, 'f'}.runs_on(110));
  CHECK_FALSE(Target{103, 'f'}.runs_on(100));
  CHECK(Target{100, 0}.runs_on(101));
  CHECK(Target{80, 0}.runs_on(86));
  CHECK_FALSE(Target{86, 0}.runs_on(80));
  CHECK_FALSE(Target{80, 0}.runs_on(90));
}
