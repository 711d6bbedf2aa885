// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/store/cubin_store.hpp"

/// Orders in which front ends list a store's entries.
namespace cukiln::entry_order {

using Before = bool (*)(const EntrySummary& a, const EntrySummary& b);

inline bool latest_used(const EntrySummary& a, const EntrySummary& b) {
  return a.last_used_s > b.last_used_s;
}
inline bool largest(const EntrySummary& a, const EntrySummary& b) {
  return a.cubin_bytes > b.cubin_bytes;
}
inline bool slowest_compiled(const EntrySummary& a, const EntrySummary& b) {
  return a.compile_us > b.compile_us;
}
inline bool most_hits(const EntrySummary& a, const EntrySummary& b) { return a.hits > b.hits; }
inline bool by_name(const EntrySummary& a, const EntrySummary& b) {
  return a.labels.name < b.labels.name;
}

}  // namespace cukiln::entry_order
