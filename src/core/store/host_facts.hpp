// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "core/base/file_system.hpp"

namespace cukiln {

/// Owner, mode and file system of paths. Injected, so that tests can have foreign owners and
/// network file systems without root and without a server.
class HostFacts {
 public:
  virtual ~HostFacts() = default;
  /// Like lstat(2): 0 or an errno value.
  virtual int status(const std::string& path, struct stat* out) const;
  /// statfs(2)'s f_type; 0 if statfs fails.
  virtual long file_system_type(const std::string& path) const;
  virtual uid_t user() const;

  static const HostFacts& system() noexcept;
};

}  // namespace cukiln
