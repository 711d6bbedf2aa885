// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/oci_layout.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <vector>

#include "addons/fleet/system_store.hpp"
#include "addons/fleet/tar.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

struct Fixture {
  ScratchFolder folder;
  SecretKey key = *SecretKey::generate("fleet");
  TrustedKeys trusted;
  std::vector<StoreBlob> blobs;  ///< of the last `read`

  std::string store(std::uint64_t entries, const std::vector<StoreBlob>& stored_blobs = {}) {
    auto writer = SystemStoreWriter::create(folder / "store");
    REQUIRE(writer.has_value());
    for (std::uint64_t i = 0; i < entries; ++i) {
      REQUIRE(writer->add(make_entry(i)));
    }
    for (const StoreBlob& blob : stored_blobs) {
      REQUIRE(writer->add(blob));
    }
    REQUIRE(writer->finish());
    return folder / "store";
  }
  void write_layout(const std::string& store) {
    const auto written = write_oci_layout(folder / "image", store, {"0.2.0", {}, {}}, &key);
    REQUIRE_MESSAGE(written.has_value(), written.error().message());
  }
  Result<std::vector<StoreEntry>> read(Rejection& why, bool insecure = false) {
    std::vector<StoreEntry> entries;
    blobs.clear();
    const OpenRules rules{&trusted, nullptr, insecure};
    auto done = for_each_of_oci_layout(
        folder / "image", folder.path(), rules, why,
        [&](const StoreEntry& entry) -> Result<void> {
          entries.push_back(entry);
          return {};
        },
        [&](const StoreBlob& blob) -> Result<void> {
          blobs.push_back(blob);
          return {};
        });
    return done ? Result<std::vector<StoreEntry>>(std::move(entries)) : std::move(done).error();
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "an image gives back what was put into its store, under its signer") {
  write_layout(store(3));
  Rejection why = Rejection::none;
  CHECK_FALSE(read(why));
  CHECK(why == Rejection::unknown_signer);
  trusted.add(key.public_key());
  why = Rejection::none;
  const auto entries = read(why);
  REQUIRE_MESSAGE(entries.has_value(), entries.error().message());
  REQUIRE(entries->size() == 3);
  for (StoreEntry entry : *entries) {
    CHECK(entry.signer == key.public_key().text());
    CHECK_FALSE(entry.source_text.empty());
    entry.signer.clear();
    bool is_one = false;
    for (std::uint64_t i = 0; i < 3; ++i) {
      is_one = is_one || same_content(entry, make_entry(i));
    }
    CHECK(is_one);
  }
  // Nothing that was unpacked stays.
  for (const auto& one : std::filesystem::directory_iterator(folder.path())) {
    CHECK(one.path().filename().string().find("cukiln-oci") == std::string::npos);
  }
}

// fault 375
TEST_CASE_FIXTURE(Fixture, "a key that may sign some modules only signs no other in an image") {
  write_layout(store(1));
  trusted = *TrustedKeys::parse(key.public_key().text() + " modules=other_");
  Rejection why = Rejection::none;
  CHECK_FALSE(read(why));
  CHECK(why == Rejection::out_of_scope);
  trusted = *TrustedKeys::parse(key.public_key().text() + " modules=kernel_");
  why = Rejection::none;
  CHECK(read(why).has_value());
}

TEST_CASE_FIXTURE(Fixture, "an image gives back its blobs, under its signer") {
  write_layout(store(
      1, {make_blob("triton", "b", "second", {}, 5), make_blob("triton", "a", "", "earlier")}));
  trusted.add(key.public_key());
  Rejection why = Rejection::none;
  REQUIRE(read(why));
  REQUIRE(blobs.size() == 2);
  for (const StoreBlob& blob : blobs) {
    const bool first = blob.key == "a";
    CHECK(blob.bytes == (first ? "" : "second"));
    CHECK(blob.signer == (first ? "earlier " : "") + key.public_key().text());
    CHECK(blob.created_s == 0);  // the same store gives the same image
  }
  // A key for some modules signs no blobs.
  trusted = *TrustedKeys::parse(key.public_key().text() + " modules=kernel_");
  CHECK_FALSE(read(why));
  CHECK(why == Rejection::out_of_scope);
}

// fault 375
TEST_CASE_FIXTURE(Fixture, "a signed layer with any other file than a store's is refused whole") {
  trusted.add(key.public_key());
  const std::string plain = store(1);
  SUBCASE("beside the store") { folder.write("store/x", "1"); }
  SUBCASE("in the store") { folder.write("store/v6/writer.lock", ""); }
  SUBCASE("no store") { std::filesystem::remove_all(plain + "/v6"); }
  SUBCASE("no database") { std::filesystem::remove_all(plain + "/v6/gen-0001"); }
  write_layout(plain);
  Rejection why = Rejection::none;
  const auto entries = read(why);
  REQUIRE_FALSE(entries);
  CAPTURE(entries.error().message());
  CHECK_FALSE(exists(folder / "x"));
}

TEST_CASE("a tar header is accepted if it is exactly the one of its name and size") {
  const TarMember member{"v6/gen-0001/store.db", 123'456};
  const std::string header = tar_header(member);
  REQUIRE(header.size() == kTarBlock);
  const auto again = parse_tar_header(header);
  REQUIRE(again);
  CHECK(again->name == member.name);
  CHECK(again->bytes == member.bytes);
  CHECK(parse_tar_header(tar_header({"v6/", 0}))->is_folder());
  for (std::size_t at = 0; at < header.size(); ++at) {
    std::string other = header;
    other[at] = static_cast<char>(other[at] ^ 1);
    CAPTURE(at);
    CHECK_FALSE(parse_tar_header(other));
  }
  CHECK_FALSE(parse_tar_header(std::string(kTarBlock, '\0')));
  CHECK_FALSE(parse_tar_header(header.substr(1)));
  CHECK(tar_padding(0).empty());
  CHECK(tar_padding(1).size() == 511);
  CHECK(tar_padding(512).empty());
}
