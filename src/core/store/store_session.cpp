// SPDX-License-Identifier: Apache-2.0
#include "core/store/store_session.hpp"

#include <sys/stat.h>

#include <utility>

#include "core/base/file.hpp"

namespace cukiln {

namespace {

constexpr std::chrono::milliseconds kNoWait{0};
constexpr std::uint64_t kLongWalBytes = 64 << 10;

std::uint64_t size_of(const std::string& path) noexcept {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

}  // namespace

StoreSession::StoreSession(const SqliteStoreOptions& options, StoreDirectory directory)
    : options_(options),
      directory_(std::move(directory)),
      limits_(options.max_bytes, options.reserve_bytes),
      writer_(options_, directory_),
      owner_(directory_),
      checkpoints_(options_, limits_, owner_),
      current_(options_, directory_, limits_, writer_) {}

Result<std::unique_ptr<StoreSession>> StoreSession::open(const SqliteStoreOptions& options) {
  const ForkGate::Pass pass;
  CUKILN_TRY(
      StoreDirectory directory,
      StoreDirectory::prepare(options.directory,
                              {options.system, options.allow_network_file_system}, *options.facts));
  std::unique_ptr<StoreSession> self(new StoreSession(options, std::move(directory)));
  CUKILN_TRY(const std::shared_ptr<Generation> generation, self->current_.get(false));
  self->writer_.set_read_only(generation->read_only());
  self->try_acquire_maintenance();
  if (self->read_only() && !options.system) {
    options.log.warn("the store in {} is read-only, and new kernels are not stored; {}",
                     options.directory, self->directory_.why_read_only());
  }
  return self;
}

Result<void> StoreSession::recover(const std::shared_ptr<Generation>& broken, const Error& why) {
  if (read_only()) {
    return why;
  }
  CUKILN_TRY(const FileLock lock, writer_.acquire(options_.write_wait));
  return current_.recover(broken, why);
}

Result<void> StoreSession::start_new_generation(const Error& why) {
  const ForkGate::Pass pass;
  CUKILN_TRY(const FileLock lock, writer_.acquire(options_.write_wait));
  return current_.start_new(why);
}

Result<std::string> StoreSession::generation_name() {
  const ForkGate::Pass pass;
  CUKILN_TRY(const std::shared_ptr<Generation> generation, current_.get(false));
  return generation->name();
}

Result<int> StoreSession::schema_version() {
  const ForkGate::Pass pass;
  CUKILN_TRY(const std::shared_ptr<Generation> generation, current_.get(false));
  return generation->version();
}

std::uint64_t StoreSession::file_bytes() {
  const auto name = generation_name();
  if (!name) {
    return 0;
  }
  const std::string database = join_path(directory_.path(*name), "store.db");
  return size_of(database) + size_of(database + "-wal");
}

std::uint64_t StoreSession::rebuilds() const noexcept {
  return rebuilds(Rebuild::damaged) + rebuilds(Rebuild::replaced) + rebuilds(Rebuild::repair);
}

void StoreSession::remove_leftovers() {
  const auto current_name = directory_.current();
  if (!current_name) {
    return;
  }
  directory_.remove_stray_files();
  for (const std::string& name : directory_.generations()) {
    if (name == *current_name) {
      continue;
    }
    auto unused = FileLock::acquire(join_path(directory_.path(name), "inuse.lock"),
                                    FileLock::Mode::exclusive, kNoWait);
    if (unused) {
      directory_.remove_generation(name);
    }
  }
}

void StoreSession::try_acquire_maintenance() {
  if (options_.maintenance_owner && !read_only()) {
    owner_.try_acquire();
  }
}

void StoreSession::checkpoint_before_close() {
  const ForkGate::Pass pass;
  const std::string folder = current_.folder();
  if (read_only() || folder.empty()) {
    return;
  }
  if (size_of(join_path(folder, "store.db-wal")) >= kLongWalBytes && is_maintenance_due_here()) {
    static_cast<void>(write(kNoWait, [this](SqliteHandle& db) { return checkpoint(db); }));
  }
}

}  // namespace cukiln
