// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/context.hpp"
#include "core/store/object_name.hpp"
#include "core/store/remote_report.hpp"

namespace cukiln::cli {

/// What became of the uploads of a command to the remote stores.
struct Uploads {
  std::uint64_t acknowledged = 0;   ///< objects that every server has taken
  std::uint64_t lost = 0;           ///< that a server has not
  std::uint64_t kept = 0;           ///< that are of no use elsewhere
  std::uint64_t already_there = 0;  ///< of `names`, that were acknowledged before
  std::vector<RemoteReport::NotUploaded> reasons;
};

/// Uploads objects of the store that a remote store has not acknowledged, and waits for all uploads
/// of this process: in vain for 30 s at most, or for 5 s unless they are the command's `purpose`.
/// Prints why each lost one was, as errors if they are its purpose. Does nothing on a machine
/// that writes to none. `again`: also uploads what was acknowledged.
Uploads upload(Context& context, const std::vector<ObjectName>& names, bool is_purpose,
               bool again = false);

/// Returns `uploads: 2 acknowledged, 1 lost: …` and a line's end; empty if there was none.
std::string upload_line(const Uploads& uploads);
Json json_of(const Uploads& uploads);

}  // namespace cukiln::cli
