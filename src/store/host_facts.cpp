#include "store/host_facts.hpp"

#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

namespace cukiln {

int HostFacts::status(const std::string& path, struct stat* out) const {
  return ::lstat(path.c_str(), out) == 0 ? 0 : errno;
}

long HostFacts::file_system_type(const std::string& path) const {
  struct statfs facts {};
  return ::statfs(path.c_str(), &facts) == 0 ? static_cast<long>(facts.f_type) : 0;
}

uid_t HostFacts::user() const { return ::geteuid(); }

const HostFacts& HostFacts::system() noexcept {
  // Never destroyed: threads may ask while the process exits.
  alignas(HostFacts) static unsigned char storage[sizeof(HostFacts)];
  static const HostFacts* const facts = new (storage) HostFacts;
  return *facts;
}

const char* network_file_system_name(long type) noexcept {
  struct Known {
    unsigned long magic;
    const char* name;
  };
  // Not overlay: a store in a container's writable layer works.
  static constexpr Known kKnown[] = {
      {0x6969, "NFS"},      {0x517B, "SMB"},       {0xFF534D42, "CIFS"}, {0xFE534D42, "SMB2"},
      {0x65735546, "FUSE"}, {0x01021997, "9p"},    {0x00C36400, "Ceph"}, {0x0BD00BD0, "Lustre"},
      {0x47504653, "GPFS"}, {0x5346414F, "AFS"},   {0x73757245, "Coda"}, {0x19830326, "BeeGFS"},
      {0x01161970, "GFS2"}, {0x7461636F, "OCFS2"},
  };
  const unsigned long asked = static_cast<unsigned long>(type) & 0xFFFFFFFFul;
  for (const Known& known : kKnown) {
    if (known.magic == asked) {
      return known.name;
    }
  }
  return nullptr;
}

}  // namespace cukiln
