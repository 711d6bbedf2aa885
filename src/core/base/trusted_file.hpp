// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>

#include "core/base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The users, besides root, who may own a trusted file.
struct TrustedOwners {
  uid_t user = 0;     ///< the effective user of this process
  uid_t library = 0;  ///< the owner of the file that this code was loaded from
};

/// The absolute path of the library or executable that holds this code, also after the process has
/// changed its working directory. Errors: not_found.
Result<std::string> path_of_this_library();

/// Whether a file of accounts, as /etc/passwd, has one of another user with this primary group.
bool has_other_account(const std::string& accounts, uid_t owner, gid_t group);

/// Why another user could have changed a file or folder of this status; empty if none could.
/// `private_group`: its group has no member but its owner.
std::string why_not_trusted(const struct stat& status, const TrustedOwners& owners,
                            bool private_group);

/// Opens a regular file whose content is trusted: a program to run, a configuration file, a list of
/// trusted keys. Refuses a file that another user could have written, that is, a file that
/// - is writable by everybody, by a group other than its owner's private one (the owner's primary
///   group, named as the owner, without other members), or by others through an access-control
///   list;
/// - belongs to neither root, nor this user, nor the owner of the loaded library;
/// - lies in a folder that others may write and that is not sticky.
/// The opened descriptor is checked, so that replacing the file afterwards has no effect. Folders
/// further above are not checked: a user who can write one of them can only place files of his own
/// there, which are refused.
///
/// `what` names the file in errors: `the configuration file`. `flags` is O_RDONLY, or O_PATH for a
/// program. Errors: not_found, io; invalid_argument if refused, with the reason and the remedy.
Result<UniqueFd> open_trusted_file(const std::string& path, const char* what, int flags);

/// Opens a trusted file and reads all of it. Errors: as open_trusted_file; also invalid_argument if
/// it has more than `max_bytes`.
Result<std::string> read_trusted_file(const std::string& path, const char* what,
                                      std::size_t max_bytes);

}  // namespace cukiln
