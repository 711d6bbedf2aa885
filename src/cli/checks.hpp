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
  std::string detail;            ///< what was found
  std::string advice;            ///< what to do; with Status::ok a note
  bool needed = true;            ///< false: cukiln works without it
  Json fields = Json::object();  ///< further fields of its element in --json
};
const char* name_of(Check::Status status) noexcept;

/// Checks NVRTC, its headers, the compile worker and its protections. Like the others, appends its
/// results to `checks`.
void check_compiler(const LoaderOptions& options, std::vector<Check>& checks);
/// Lists how many compiles run concurrently, and in how much memory.
void check_limits(const LoaderOptions& options, std::vector<Check>& checks);
/// Checks the driver and its devices.
void check_driver(const LoaderOptions& options, std::vector<Check>& checks);
/// Checks whether cukilnd answers. A daemon that is not running is no error, unless it is required.
void check_daemon(const StoreOptions& options, std::vector<Check>& checks);
/// Checks the user's store, the system store and SQLite.
void check_store(Context& context, std::vector<Check>& checks);
/// Sends one request to each remote store.
void check_remote(Context& context, std::vector<Check>& checks);

}  // namespace cukiln::cli
