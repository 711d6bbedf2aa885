// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/system_store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "core/base/clock.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/store/blob_name.hpp"
#include "core/store/sqlite_store.hpp"
#include "core/store/store_directory.hpp"

namespace cukiln {

namespace {

constexpr mode_t kFolderMode = 0755;
constexpr mode_t kFileMode = 0644;
constexpr const char* kStore = CUKILN_STORE_FOLDER;
constexpr const char* kPart = CUKILN_STORE_FOLDER "/part";  // no generation: readers ignore it
constexpr std::uint64_t kNoLimit = 1ull << 50;

/// Times differ between two builds of one store, so it has none.
class NoClock final : public Clock {
 public:
  std::int64_t now_ns() const noexcept override { return 0; }
};

SqliteStoreOptions staging_options(const std::string& directory) {
  static const NoClock clock;
  SqliteStoreOptions options;
  options.directory = directory;
  options.max_bytes = kNoLimit;
  options.reserve_bytes = 0;
  options.clock = &clock;
  return options;
}

using EntryBody = std::function<Result<void>(StoreEntry)>;
using BlobBody = std::function<Result<void>(StoreBlob)>;

Error damaged(const std::string& what, const std::string& directory) {
  return make_error(ErrorCode::corrupt,
                    "the {} of the system store in {} is damaged; remove {} and write the store "
                    "again",
                    what, directory, join_path(directory, kStore));
}

/// Calls `on_entry` with every entry of a store in the order of their keys, then `on_blob`, unless
/// it is empty, with every blob in the order of their ids: so rows have the same places in every
/// build.
Result<void> for_each_object(SqliteStore& store, const std::string& directory,
                             const EntryBody& on_entry, const BlobBody& on_blob) {
  CUKILN_TRY(auto entries, store.list());
  std::sort(entries.begin(), entries.end(),
            [](const EntrySummary& a, const EntrySummary& b) { return a.key < b.key; });
  for (const EntrySummary& one : entries) {
    auto entry = store.peek(one.key);
    auto source = store.source_text(one.key);
    if (!entry || !*entry || !source) {
      return damaged(fmt::format("entry {} ({})", one.key.hex().substr(0, 12), one.labels.name),
                     directory);
    }
    (*entry)->source_text = *std::move(source);
    CUKILN_CHECK(on_entry(**std::move(entry)));
  }
  if (on_blob == nullptr) {
    return {};
  }
  CUKILN_TRY(auto blobs, store.list_blobs({}));
  std::sort(blobs.begin(), blobs.end(),
            [](const BlobSummary& a, const BlobSummary& b) { return a.id < b.id; });
  for (const BlobSummary& one : blobs) {
    auto blob = store.peek(one.id);
    if (!blob || !*blob) {
      return damaged(fmt::format("blob {} of kind {}", one.id.hex(), one.kind), directory);
    }
    CUKILN_CHECK(on_blob(**std::move(blob)));
  }
  return {};
}

/// Like `mkdir -p`, whatever the umask.
Result<void> make_folders(const std::string& path) {
  if (::mkdir(path.c_str(), kFolderMode) != 0) {
    if (errno == EEXIST) {
      return {};
    }
    const std::string parent = folder_of(path);
    if (errno != ENOENT || parent == path) {
      return cannot("create the folder", path);
    }
    CUKILN_CHECK(make_folders(parent));
    if (::mkdir(path.c_str(), kFolderMode) != 0) {
      return errno == EEXIST ? Result<void>() : cannot("create the folder", path);
    }
  }
  return ::chmod(path.c_str(), kFolderMode) == 0 ? Result<void>() : cannot("set the mode of", path);
}

/// Opens the store's folders to readers, whatever the umask was. A folder with other files in it is
/// not for the store alone, and stays as it is.
Result<void> open_to_readers(const StoreDirectory& store) {
  const std::string& root = store.root();
  const std::string top = folder_of(root);
  for (const std::string& path : {top, root}) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) {
      return cannot("use the folder", path);
    }
    if ((status.st_mode & 055) == 055) {
      continue;
    }
    std::error_code unreadable;
    std::filesystem::directory_iterator files(path, unreadable);
    const bool is_ours =
        path == root ||
        std::all_of(begin(files), end(files), [&](const auto& one) { return one.path() == root; });
    if (!is_ours || unreadable) {
      return make_error(ErrorCode::invalid_argument,
                        "{} has mode {:04o} and other files in it: other users would not reach the "
                        "system store; chmod a+rx {}, or name another folder",
                        path, status.st_mode & 0777u, path);
    }
    if (::chmod(path.c_str(), kFolderMode) != 0) {
      return cannot("set the mode of", path);
    }
  }
  return {};
}

Result<void> set_mode_and_flush(const std::string& path, mode_t mode) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return fd && ::fchmod(fd.get(), mode) == 0 && ::fsync(fd.get()) == 0
             ? Result<void>()
             : cannot("set the mode of", path);
}

/// Replaces CURRENT by rename; it never has a mode that keeps readers out.
Result<void> write_current(const std::string& store, const std::string& generation) {
  const std::string part = join_path(store, "part/CURRENT");
  const UniqueFd fd(
      ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  const std::string line = generation + "\n";
  const std::string path = join_path(store, "CURRENT");
  const bool written = fd && ::fchmod(fd.get(), kFileMode) == 0 && write_all(fd.get(), line) &&
                       ::fsync(fd.get()) == 0;
  return written && ::rename(part.c_str(), path.c_str()) == 0 ? Result<void>()
                                                              : cannot("write", path);
}

/// Writes a copy of the database without counters, stamps and free pages. It has no write-ahead
/// log, so that readers need no other file. Its id is that of its entries.
Result<void> write_sealed(const std::string& from, const std::string& to, ByteView keys) {
  const ForkGate::Pass pass;
  CUKILN_TRY(SqliteHandle db, SqliteHandle::open(from, {}));
  CUKILN_CHECK(db.execute("DELETE FROM counter; DELETE FROM stat_cache"));
  const std::string id = hash_of(keys).hex().substr(0, 32);
  CUKILN_CHECK(db.query("UPDATE meta SET v=? WHERE k='store_uuid'").text(id).run());
  return db.query("VACUUM INTO ?").text(to).run();
}

}  // namespace

Result<void> for_each_of_system_store(const std::string& directory,
                                      const std::function<Result<void>(StoreEntry)>& on_entry,
                                      const std::function<Result<void>(StoreBlob)>& on_blob) {
  SqliteStoreOptions options;
  options.directory = directory;
  options.system = true;
  CUKILN_TRY(const auto store, SqliteStore::open(options));
  return for_each_object(*store, directory, on_entry, on_blob);
}

SystemStoreWriter::SystemStoreWriter(std::string top, UniqueFd lock)
    : top_(std::move(top)), lock_(std::move(lock)) {}

SystemStoreWriter::SystemStoreWriter(SystemStoreWriter&&) noexcept = default;

std::string SystemStoreWriter::folder(const char* name) const { return join_path(top_, name); }

Result<SystemStoreWriter> SystemStoreWriter::create(const std::string& directory) {
  if (directory.empty() || directory.front() != '/') {
    return make_error(ErrorCode::invalid_argument,
                      "the system store's directory is \"{}\"; expected an absolute path",
                      directory);
  }
  CUKILN_CHECK(make_folders(directory));
  const std::string root = join_path(directory, kStore);
  CUKILN_CHECK(make_folders(root));
  CUKILN_TRY(const StoreDirectory checked,
             StoreDirectory::prepare(directory, {.system = true}, HostFacts::system()));
  if (::access(checked.path("writer.lock").c_str(), F_OK) == 0) {
    return make_error(ErrorCode::invalid_argument,
                      "{} is a store that processes write, not a system store; name another "
                      "folder, or remove that one",
                      directory);
  }
  CUKILN_CHECK(open_to_readers(checked));
  UniqueFd lock(::open(checked.root().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock) {
    return cannot("open", checked.root());
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return make_error(ErrorCode::timeout, "another process is writing the system store in {}",
                      directory);
  }
  SystemStoreWriter self(folder_of(checked.root()), std::move(lock));
  std::error_code ignored;  // of a process that was killed; what stays fails below
  std::filesystem::remove_all(self.folder(kPart), ignored);
  const std::string part = self.folder(kPart);
  if (::mkdir(part.c_str(), 0700) != 0) {
    return cannot("create the folder", part);
  }
  CUKILN_TRY(self.staged_, SqliteStore::open(staging_options(join_path(part, "added"))));
  const auto add = [&](auto one) -> Result<void> {
    CUKILN_TRY([[maybe_unused]] const PutOutcome added, self.add(std::move(one)));
    return {};
  };
  if (auto present = for_each_of_system_store(self.top_, add, add);
      !present && present.error().code() != ErrorCode::not_found) {
    return std::move(present).error();
  }
  return self;
}

SystemStoreWriter::~SystemStoreWriter() {
  if (lock_) {
    staged_.reset();
    std::error_code ignored;  // the next writer removes what stays
    std::filesystem::remove_all(folder(kPart), ignored);
  }
}

Result<PutOutcome> SystemStoreWriter::add(StoreEntry entry) {
  entry.compile_us = 0;
  entry.peak_bytes = 0;
  if (without_mark(entry.signer).empty()) {
    entry.signer.clear();  // without a signature the mark tells nothing
  }
  entry.origin = entry.signer.empty() ? Origin::compiled : Origin::imported;
  return staged_->put(entry);
}

Result<PutOutcome> SystemStoreWriter::add(const StoreBlob& blob) {
  CUKILN_TRY(const BlobName name, BlobName::make(blob.kind, blob.key));
  CUKILN_TRY(const auto there, staged_->signer_of(name));
  if (there) {
    return PutOutcome::already_there;
  }
  return staged_->put(blob);
}

Result<SystemStoreWriter::Summary> SystemStoreWriter::finish() {
  const std::string part = folder(kPart);
  const std::string sorted = join_path(part, "sorted");
  Summary summary;
  std::string keys;
  {
    CUKILN_TRY(const auto store, SqliteStore::open(staging_options(sorted)));
    const auto copy_entry = [&](const StoreEntry& entry) -> Result<void> {
      ++summary.entries;
      keys += view_of(entry.key);
      CUKILN_CHECK(store->put(entry));
      return {};
    };
    const auto copy_blob = [&](const StoreBlob& blob) -> Result<void> {
      keys += view_of(BlobName::id_of(blob.kind, blob.key));
      CUKILN_CHECK(store->put(blob));
      return {};
    };
    CUKILN_CHECK(for_each_object(*staged_, part, copy_entry, copy_blob));
  }
  const std::string generation = join_path(part, "generation");
  const std::string database = join_path(generation, "store.db");
  CUKILN_CHECK(make_folders(generation));
  CUKILN_CHECK(
      write_sealed(join_path(sorted, CUKILN_STORE_FOLDER "/gen-0001/store.db"), database, keys));
  CUKILN_CHECK(set_mode_and_flush(database, kFileMode));

  CUKILN_TRY(const StoreDirectory store,
             StoreDirectory::prepare(top_, {.system = true}, HostFacts::system()));
  CUKILN_TRY(const std::string name, store.make_generation());
  const std::vector<std::string> before = store.generations();
  if (::rename(generation.c_str(), store.path(name).c_str()) != 0) {
    return cannot("create the folder", store.path(name));
  }
  CUKILN_CHECK(write_current(store.root(), name));
  for (const std::string& old : before) {
    if (old != name) {
      store.remove_generation(old);
    }
  }
  static_cast<void>(::fsync(lock_.get()));
  staged_.reset();
  std::error_code ignored;  // the next writer removes what stays
  std::filesystem::remove_all(part, ignored);
  struct stat status {};
  summary.database = join_path(kStore, name + "/store.db");
  summary.bytes = ::stat(folder(summary.database.c_str()).c_str(), &status) == 0
                      ? static_cast<std::uint64_t>(status.st_size)
                      : 0;
  summary.directory = top_;
  return summary;
}

}  // namespace cukiln
