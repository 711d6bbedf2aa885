// SPDX-License-Identifier: Apache-2.0
#include "base/file_system.hpp"

#include <sys/vfs.h>

#include <cstddef>
#include <span>

namespace cukiln {

namespace {

struct Known {
  unsigned long magic;
  const char* name;
};

// Without overlayfs: a store in a container's writable layer works.
constexpr Known kNetwork[] = {
    {0x6969, "NFS"},       {0x517B, "SMB"},          {0xFF534D42, "CIFS"}, {0xFE534D42, "SMB2"},
    {0x65735546, "FUSE"},  {0x01021997, "9p"},       {0x00C36400, "Ceph"}, {0x0BD00BD0, "Lustre"},
    {0x47504653, "GPFS"},  {0x5346414F, "AFS"},      {0x73757245, "Coda"}, {0x19830326, "BeeGFS"},
    {0x01161970, "GFS2"},  {0x7461636F, "OCFS2"},    {0x6B414653, "AFS"},  {0x786F4256, "vboxsf"},
    {0xAAD7AAEA, "PanFS"}, {0x20030528, "OrangeFS"}, {0xBACBACBC, "HGFS"},
};
constexpr Known kMemory[] = {{0x01021994, "tmpfs"}, {0x858458F6, "ramfs"}};
constexpr Known kImages[] = {{0x73717368, "squashfs"}, {0xE0F5E1E2, "EROFS"},  {0x9660, "ISO 9660"},
                             {0x15013346, "UDF"},      {0x28CD3D45, "cramfs"}, {0x7275, "romfs"}};

const char* name_in(std::span<const Known> list, long type) noexcept {
  const unsigned long magic = static_cast<unsigned long>(type) & 0xFFFFFFFFul;
  for (const Known& known : list) {
    if (known.magic == magic) {
      return known.name;
    }
  }
  return nullptr;
}

}  // namespace

long file_system_type(const std::string& path) noexcept {
  struct statfs facts {};
  return ::statfs(path.c_str(), &facts) == 0 ? static_cast<long>(facts.f_type) : 0;
}

const char* network_file_system_name(long type) noexcept { return name_in(kNetwork, type); }

bool stamps_are_reliable(long type) noexcept {
  return type != 0 && name_in(kNetwork, type) == nullptr && name_in(kMemory, type) == nullptr &&
         name_in(kImages, type) == nullptr;
}

}  // namespace cukiln
