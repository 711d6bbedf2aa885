// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/serial.hpp"
#include "key/stat_cache.hpp"
#include "support/store_entries.hpp"

namespace cukiln::testing {

/// make_entry with the request spelt out as key format 2 encodes it, because a later key format
/// changes requests and never stored entries.
inline StoreEntry golden_entry(std::uint64_t number, const EntryShape& shape) {
  StoreEntry entry = make_entry(number, shape);
  const Target target = *Target::parse(shape.target);
  const std::string text = entry.source_text;
  const ContentHash source = hash_of(text);
  const ContentHash compiler = hash_of("nvrtc");
  SerialWriter out;
  out.bytes("cukiln request").u32(2);
  out.u32(1).bytes("/cukiln/src/" + entry.labels.source).u64(text.size()).raw(view_of(source));
  out.u32(2).bytes("--gpu-architecture=" + shape.target).bytes("-std=c++17");
  out.u32(0);
  out.u32(static_cast<std::uint32_t>(target.capability))
      .u8(static_cast<std::uint8_t>(target.suffix));
  out.bytes("13.0.88").raw(view_of(compiler));
  entry.request_canonical = out.take();
  entry.request = CompileRequest::digest_of(entry.request_canonical);
  entry.key = cache_key_of(entry.request_canonical, entry.dependencies.canonical());
  return entry;
}

/// The entries in cache/golden/v2, as the first version with format 2 wrote them. They never
/// change.
inline std::vector<StoreEntry> golden_entries() {
  std::vector<StoreEntry> entries;
  entries.push_back(golden_entry(1, {3000}));
  entries.push_back(golden_entry(1, {3000, 1}));  // another dependency set of the same request
  entries.push_back(golden_entry(2, {12'000, 0, 40, "sm_90a"}));
  StoreEntry imported = golden_entry(3, {500, 0, 0, "sm_80"});
  imported.origin = Origin::imported;
  imported.signer = "fleet-1";
  imported.cubin.log.clear();
  imported.source_text.clear();
  entries.push_back(imported);
  entries.push_back(golden_entry(4, {2000}));
  return entries;
}

inline StatRecord golden_stat_record() {
  StatRecord record;
  record.path = "/usr/local/cuda/include/cuda_fp16.h";
  record.stamp = {2049, 131'072, 150'000, 1'690'000'000'123'456'789, 1'690'000'001'123'456'789};
  record.digest = hash_of("cuda_fp16.h");
  record.note = "13.0.88";
  record.recorded_ns = 1'700'000'000'000'000'000;
  return record;
}

}  // namespace cukiln::testing
