#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

namespace cukiln {

/// What the machine says of a path, injected so that tests can have foreign owners and network file
/// systems without root and without a server.
class HostFacts {
 public:
  virtual ~HostFacts() = default;
  /// Like lstat(2): 0 or an errno value.
  virtual int status(const std::string& path, struct stat* out) const;
  /// statfs(2)'s f_type; 0 when it cannot be told.
  virtual long file_system_type(const std::string& path) const;
  virtual uid_t user() const;

  static const HostFacts& system() noexcept;
};

/// The name of a file system on which SQLite's WAL does not work (its shared memory is not shared,
/// or its locks are not locks); nullptr for any other.
const char* network_file_system_name(long type) noexcept;

}  // namespace cukiln
