// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace cukiln {

/// Removes the store of format 1 that lies in `directory` beside ours, the folder `v1`, once no
/// process has it open and none of its files was written since `unused_since_s` (seconds since
/// 1970; a process writes which entries it used when it closes the store). Only files that format 1
/// names go, and folders that are empty then; symbolic links are not followed, and what is not the
/// user's own or may not be written stays. The database is not opened.
/// Returns the bytes of the files that went, or that would go (`dry_run`).
std::uint64_t remove_old_store(const std::string& directory, uid_t user,
                               std::int64_t unused_since_s, bool dry_run);

}  // namespace cukiln
