// SPDX-License-Identifier: Apache-2.0
// libFuzzer: reads a bundle as `cukiln import` does. Built by scripts/fuzz.
//
// The input is a bundle. After an odd first byte it is payloads of envelopes, each with two bytes
// of length before it, which the target seals into a bundle, with bit 1 of the first byte as blobs
// and else as entries: signed by a trusted key, by an unknown key or unsigned. Rule: a bundle is
// read to its end or rejected with a reason, and every accepted entry and blob is signed by a
// trusted key.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "addons/fleet/bundle.hpp"
#include "addons/fleet/envelope.hpp"
#include "addons/fleet/keys.hpp"
#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/base/serial.hpp"
#include "core/store/blob_name.hpp"
#include "fuzz/require.hpp"
#include "support/store_entries.hpp"

namespace {

using namespace cukiln;
using cukiln::testing::require;

std::string magic_of_a_bundle() {
  const testing::ScratchFolder folder;
  auto bundle = BundleWriter::create(folder / "bundle");
  require(bundle && bundle->finish(), "a bundle can be written");
  return testing::read_all(folder / "bundle").substr(0, 4);
}

struct Builders {
  SecretKey known = *SecretKey::generate("known");
  SecretKey stranger = *SecretKey::generate("stranger");
  TrustedKeys trusted = *TrustedKeys::parse(known.public_key().text());
  StoreEntry entry = testing::make_entry(1, {64, 0, 1, "sm_100a"});
  std::string magic = magic_of_a_bundle();
};

bool opens_blob(ByteView bytes, const OpenRules& rules) {
  Rejection why = Rejection::none;
  const auto blob = open_blob(bytes, rules, why);
  require(bool(blob) == (why == Rejection::none), "what is refused has a reason", name_of(why));
  if (blob) {
    require(rules.trusted == nullptr || blob->signer.find("known:") != std::string::npos,
            "a trusted key signed it", blob->signer);
    require(BlobName::make(blob->kind, blob->key).has_value(), "a blob has its name");
  }
  return blob.has_value();
}

bool opens_entry(ByteView bytes, const OpenRules& rules) {
  Rejection why = Rejection::none;
  const auto entry = open_entry(bytes, rules, why);
  require(bool(entry) == (why == Rejection::none), "what is refused has a reason", name_of(why));
  if (entry) {
    require(rules.trusted == nullptr || entry->signer == "known", "a trusted key signed it",
            entry->signer);
    require(entry->key == cache_key_of(entry->request_canonical, entry->dependencies.canonical()),
            "an entry has its key");
  }
  return entry.has_value();
}

/// As import reads one: nothing of a bundle is taken before all of it was good.
bool read_bundle(const std::string& path, const OpenRules& rules) {
  auto bundle = BundleReader::open(path);
  if (!bundle) {
    return false;
  }
  for (std::uint64_t given = 0;; ++given) {
    const bool is_blob = bundle->is_at_blob();
    const auto bytes = bundle->next();
    if (!bytes) {
      return false;
    }
    if (!*bytes) {
      require(given == std::uint64_t{bundle->count()} + bundle->blobs(),
              "a bundle has as many as it says");
      return true;
    }
    if (!(is_blob ? opens_blob(**bytes, rules) : opens_entry(**bytes, rules))) {
      return false;
    }
  }
}

void try_both(ByteView bytes, const Builders& builders) {
  const UniqueFd file(::memfd_create("bundle", MFD_CLOEXEC));
  require(::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
          "memory takes a file");
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  const bool believed = read_bundle(path, {&builders.trusted, nullptr});
  const bool taken = read_bundle(path, {});
  require(taken || !believed, "who trusts a key takes no more than who trusts all");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Builders builders;
  if (size == 0) {
    return 0;
  }
  ByteView rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    try_both(rest, builders);
    return 0;
  }
  EnvelopeHead head;
  head.name = ObjectName::of(builders.entry.key);
  head.target = builders.entry.labels.target;
  const bool blobs = (data[0] & 2) != 0;
  if (blobs) {
    head.name = ObjectName::of(BlobName::id_of("k", "key"));
    head.target.clear();
  }
  std::uint32_t count = 0;
  SerialWriter envelopes;
  while (rest.size() > 2) {
    std::uint16_t bytes = 0;
    std::memcpy(&bytes, rest.data(), sizeof bytes);
    const SecretKey* const signers[] = {&builders.known, &builders.known, &builders.stranger,
                                        nullptr};
    const SecretKey* signer = signers[bytes >> 14];
    rest.remove_prefix(sizeof bytes);
    const ByteView payload = rest.substr(0, bytes & 0x3fff);
    rest.remove_prefix(payload.size());
    const std::string envelope = seal_envelope(head, payload, signer);
    envelopes.u64(envelope.size()).raw(envelope);
    ++count;
  }
  SerialWriter bundle;  // as BundleWriter does, which waits for a disk
  bundle.raw(builders.magic).u32(blobs ? 0 : count).u32(blobs ? count : 0).raw(envelopes.view());
  try_both(bundle.view(), builders);
  return 0;
}
