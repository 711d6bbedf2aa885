// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "addons/daemon/ops/ops_source.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

// The bodies of /api/…, from which the page is drawn. Long texts are truncated, and bytes that are
// not UTF-8 are replaced, because users choose names, flags and logs.

/// The daemon, its compiles, the store's size and counters, and the remote stores.
std::string status_json(const wire::DaemonSnapshot& state, TieredStore& store,
                        const RemoteReport& remotes);

/// Which entries `entries_json` lists, and in which order.
struct EntryQuery {
  std::string text;    ///< part of the name, source, flags or a kernel's name, or start of the key
  std::string target;  ///< empty: all
  std::string origin;  ///< `compiled`, `imported`, `remote`; empty: all
  std::string sort;    ///< `used`, `size`, `time`, `hits`, `name`; empty: used
  std::size_t offset = 0;
  std::size_t limit = 100;  ///< at most 500
};
/// Lists one page of the inventory. Errors: invalid_argument (unknown order), the store's.
Result<std::string> entries_json(TieredStore& store, const EntryQuery& query);

/// Describes one entry, without its source and its cubin. Errors: not_found, invalid_argument, the
/// store's.
Result<std::string> entry_json(TieredStore& store, const std::string& key);

}  // namespace cukiln::ops
