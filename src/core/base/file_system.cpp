// SPDX-License-Identifier: Apache-2.0
#include "core/base/file_system.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <span>
#include <string_view>

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
// Everything else may repeat inodes and times from one image to the next, as squashfs and EROFS do,
// leave them when a mapping is written, as tmpfs does, or is not known.
constexpr Known kReliable[] = {{0xEF53, "ext4"},     {0x58465342, "XFS"}, {0x9123683E, "Btrfs"},
                               {0xF2F52010, "F2FS"}, {0x2FC12FC1, "ZFS"}, {0xCA451A4E, "bcachefs"}};
constexpr unsigned kUniqueMountId = 0x4000;  // STATX_MNT_ID_UNIQUE, since Linux 6.8
constexpr int kMaxStackedLayers = 4;         // the kernel stacks two file systems

const char* name_in(std::span<const Known> list, long type) noexcept {
  const unsigned long magic = static_cast<unsigned long>(type) & 0xFFFFFFFFul;
  for (const Known& known : list) {
    if (known.magic == magic) {
      return known.name;
    }
  }
  return nullptr;
}

long type_of(const struct statfs& facts) noexcept { return static_cast<long>(facts.f_type); }

/// The options of a mount's file system from mountinfo, `rw,lowerdir=/a:/b,upperdir=/c`. Nothing if
/// the mount is not visible to this process.
std::optional<std::string> options_of_mount(std::uint64_t id) {
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string wanted = std::to_string(id) + " ";
  for (std::string line; std::getline(mounts, line);) {
    if (line.starts_with(wanted)) {
      return line.substr(line.rfind(' ') + 1);
    }
  }
  return std::nullopt;
}

std::string_view take_until(char separator, std::string_view& rest) noexcept {
  const std::string_view part = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  return part;
}

bool is_reliable(const std::string& path, int depth);

/// Whether stamps are reliable in all layers of an overlay. A layer of another mount namespace, as
/// in most containers, is not visible. Neither is one whose path has an escaped character.
bool layers_are_reliable(std::string_view options, int depth) {
  bool has_layers = false;
  while (!options.empty()) {
    std::string_view value = take_until(',', options);
    const std::string_view name = take_until('=', value);
    if (name != "lowerdir" && name != "lowerdir+" && name != "datadir+" && name != "upperdir") {
      continue;
    }
    while (!value.empty()) {
      const std::string layer(take_until(':', value));
      if (layer.empty()) {
        continue;  // `::` precedes layers that have data only
      }
      if (layer.front() != '/' || layer.find('\\') != std::string::npos ||
          !is_reliable(layer, depth + 1)) {
        return false;
      }
      has_layers = true;
    }
  }
  return has_layers;
}

bool is_reliable(const std::string& path, int depth) {
  // O_PATH: the mount stays while the descriptor is open, so that all calls are about one.
  const UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct statfs facts {};
  if (!fd || depth > kMaxStackedLayers || ::fstatfs(fd.get(), &facts) != 0) {
    return false;
  }
  const bool is_overlay = facts.f_type == OVERLAYFS_SUPER_MAGIC;
  if (!is_overlay && name_in(kReliable, type_of(facts)) == nullptr) {
    return false;
  }
  const bool is_read_only = (facts.f_flags & ST_RDONLY) != 0;
  if (!is_overlay && !is_read_only) {
    return true;
  }
  // What mountinfo says is worth its price only if the result can be kept by the mount's number.
  struct statx now {};
  if (::statx(fd.get(), "", AT_EMPTY_PATH, kUniqueMountId, &now) != 0 ||
      (now.stx_mask & kUniqueMountId) == 0 ||
      ::statx(fd.get(), "", AT_EMPTY_PATH, STATX_MNT_ID, &now) != 0) {
    return false;
  }
  // `ro` is the file system's own: a bind mount that is read-only shows what others write.
  const auto options = options_of_mount(now.stx_mnt_id);
  return options && *options != "ro" && !options->starts_with("ro,") &&
         (!is_overlay || layers_are_reliable(*options, depth));
}

}  // namespace

std::optional<FileStatus> status_of(const std::string& path) noexcept {
  struct statx now {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_BASIC_STATS | kUniqueMountId, &now) == 0) {
    struct stat status {};
    status.st_dev = makedev(now.stx_dev_major, now.stx_dev_minor);
    status.st_ino = now.stx_ino;
    status.st_size = static_cast<off_t>(now.stx_size);
    status.st_mtim = {now.stx_mtime.tv_sec, now.stx_mtime.tv_nsec};
    status.st_ctim = {now.stx_ctime.tv_sec, now.stx_ctime.tv_nsec};
    return FileStatus{stamp_of(status), now.stx_mode,
                      (now.stx_mask & kUniqueMountId) != 0 ? now.stx_mnt_id : 0};
  }
  struct stat status {};
  if (errno != EPERM || ::stat(path.c_str(), &status) != 0) {  // EPERM: a filter of system calls
    return std::nullopt;
  }
  return FileStatus{stamp_of(status), status.st_mode, 0};
}

long file_system_type(const std::string& path) noexcept {
  struct statfs facts {};
  return ::statfs(path.c_str(), &facts) == 0 ? type_of(facts) : 0;
}

const char* network_file_system_name(long type) noexcept { return name_in(kNetwork, type); }

bool stamps_are_reliable(const std::string& path) { return is_reliable(path, 0); }

}  // namespace cukiln
