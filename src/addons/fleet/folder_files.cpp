// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/folder_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "addons/fleet/envelope.hpp"
#include "core/base/cache_format.hpp"
#include "core/base/clock.hpp"
#include "core/base/result.hpp"
#include "core/base/trusted_file.hpp"

namespace cukiln {

namespace {

constexpr const char* kTop = "cukiln" CUKILN_CACHE_FORMAT;
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::size_t kHexDigits = 64;
constexpr std::size_t kMaxListed = 4096;
constexpr std::uint64_t kMaxPartsBytes = 1 << 20;
constexpr int kAttempts = 3;  // after ESTALE, or after a collection removed an empty folder
constexpr std::int64_t kRefreshAfterS = 24 * 3600;
constexpr std::int64_t kGraceS = 3600;

bool is_hex(std::string_view text) noexcept {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool is_object_name(std::string_view name) noexcept {
  return name.size() == kHexDigits && is_hex(name);
}
/// `<set>.<signer>`
bool is_part_name(std::string_view name) noexcept {
  return name.size() > kHexDigits + 1 && name[kHexDigits] == '.' &&
         is_hex(name.substr(0, kHexDigits)) && is_hex(name.substr(kHexDigits + 1));
}

std::string temporary_name() {
  std::array<std::uint8_t, 12> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::snprintf(reinterpret_cast<char*>(bytes.data()), bytes.size(), "%d", ::getpid());
  }
  return std::string(kTemporary) + hex_of_bytes(bytes.data(), bytes.size());
}

/// Lists a folder, up to `max_names`. Returns 0, or the errno value of why there are not all.
int list(const UniqueFd& folder, std::size_t max_names, std::vector<std::string>& names) {
  // A description of its own: duplicates share the position.
  UniqueFd fd(::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const opened = fd ? ::fdopendir(fd.get()) : nullptr;
  if (opened == nullptr) {
    return errno;
  }
  fd.release();
  const std::unique_ptr<DIR, int (*)(DIR*)> closed(opened, ::closedir);
  while (names.size() < max_names) {
    errno = 0;
    const dirent* const entry = ::readdir(opened);
    if (entry == nullptr) {
      return errno;
    }
    names.emplace_back(entry->d_name);
  }
  return 0;
}

/// The clock that gave the files their times is the server's: this machine's may be hours off.
/// Nothing, and errno, if nothing can be written there.
std::optional<std::int64_t> server_time_s(const UniqueFd& folder) {
  const std::string temporary = temporary_name();
  struct stat now {};
  const UniqueFd probe(::openat(folder.get(), temporary.c_str(),
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool is_known = probe && write_all(probe.get(), "1") && ::fsync(probe.get()) == 0 &&
                        ::fstat(probe.get(), &now) == 0;
  const int error = errno;
  ::unlinkat(folder.get(), temporary.c_str(), 0);
  errno = error;
  return is_known ? std::optional<std::int64_t>(now.st_mtime) : std::nullopt;
}

bool sync_folder(const UniqueFd& folder) {
  return ::fsync(folder.get()) == 0 || errno == EINVAL;  // some file systems sync no folder
}

RemoteStatus status_of(int error) noexcept {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS: return RemoteStatus::denied;
    case ELOOP:
    case EISDIR:
    case ENOTDIR:
    case ENOTEMPTY:
    case ENAMETOOLONG: return RemoteStatus::bad_answer;
    case ENOTCONN:
    case ENODEV:
    case ENXIO:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ETIMEDOUT:
    case ESHUTDOWN: return RemoteStatus::unreachable;
    default: return RemoteStatus::busy;  // EIO, ENOSPC, EDQUOT, ESTALE, EMFILE, …
  }
}

/// Calls again what met a folder or file that was replaced on the server.
template <class Call>
RemoteAnswer retried(const Call& call) {
  RemoteAnswer answer;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    answer = call();
    if (!answer.is_restarting) {
      break;
    }
  }
  return answer;
}

}  // namespace

FolderFiles::Place FolderFiles::place_of(const ObjectName& name) {
  const std::string hex = name.hex();
  return {{kTop, "objects", hex.substr(0, 2), hex.substr(2, 2)}, hex};
}

FolderFiles::Place FolderFiles::place_of(const ObjectName& sets, std::string part) {
  const std::string hex = sets.hex();
  return {{kTop, "sets", hex.substr(0, 2), hex.substr(2, 2), hex}, std::move(part)};
}

RemoteAnswer FolderFiles::failure(const char* what, const std::string& name, int error) const {
  return {status_of(error),
          {},
          fmt::format("cannot {} {}: {}", what, name, errno_text(error)),
          error == ESTALE};
}

RemoteAnswer FolderFiles::check_owner(const struct stat& status, const std::string& what) const {
  const std::string why =
      is_private_ ? why_not_trusted(status, {::geteuid(), ::geteuid()}, false) : std::string();
  if (why.empty()) {
    return {};
  }
  return {RemoteStatus::untrusted,
          {},
          fmt::format("{} may not hold unsigned objects: {}; leave ?unsigned out, or: chmod go-w",
                      what, why)};
}

RemoteAnswer FolderFiles::open_root(UniqueFd& folder, mode_t& mode) const {
  folder = UniqueFd(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!folder || ::fstat(folder.get(), &status) != 0) {
    RemoteAnswer answer = failure("open", root_, errno);
    const bool is_none = errno == ENOENT || errno == ENOTDIR;
    answer.status = is_none ? RemoteStatus::unreachable : answer.status;
    return answer;
  }
  mode = status.st_mode & 07777;
  return check_owner(status, root_);
}

RemoteAnswer FolderFiles::open_folder(const Place& place, bool makes, UniqueFd& folder,
                                      mode_t& mode) const {
  if (RemoteAnswer answer = open_root(folder, mode); answer.status != RemoteStatus::ok) {
    return answer;
  }
  std::string path = root_;
  for (const std::string& name : place.folders) {
    path = join_path(path, name);
    const auto open = [&] {
      return UniqueFd(
          ::openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    };
    UniqueFd next = open();
    if (!next && errno == ENOENT && makes) {
      const bool is_new = ::mkdirat(folder.get(), name.c_str(), mode) == 0;
      if (!is_new && errno != EEXIST) {
        return failure("make", path, errno);
      }
      next = open();
      if (next && is_new) {
        // Who may use the root may use what is below it, whatever the umask of the first writer.
        ::fchmod(next.get(), mode);
        if (!sync_folder(folder)) {
          return failure("sync", path, errno);
        }
      }
    }
    struct stat status {};
    if (!next || (is_private_ && ::fstat(next.get(), &status) != 0)) {
      return errno == ENOENT && !makes ? RemoteAnswer{RemoteStatus::absent, {}, {}}
                                       : failure("open", path, errno);
    }
    if (is_private_) {
      if (RemoteAnswer answer = check_owner(status, path); answer.status != RemoteStatus::ok) {
        return answer;
      }
    }
    folder = std::move(next);
  }
  return {};
}

/// Reads no more than the file had when it was opened: a file with a name does not change.
RemoteAnswer FolderFiles::read(const UniqueFd& folder, const std::string& name,
                               std::uint64_t max_bytes) {
  // O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
  const UniqueFd file(::openat(folder.get(), name.c_str(),
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) {
    if (errno == ENOENT) {
      return {RemoteStatus::absent, {}, {}};
    }
    RemoteAnswer answer = failure("open", name, errno);
    if (answer.status == RemoteStatus::denied) {
      answer.status = RemoteStatus::bad_answer;  // of one file; the root was opened
    }
    return answer;
  }
  if (!S_ISREG(status.st_mode)) {
    return {RemoteStatus::bad_answer, {}, name + " is no regular file"};
  }
  if (static_cast<std::uint64_t>(status.st_size) > max_bytes) {
    return {RemoteStatus::oversize, {}, fmt::format("{} has {} bytes", name, status.st_size)};
  }
  RemoteAnswer answer = check_owner(status, name);
  if (answer.status != RemoteStatus::ok) {
    return answer;
  }
  answer.body.resize(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < answer.body.size()) {
    const ssize_t got = ::read(file.get(), answer.body.data() + done, answer.body.size() - done);
    if (got < 0 && errno != EINTR) {
      return failure("read", name, errno);
    }
    if (got == 0) {
      break;  // it was cut; its envelope says so
    }
    done += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  }
  answer.body.resize(done);
  if (refreshes_.load() && Clock::system().now_s() - status.st_mtime > kRefreshAfterS &&
      ::futimens(file.get(), nullptr) != 0) {
    refreshes_.store(false);
  }
  return answer;
}

RemoteAnswer FolderFiles::get(const ObjectName& name) {
  return retried([&] {
    const Place place = place_of(name);
    UniqueFd folder;
    mode_t mode = 0;
    RemoteAnswer answer = open_folder(place, /*makes=*/false, folder, mode);
    return answer.status == RemoteStatus::ok ? read(folder, place.name, kMaxEnvelopeBytes) : answer;
  });
}

RemoteAnswer FolderFiles::get_parts(const ObjectName& name, SteadyTime deadline) {
  const SteadyTime now = std::chrono::steady_clock::now();
  const SteadyTime enough = deadline - (deadline - now) / 4;
  return retried([&] {
    UniqueFd folder;
    mode_t mode = 0;
    if (RemoteAnswer answer = open_folder(place_of(name, {}), /*makes=*/false, folder, mode);
        answer.status != RemoteStatus::ok) {
      return answer;
    }
    std::vector<std::string> names;
    if (const int error = list(folder, kMaxListed, names); error != 0) {
      return failure("list", name.hex(), error);
    }
    std::vector<std::pair<std::int64_t, std::string>> youngest;
    for (std::string& part : names) {
      struct stat status {};
      if (is_part_name(part) &&
          ::fstatat(folder.get(), part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        youngest.emplace_back(-stamp_of(status).mtime_ns, std::move(part));
      }
    }
    std::sort(youngest.begin(), youngest.end());
    RemoteAnswer all{RemoteStatus::absent, {}, {}};
    std::uint64_t bytes = 0;
    for (const auto& [age, part] : youngest) {
      if (all.parts.size() >= kMaxFleetSets || bytes > kMaxPartsBytes ||
          (!all.parts.empty() && std::chrono::steady_clock::now() >= enough)) {
        break;
      }
      RemoteAnswer one = read(folder, part, kMaxSetsObjectBytes);
      if (one.status == RemoteStatus::ok) {
        bytes += one.body.size();
        all.parts.push_back(std::move(one.body));
      } else if (one.status != RemoteStatus::absent && all.parts.empty()) {
        all = std::move(one);
      }
    }
    if (!all.parts.empty()) {
      all = {RemoteStatus::ok, {}, {}, false, false, std::move(all.parts)};
    }
    return all;
  });
}

RemoteAnswer FolderFiles::put(const ObjectName& name, ByteView bytes) {
  return retried([&] { return write(place_of(name), bytes); });
}

RemoteAnswer FolderFiles::put_part(const ObjectName& name, const std::string& part,
                                   ByteView bytes) {
  return retried([&] { return write(place_of(name, part), bytes); });
}

RemoteAnswer FolderFiles::write(const Place& place, ByteView bytes) const {
  UniqueFd folder;
  UniqueFd file;
  mode_t mode = 0;
  const std::string temporary = temporary_name();
  for (int attempt = 0; attempt < kAttempts && !file; ++attempt) {
    if (RemoteAnswer answer = open_folder(place, /*makes=*/true, folder, mode);
        answer.status != RemoteStatus::ok) {
      return answer;
    }
    file = UniqueFd(::openat(folder.get(), temporary.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file && errno != ENOENT) {
      break;
    }
  }
  const auto fail = [&](const char* what) {
    RemoteAnswer answer = failure(what, place.name, errno);
    ::unlinkat(folder.get(), temporary.c_str(), 0);
    return answer;
  };
  if (!file) {
    return failure("create", place.name, errno);
  }
  struct stat status {};
  ::fchmod(file.get(), mode & 0666);
  if (!write_all(file.get(), bytes)) {
    return fail("write");
  }
  if (::fsync(file.get()) != 0 || ::fstat(file.get(), &status) != 0) {
    return fail("sync");
  }
  if (::close(file.release()) != 0) {  // a quota on a server may be reported here
    return fail("close");
  }
  // The name may be taken, by a valid object or not, and some file systems have no links.
  if (::linkat(folder.get(), temporary.c_str(), folder.get(), place.name.c_str(), 0) == 0) {
    ::unlinkat(folder.get(), temporary.c_str(), 0);
  } else if (::renameat(folder.get(), temporary.c_str(), folder.get(), place.name.c_str()) != 0) {
    const int error = errno;
    struct stat now {};
    // A server that answered a repeated request may say so of what has succeeded.
    const bool is_there =
        ::fstatat(folder.get(), place.name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        now.st_ino == status.st_ino;
    errno = error;
    if (!is_there) {
      RemoteAnswer answer = fail("name");
      answer.refuses_object = answer.status == RemoteStatus::bad_answer;
      return answer;
    }
  }
  return sync_folder(folder) ? RemoteAnswer()
                             : failure("sync", "the folder of " + place.name, errno);
}

Result<RemoteCollection> FolderFiles::collect(std::int64_t max_age_s, bool dry_run) {
  const auto cannot_collect = [](const RemoteAnswer& answer) {
    return make_error(ErrorCode::io, "{} ({})", answer.detail, name_of(answer.status));
  };
  UniqueFd top;
  mode_t mode = 0;
  RemoteCollection report;
  if (const RemoteAnswer answer = open_folder({{kTop}, {}}, /*makes=*/false, top, mode);
      answer.status != RemoteStatus::ok) {
    return answer.status == RemoteStatus::absent ? Result(report) : cannot_collect(answer);
  }
  const std::optional<std::int64_t> now_s = server_time_s(top);
  if (!now_s) {
    return cannot_collect(failure("write in", join_path(root_, kTop), errno));
  }
  const std::int64_t oldest = *now_s - std::max(max_age_s, kGraceS);
  const auto collect_file = [&](const UniqueFd& folder, const std::string& name) {
    const bool is_temporary = name.starts_with(kTemporary);
    const bool is_part = is_part_name(name);
    struct stat status {};
    if (!(is_temporary || is_part || is_object_name(name)) ||
        ::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        S_ISDIR(status.st_mode)) {
      return;
    }
    bool is_old = status.st_mtime < (is_temporary ? *now_s - kGraceS : oldest);
    if (is_old && is_part) {  // it is of use for as long as its entry
      const std::string hex = name.substr(0, kHexDigits);
      const std::string entry =
          fmt::format("objects/{}/{}/{}", hex.substr(0, 2), hex.substr(2, 2), hex);
      struct stat kept {};
      is_old = ::fstatat(top.get(), entry.c_str(), &kept, AT_SYMLINK_NOFOLLOW) != 0 ||
               (dry_run && kept.st_mtime < oldest);
    }
    if (is_old && (dry_run || ::unlinkat(folder.get(), name.c_str(), 0) == 0)) {
      ++report.files;
      report.bytes += static_cast<std::uint64_t>(status.st_size);
    }
  };
  const std::function<void(const UniqueFd&, const std::string&, int)> collect_in =
      [&](const UniqueFd& above, const std::string& name, int depth) {
        const UniqueFd folder(
            ::openat(above.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        std::vector<std::string> names;
        if (!folder || list(folder, SIZE_MAX, names) != 0) {
          return;
        }
        for (const std::string& one : names) {
          if (depth == 0) {
            collect_file(folder, one);
          } else if (is_hex(one)) {
            collect_in(folder, one, depth - 1);
          }
        }
        // Without effect while the folder has a file; a writer makes it again.
        if (!dry_run && depth == 0) {
          ::unlinkat(above.get(), name.c_str(), AT_REMOVEDIR);
        }
      };
  collect_in(top, "objects", 2);
  collect_in(top, "sets", 3);
  return report;
}

}  // namespace cukiln
