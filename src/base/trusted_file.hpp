// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Who may own a file that is believed, besides root.
struct TrustedOwners {
  uid_t user = 0;     ///< the effective user of this process
  uid_t library = 0;  ///< the owner of the file that this code was loaded from
};

/// The path of the library, or executable, that holds this code: absolute, and right wherever the
/// process has moved since it was loaded. Errors: not_found.
Result<std::string> path_of_this_library();

/// Why a file or folder of this status could have been changed by another user; empty: it could
/// not. `private_group`: its group has no member but its owner.
std::string why_not_trusted(const struct stat& status, const TrustedOwners& owners,
                            bool private_group);

/// Opens a regular file that is believed: a program that is run, a configuration, a list of trusted
/// keys. Refused is what another user could have written: a file that
/// - everybody may write, or a group that is not its owner's private one (named as the owner, his
///   primary group, without other members), or others by an access-control list;
/// - belongs to neither root, nor this user, nor the owner of the loaded library;
/// - lies in a folder that others may write and that is not sticky.
/// All of it is judged of the opened file: what takes its place afterwards is not what was opened.
/// Folders further above are not judged: whoever may write one can put a file of his own there,
/// which its owner gives away.
///
/// `what` names it in errors, `the configuration file`. `flags`: O_RDONLY, or O_PATH for a program.
/// Errors: not_found, io; invalid_argument: refused, with the reason and what to do.
Result<UniqueFd> open_trusted_file(const std::string& path, const char* what, int flags);

/// The same, read whole. Errors: also invalid_argument where it has more than `max_bytes`.
Result<std::string> read_trusted_file(const std::string& path, const char* what,
                                      std::size_t max_bytes);

}  // namespace cukiln
