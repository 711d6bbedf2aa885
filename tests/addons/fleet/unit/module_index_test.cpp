// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/module_index.hpp"

#include <doctest/doctest.h>

#include "core/base/serial.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

const Target kTarget = *Target::parse("sm_100a");

ModuleIndex::Row row_of(std::uint64_t number, std::size_t more_bytes = 0) {
  StoreEntry entry = make_entry(number);
  if (more_bytes != 0) {
    CompileRequest request;
    request.sources.push_back({"/cukiln/src/long.cu", SharedBytes(entry.source_text)});
    const SharedBytes noise(fake_cubin(100, more_bytes, number));
    request.options.name_expressions = {std::string(noise.view())};
    request.target = kTarget;
    entry.set_request(request.canonical());
  }
  return {entry.key, static_cast<std::int64_t>(number), entry.request_canonical};
}

struct Signers {
  SecretKey fleet = *SecretKey::generate("fleet");
  SecretKey stranger = *SecretKey::generate("stranger");
  TrustedKeys trusted = *TrustedKeys::parse(fleet.public_key().text());

  Result<ModuleIndex> open(ByteView bytes, const std::string& module, Rejection& why) const {
    const ObjectName name = ModuleIndex::name_of(module, kTarget);
    return open_index(bytes, module, kTarget, {&trusted, &name}, why);
  }
  Rejection rejection(ByteView bytes, const std::string& module = "m") const {
    Rejection why = Rejection::none;
    const bool opened = open(bytes, module, why).has_value();
    CHECK(opened == (why == Rejection::none));
    return why;
  }
};

ModuleIndex index_of(std::size_t rows, std::size_t more_bytes = 0) {
  ModuleIndex index;
  for (std::size_t i = 1; i <= rows; ++i) {
    index.add(row_of(i, more_bytes));
  }
  return index;
}

}  // namespace

// fault 359
TEST_CASE("an index has the last sixteen requests, each once, in at most 64 KiB") {
  const Signers signers;
  ModuleIndex index = index_of(21);
  REQUIRE(index.rows.size() == kMaxIndexedRequests);
  CHECK(index.rows.front().canonical == row_of(21).canonical);
  index.add(row_of(10));
  CHECK(index.rows.size() == kMaxIndexedRequests);
  CHECK(index.rows.front().canonical == row_of(10).canonical);
  CHECK(index.rows.back().canonical == row_of(6).canonical);

  Rejection why = Rejection::none;
  const auto opened = signers.open(seal_index("m", kTarget, index, &signers.fleet, 5), "m", why);
  REQUIRE(opened);
  REQUIRE(opened->rows.size() == kMaxIndexedRequests);
  CHECK(opened->rows.front().key == row_of(10).key);
  CHECK(opened->rows.front().uploaded_s == 10);
  CHECK(opened->find(row_of(20).canonical) != nullptr);
  CHECK(opened->find(row_of(1).canonical) == nullptr);

  const std::string cut = seal_index("m", kTarget, index_of(16, 10'000), &signers.fleet, 5);
  CHECK(cut.size() <= kMaxIndexObjectBytes);
  const auto bounded = signers.open(cut, "m", why);
  REQUIRE(bounded);
  CHECK(bounded->rows.size() >= 4);
  CHECK(bounded->rows.front().canonical == row_of(16, 10'000).canonical);
  CHECK(seal_index("m", kTarget, index_of(1, 100'000), &signers.fleet, 5).empty());
}

// fault 455
TEST_CASE(
    "an index of another module, another signer, another shape or too many bytes is refused") {
  const Signers signers;
  const ModuleIndex index = index_of(2);
  const std::string good = seal_index("m", kTarget, index, &signers.fleet, 5);
  CHECK(signers.rejection(good) == Rejection::none);
  CHECK(signers.rejection(good, "n") == Rejection::wrong_name);
  CHECK(signers.rejection(seal_index("m", kTarget, index, &signers.stranger, 5)) ==
        Rejection::unknown_signer);
  CHECK(signers.rejection(seal_index("m", kTarget, index, nullptr, 5)) == Rejection::no_signature);
  CHECK(signers.rejection(good.substr(0, good.size() - 1)) == Rejection::malformed);
  CHECK(signers.rejection(std::string(kMaxIndexObjectBytes + 1, 'x')) == Rejection::oversize);
  // Signed, under the right name, and still no index.
  EnvelopeHead head;
  head.name = ModuleIndex::name_of("m", kTarget);
  const auto sealed = [&](const SerialWriter& payload) {
    return signers.rejection(seal_envelope(head, payload.view(), &signers.fleet));
  };
  CHECK(sealed(SerialWriter().u32(1)) == Rejection::bad_payload);
  CHECK(sealed(SerialWriter().u32(0).u8(0)) == Rejection::bad_payload);
  CHECK(sealed(SerialWriter().u32(1).raw(view_of(row_of(1).key)).u64(0).bytes("request")) ==
        Rejection::bad_payload);
  SerialWriter many;
  many.u32(kMaxIndexedRequests + 1);
  for (std::size_t i = 0; i <= kMaxIndexedRequests; ++i) {
    many.raw(view_of(row_of(i).key)).u64(0).bytes(row_of(i).canonical);
  }
  CHECK(sealed(many) == Rejection::bad_payload);
  const StoreEntry other = make_entry(1, {100, 0, 1, "sm_90a"});
  CHECK(
      sealed(SerialWriter().u32(1).raw(view_of(other.key)).u64(0).bytes(other.request_canonical)) ==
      Rejection::bad_payload);
  // A key that is trusted for other modules only.
  const TrustedKeys scoped = *TrustedKeys::parse(
      ScratchFolder().write("keys", signers.fleet.public_key().text() + " modules=n\n"));
  const ObjectName name = head.name;
  Rejection why = Rejection::none;
  CHECK_FALSE(open_index(good, "m", kTarget, {&scoped, &name}, why));
  CHECK(why == Rejection::out_of_scope);
}
