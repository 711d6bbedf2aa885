// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cukiln {

/// What people want to know of an entry; none of it is part of the key.
struct EntryLabels {
  std::string name;      ///< the module's
  std::string source;    ///< the first source's file name (no folder: rows hold no real path)
  std::string target;    ///< `sm_100a`
  std::string flags;     ///< the arguments, joined by a space, and what was dropped of them
  std::string compiler;  ///< `nvrtc 13.0.88`
};

}  // namespace cukiln
