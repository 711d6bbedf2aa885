// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/bundle.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>

#include "addons/fleet/envelope.hpp"
#include "core/base/serial.hpp"
#include "support/golden_entries.hpp"
#include "support/paths.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

/// The envelopes of entries, then those of blobs.
Result<std::vector<std::string>> read_bundle(const std::string& path) {
  auto bundle = BundleReader::open(path);
  if (!bundle) {
    return bundle.error();
  }
  std::vector<std::string> all;
  for (;;) {
    CHECK(bundle->is_at_blob() ==
          (all.size() >= bundle->count() && all.size() < bundle->count() + bundle->blobs()));
    auto envelope = bundle->next();
    if (!envelope) {
      return envelope.error();
    }
    if (!*envelope) {
      break;
    }
    all.push_back(**std::move(envelope));
  }
  CHECK(all.size() == bundle->count() + bundle->blobs());
  return all;
}

/// A bundle with these entries and blobs, as bytes.
std::string bundle_of(const std::vector<std::string>& entries,
                      const std::vector<std::string>& blobs) {
  const ScratchFolder folder;
  BundleWriter writer = *BundleWriter::create(folder / "b.ckb");
  for (const std::string& entry : entries) {
    CHECK(writer.add(entry).has_value());
  }
  for (const std::string& blob : blobs) {
    CHECK(writer.add_blob(blob).has_value());
  }
  CHECK(writer.finish().has_value());
  CHECK(writer.bytes() == std::filesystem::file_size(folder / "b.ckb"));
  return read_all(folder / "b.ckb");
}

}  // namespace

TEST_CASE("a bundle round-trips, and its file appears when it is complete") {
  const ScratchFolder folder;
  const std::string path = folder / "b.ckb";
  const std::vector<std::string> parts = {"one", "", std::string(3 << 20, 'x')};
  {
    BundleWriter writer = *BundleWriter::create(path);
    for (const std::string& part : parts) {
      CHECK(writer.add(part).has_value());
    }
    CHECK_FALSE(exists(path));
    CHECK(writer.finish().has_value());
    CHECK(writer.bytes() == std::filesystem::file_size(path));
  }
  CHECK(*read_bundle(path) == parts);
  { const BundleWriter abandoned = *BundleWriter::create(folder / "c.ckb"); }
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a bundle has entries, blobs, both or none") {
  const ScratchFolder folder;
  for (const std::vector<std::string>& entries :
       {std::vector<std::string>(), std::vector<std::string>{"one", "two"}}) {
    std::vector<std::string> all = entries;
    CHECK(*read_bundle(folder.write("a.ckb", bundle_of(entries, {}))) == entries);
    const std::string bytes = bundle_of(entries, {"first", "", std::string(2 << 20, 'b')});
    CHECK(bytes.substr(0, 4) == "CKB6");
    all.insert(all.end(), {"first", "", std::string(2 << 20, 'b')});
    CHECK(*read_bundle(folder.write("b.ckb", bytes)) == all);
    auto bundle = *BundleReader::open(folder / "b.ckb");
    CHECK(bundle.count() == entries.size());
    CHECK(bundle.blobs() == 3);
    while (*bundle.next()) {
    }
    CHECK_FALSE(*bundle.next());
  }
}

TEST_CASE("fault 280: a bundle with blobs that is cut or has bytes left over is corrupt") {
  const ScratchFolder folder;
  const std::string good = bundle_of({"one"}, {"two", "three"});
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    const auto cut = read_bundle(folder.write("cut", good.substr(0, size)));
    REQUIRE_FALSE(cut);
    CHECK(cut.error().code() == ErrorCode::corrupt);
  }
  CHECK(read_bundle(folder.write("long", good + "x"))
            .error()
            .message()
            .find("after its 1 entries and 2 blobs") != std::string::npos);
}

TEST_CASE("a bundle that is truncated, has bytes left over or is another file is corrupt") {
  const ScratchFolder folder;
  {
    BundleWriter writer = *BundleWriter::create(folder / "b.ckb");
    CHECK(writer.add("one").has_value());
    CHECK(writer.add("two").has_value());
    CHECK(writer.finish().has_value());
  }
  const std::string good = read_all(folder / "b.ckb");
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    const auto cut = read_bundle(folder.write("cut", good.substr(0, size)));
    REQUIRE_FALSE(cut);
    CHECK(cut.error().code() == ErrorCode::corrupt);
  }
  CHECK(read_bundle(folder.write("long", good + "x")).error().code() == ErrorCode::corrupt);
  CHECK(read_bundle(folder / "none").error().code() == ErrorCode::not_found);
}

// fault 124
TEST_CASE("a bundle of another format is refused with its format and advice") {
  const ScratchFolder folder;
  {
    BundleWriter writer = *BundleWriter::create(folder / "b.ckb");
    CHECK(writer.add("one").has_value());
    CHECK(writer.finish().has_value());
  }
  const std::string good = read_all(folder / "b.ckb");
  for (const char format : {'0', '2', '3', '5', '7', '\x1b'}) {
    std::string other = good;
    other[3] = format;
    const auto refused = read_bundle(folder.write("other", other));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::corrupt);
    CHECK(refused.error().message() ==
          folder / "other" + " is a bundle of format " + format +
              ", this cukiln reads format 6: export it again with a cukiln of this version");
  }
}

TEST_CASE("fault 64: a length beyond the bundle's end is not allocated") {
  const ScratchFolder folder;
  for (const std::uint64_t claim : {kMaxEnvelopeBytes, kMaxEnvelopeBytes + 1, ~std::uint64_t{0}}) {
    const std::string path =
        folder.write("claim", SerialWriter().raw("CKB6").u32(1).u32(0).u64(claim).raw("x").take());
    struct rusage before {};
    ::getrusage(RUSAGE_SELF, &before);
    CHECK(read_bundle(path).error().code() == ErrorCode::corrupt);
    struct rusage after {};
    ::getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 16 << 10);
  }
  for (const std::uint64_t claim : {kMaxSealedBlobBytes, kMaxSealedBlobBytes + 1}) {
    const std::string path =
        folder.write("claim", SerialWriter().raw("CKB6").u32(0).u32(1).u64(claim).raw("x").take());
    const auto refused = read_bundle(path);
    CHECK(refused.error().code() == ErrorCode::corrupt);
    CHECK((refused.error().message().find("blob 1 of the bundle") != std::string::npos) ==
          (claim > kMaxSealedBlobBytes));
  }
}

TEST_CASE("the golden bundle holds its entries byte for byte") {
  const std::string golden = testing::sources() + "/cache/golden/bundle-6.ckb";
  const TrustedKeys keys = *TrustedKeys::parse(golden + ".pub");
  const auto envelopes = read_bundle(golden);
  REQUIRE(envelopes);
  std::vector<StoreEntry> entries = golden_entries();
  REQUIRE(envelopes->size() == entries.size() + 2);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Rejection why = Rejection::none;
    const auto opened = open_entry((*envelopes)[i], {&keys, nullptr}, why);
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message());
    CHECK(opened->source_text == entries[i].source_text);
    entries[i].origin = Origin::compiled;
    entries[i].signer = opened->signer;
    CHECK(same_content(*opened, entries[i]));
  }
  // Behind them are the list of sets of the first two, and a blob.
  Rejection why = Rejection::none;
  const auto sets =
      open_sets((*envelopes)[entries.size()], entries[0].request_canonical, &keys, why);
  REQUIRE(sets);
  REQUIRE(sets->recent.size() == 2);
  CHECK(sets->recent.front().key == entries[1].key);
  CHECK(sets->recent.back().dependencies == entries[0].dependencies);
  CHECK(sets->tree.size() == 2);
  const auto blob = open_blob(envelopes->back(), {&keys, nullptr}, why);
  REQUIRE(blob);
  CHECK(blob->key == golden_blob().key);
  CHECK(blob->bytes == golden_blob().bytes);
}
