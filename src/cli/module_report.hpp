// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/context.hpp"
#include "cli/table.hpp"

#include <cukiln/kernel_info.hpp>
#include <cukiln/loader.hpp>

namespace cukiln::cli {

/// Prints the result of `compile` and `preload`: a table or a JSON document on stdout, errors with
/// the compiler's logs, warnings and notes on stderr. Returns the exit code. `fills_store`: storing
/// was the only purpose, so that a store that refused a module, or an upload that was lost, gives
/// Exit::store unless another code takes precedence. `more`: further fields of the document.
Exit print_report(Context& context, const PreloadReport& report, bool fills_store,
                  const Json& more = Json::object());

/// Returns `find 12 ms, hash 3 ms, compile 1.83 s`, without phases that there were not.
std::string time_line(const PreloadPhases& phases, std::size_t width);

/// The rows of kernels below their modules: `32 regs`, `2.0 KiB shared`, ….
class KernelRows {
 public:
  KernelRows();
  void add(const KernelInfo& kernel);
  void add(const VariableInfo& variable);
  /// Adds a row for a module without kernels.
  void add_none();
  /// Returns a line for each call, in their order, all aligned.
  std::vector<std::string> lines(const Terminal& terminal) const;

 private:
  Table table_;
};

}  // namespace cukiln::cli
