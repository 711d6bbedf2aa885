// SPDX-License-Identifier: Apache-2.0
#include "core/base/machine.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/file.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxTableBytes = 1 << 20;  // /proc/self/mountinfo of a host with many mounts
constexpr std::size_t kMaxValueBytes = 256;
constexpr int kMaxDepth = 64;
constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

/// Reads at most `max_bytes` of a file whose size is not known, as those of /proc and /sys. Empty
/// if it cannot be read.
std::string read_start(const std::string& path, std::size_t max_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text;
  while (file && text.size() < max_bytes) {
    constexpr std::size_t kChunk = 4096;
    const std::size_t before = text.size();
    text.resize(std::min(before + kChunk, max_bytes));
    const ssize_t got = ::read(file.get(), text.data() + before, text.size() - before);
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) {
      break;
    }
  }
  return text;
}

std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return taken;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (take_until(list, ',') == word) {
      return true;
    }
  }
  return false;
}

/// Parses a whole number above zero; `max`, `-1` and everything else is none.
std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size();
  return is_whole && value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> number_at(const std::string& path) {
  const std::string text = read_start(path, kMaxValueBytes);
  std::string_view rest = text;
  return number_in(take_until(rest, '\n'));
}

/// The folders of one control group, from its own up to the root of the mount.
using Folders = std::vector<std::string>;

/// The groups in which this process is. In a hierarchy of version 1 a controller has a mount of its
/// own; in version 2 all have one.
struct Groups {
  Folders unified, cpu, memory;
};

/// Paths in mountinfo have space, tab, newline and backslash as `\040`.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '\\' && i + 3 < text.size() &&
        text.substr(i + 1, 3).find_first_not_of("01234567") == std::string_view::npos;
    if (is_escape) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// A line of mountinfo: `36 35 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`.
struct Mount {
  std::string root, point;
  std::string_view type, options;

  static Mount of(std::string_view line) {
    Mount mount;
    for (int field = 0; field < 3; ++field) {
      take_until(line, ' ');
    }
    mount.root = unescaped(take_until(line, ' '));
    mount.point = unescaped(take_until(line, ' '));
    while (!line.empty() && take_until(line, ' ') != "-") {
    }
    mount.type = take_until(line, ' ');
    take_until(line, ' ');
    mount.options = line;
    return mount;
  }

  /// The folders from `group` up to the mount's. A group that is not below the mount's root, as in
  /// another cgroup namespace, is not visible: only the mount's own folder is read then.
  Folders folders(const std::string& before, std::string_view group) const {
    const std::string top = before + point;
    const bool is_visible = group.find("/..") == std::string_view::npos && group.starts_with('/') &&
                            (root == "/" || is_within(group, root));
    std::string folder = top;
    if (is_visible) {
      folder += group.substr(root == "/" ? 0 : root.size());
    }
    while (folder.size() > top.size() && folder.back() == '/') {
      folder.pop_back();
    }
    Folders all;
    for (int depth = 0; depth < kMaxDepth && folder.size() > top.size(); ++depth) {
      all.push_back(folder);
      folder.resize(folder.rfind('/'));
    }
    all.push_back(top);
    return all;
  }
};

Groups groups_of_process(const std::string& root) {
  const std::string memberships = read_start(root + "/proc/self/cgroup", kMaxTableBytes);
  const auto group_of = [&](std::string_view controller) -> std::optional<std::string> {
    std::string_view rest = memberships;
    while (!rest.empty()) {
      std::string_view line = take_until(rest, '\n');
      take_until(line, ':');
      const std::string_view controllers = take_until(line, ':');
      if (controller.empty() ? controllers.empty() : has_word(controllers, controller)) {
        return std::string(line);
      }
    }
    return std::nullopt;
  };
  const std::string mounts = read_start(root + "/proc/self/mountinfo", kMaxTableBytes);
  Groups groups;
  std::string_view rest = mounts;
  while (!rest.empty()) {
    const Mount mount = Mount::of(take_until(rest, '\n'));
    const auto add = [&](std::string_view controller, Folders& folders) {
      const auto group = group_of(controller);
      if (folders.empty() && group) {
        folders = mount.folders(root, *group);
      }
    };
    if (mount.type == "cgroup2") {
      add({}, groups.unified);
    } else if (mount.type == "cgroup") {
      for (const auto& [controller, folders] :
           {std::pair("cpu", &groups.cpu), std::pair("memory", &groups.memory)}) {
        if (has_word(mount.options, controller)) {
          add(controller, *folders);
        }
      }
    }
  }
  return groups;
}

/// `50000 100000`: microseconds of processor time in each period. Returns 1 for half a processor.
std::optional<unsigned> cores_of(std::optional<std::uint64_t> quota,
                                 std::optional<std::uint64_t> period) {
  if (!quota || !period) {
    return std::nullopt;
  }
  constexpr std::uint64_t kMaxCores = 1 << 20;
  const std::uint64_t cores = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return static_cast<unsigned>(std::min(cores, kMaxCores));
}

std::optional<unsigned> unified_cores(const std::string& file) {
  const std::string text = read_start(file, kMaxValueBytes);
  std::string_view rest = text;
  std::string_view line = take_until(rest, '\n');
  const auto quota = number_in(take_until(line, ' '));
  return cores_of(quota, number_in(line));
}

unsigned affine_cores() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&allowed)));
  }
  return std::max(1U, std::thread::hardware_concurrency());  // more than cpu_set_t holds
}

/// What the kernel estimates that programs may take without swapping; before Linux 3.14 all memory.
std::uint64_t available_memory(const std::string& root) {
  const std::string text = read_start(root + "/proc/meminfo", kMaxTableBytes);
  for (const std::string_view name : {"MemAvailable:", "MemTotal:"}) {
    std::string_view rest = text;
    while (!rest.empty()) {
      std::string_view line = take_until(rest, '\n');
      if (!line.starts_with(name)) {
        continue;
      }
      line.remove_prefix(name.size());
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      const auto kib = number_in(take_until(line, ' '));
      if (kib && *kib < kNoLimit / 1024) {
        return *kib * 1024;
      }
    }
  }
  return 0;
}

class Limits {
 public:
  explicit Limits(Machine& machine) : machine_(machine) {}

  void cores(std::optional<unsigned> limit, const std::string& file) {
    if (limit && *limit < machine_.cores) {
      machine_.cores = std::max(1U, *limit);
      machine_.cores_from = file;
    }
  }
  void memory(std::optional<std::uint64_t> limit, const std::string& file) {
    if (limit && (machine_.memory_bytes == 0 || *limit < machine_.memory_bytes)) {
      machine_.memory_bytes = *limit;
      machine_.memory_from = file;
    }
  }

 private:
  Machine& machine_;
};

}  // namespace

Machine measure_machine(const std::string& root) {
  Machine machine;
  machine.cores = affine_cores();
  machine.cores_from = "affinity";
  machine.memory_bytes = available_memory(root);
  machine.memory_from = machine.memory_bytes == 0 ? "" : "available memory";
  Limits limits(machine);
  const Groups groups = groups_of_process(root);
  for (const std::string& folder : groups.unified) {
    const std::string quota = join_path(folder, "cpu.max");
    limits.cores(unified_cores(quota), quota);
    const std::string limit = join_path(folder, "memory.max");
    limits.memory(number_at(limit), limit);
  }
  for (const std::string& folder : groups.cpu) {
    const std::string quota = join_path(folder, "cpu.cfs_quota_us");
    limits.cores(cores_of(number_at(quota), number_at(join_path(folder, "cpu.cfs_period_us"))),
                 quota);
  }
  for (const std::string& folder : groups.memory) {
    const std::string limit = join_path(folder, "memory.limit_in_bytes");
    limits.memory(number_at(limit), limit);
  }
  return machine;
}

}  // namespace cukiln
