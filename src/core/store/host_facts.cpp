// SPDX-License-Identifier: Apache-2.0
#include "core/store/host_facts.hpp"

#include <unistd.h>

#include <cerrno>

#include "core/base/file_system.hpp"

namespace cukiln {

int HostFacts::status(const std::string& path, struct stat* out) const {
  return ::lstat(path.c_str(), out) == 0 ? 0 : errno;
}

long HostFacts::file_system_type(const std::string& path) const {
  return cukiln::file_system_type(path);
}

uid_t HostFacts::user() const { return ::geteuid(); }

const HostFacts& HostFacts::system() noexcept {
  // Never destroyed: threads may use it while the process exits.
  alignas(HostFacts) static unsigned char storage[sizeof(HostFacts)];
  static const HostFacts* const facts = new (storage) HostFacts;
  return *facts;
}

}  // namespace cukiln
