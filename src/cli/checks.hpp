// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/context.hpp"

namespace cukiln::cli {

/// One line of `doctor`.
struct Check {
  enum class Status { ok, missing, wrong };
  std::string name;
  Status status = Status::ok;
  std::string detail;  ///< what was found
  std::string advice;  ///< what to do; with `ok`: what is good to know
  bool needed = true;  ///< false: cukiln works without it
};
const char* name_of(Check::Status status) noexcept;

/// NVRTC, its headers, and the compile worker.
void check_compiler(const LoaderOptions& options, std::vector<Check>& checks);
/// The driver and the devices it shows.
void check_driver(const LoaderOptions& options, std::vector<Check>& checks);
/// The user's store, the system's, and SQLite.
/// Whether cukilnd answers; that none does is fine.
void check_daemon(const StoreOptions& options, std::vector<Check>& checks);
void check_store(Context& context, std::vector<Check>& checks);
/// The fleet's stores: each is asked for something.
void check_remote(Context& context, std::vector<Check>& checks);

}  // namespace cukiln::cli
