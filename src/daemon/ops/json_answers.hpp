// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/ops/ops_source.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

/// The bodies of /api/…, what the page shows. Texts that came from kernels are cut where they are
/// long, and bytes that are no UTF-8 are replaced.

/// The daemon, its compiles, the store's size and counters, the remotes.
std::string status_json(const wire::DaemonSnapshot& state, TieredStore& store,
                        const RemoteReport& remotes);

struct EntryQuery {
  std::string text;    ///< in the name, source, flags or a kernel, or how the key begins
  std::string target;  ///< empty: all
  std::string origin;  ///< `compiled`, `imported`, `remote`; empty: all
  std::string sort;    ///< `used`, `size`, `time`, `hits`, `name`; empty: used
  std::size_t offset = 0;
  std::size_t limit = 100;  ///< 500 at most
};
/// A page of the inventory. Errors: invalid_argument (no such order), the store's.
Result<std::string> entries_json(TieredStore& store, const EntryQuery& query);

/// All of one entry but its source and its bytes. Errors: not_found, invalid_argument, the store's.
Result<std::string> entry_json(TieredStore& store, const std::string& key);

}  // namespace cukiln::ops
