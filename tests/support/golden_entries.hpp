// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/key/stat_cache.hpp"
#include "core/store/store_blob.hpp"
#include "support/store_entries.hpp"

namespace cukiln::testing {

/// The entries in cache/golden. They change with the number of the format only.
inline std::vector<StoreEntry> golden_entries() {
  std::vector<StoreEntry> entries;
  entries.push_back(make_entry(1, {3000}));
  entries.push_back(make_entry(1, {3000, 1}));  // another dependency set of the same request
  entries.push_back(make_entry(2, {12'000, 0, 40, "sm_90a"}));
  entries.back().peak_bytes = 300 << 20;
  StoreEntry imported = make_entry(3, {500, 0, 0, "sm_80"});
  imported.origin = Origin::imported;
  imported.signer = "fleet-1";
  imported.cubin.log.clear();
  imported.source_text.clear();
  entries.push_back(imported);
  entries.push_back(make_entry(4, {2000}));
  return entries;
}

inline StoreBlob golden_blob() { return make_blob("test", "golden", std::string(3000, 'b')); }

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
