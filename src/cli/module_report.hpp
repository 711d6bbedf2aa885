// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cli/context.hpp"
#include "cli/table.hpp"

#include <cukiln/kernel_info.hpp>
#include <cukiln/loader.hpp>

namespace cukiln::cli {

/// What `compile` and `preload` say of the modules they made: a table, the errors with the
/// compiler's logs on stderr, notes; or one JSON document. `fills_store`: that is all that was
/// asked for, so that a store which refused a result is Exit::store, where nothing is worse.
Exit tell(Context& context, const PreloadReport& report, bool fills_store);

/// `32 registers`, `2.0 KiB shared`, …: a row a kernel, below the line of its module.
class KernelRows {
 public:
  KernelRows();
  void add(const KernelInfo& kernel);
  void add_none();  ///< a row that says so
  /// The lines in the order of the calls, aligned with each other.
  std::vector<std::string> lines(const Terminal& terminal) const;

 private:
  Table table_;
};

}  // namespace cukiln::cli
