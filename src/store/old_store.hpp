// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace cukiln {

/// Removes the store of format 1 in `directory`, the folder `v1`, if no process has it open and
/// none of its files was written since `unused_since_s` (seconds since 1970; a process writes which
/// entries it used when it closes the store). Removes only files that format 1 names, and folders
/// that are empty then. Does not follow symbolic links, leaves files of other users and read-only
/// ones in place, and does not open the database.
/// Returns the bytes of the files that were removed, or with `dry_run` would be.
std::uint64_t remove_old_store(const std::string& directory, uid_t user,
                               std::int64_t unused_since_s, bool dry_run);

}  // namespace cukiln
