// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cukiln {

/// Descriptions of an entry for `ls` and `show`. None of them is part of the key.
struct EntryLabels {
  std::string name;      ///< the module's name
  std::string source;    ///< the first source's file name; no folder, as rows hold no real path
  std::string target;    ///< `sm_100a`
  std::string flags;     ///< the arguments joined by spaces, and the flags that were dropped
  std::string compiler;  ///< `nvrtc 13.0.88`
};

}  // namespace cukiln
