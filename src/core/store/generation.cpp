// SPDX-License-Identifier: Apache-2.0
#include "core/store/generation.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <new>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/store/meta_rows.hpp"
#include "embedded/store_schema.hpp"

namespace cukiln {

namespace {

constexpr const char* kDatabase = "store.db";
constexpr const char* kSuffixes[] = {"", "-wal", "-shm"};
constexpr std::size_t kMaxIdle = 8;
// Another process may be replaying the WAL when a connection opens, and blocks all others
// meanwhile.
constexpr int kOpenBusyMs = 2000;
constexpr int kReadBusyMs = 250;

/// Creates the WAL index as a file that a copy-on-write file system (btrfs) writes in place. A copy
/// of a block needs room at every write back, so a full disk would end a process that has the file
/// mapped, whatever was allocated before (see wal_index_vfs.hpp). Elsewhere it changes nothing.
void create_wal_index(const std::string& path) noexcept {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  int flags = 0;
  if (fd && ::ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) == 0) {
    flags |= FS_NOCOW_FL;  // possible while the file is empty
    static_cast<void>(::ioctl(fd.get(), FS_IOC_SETFLAGS, &flags));
  }
}

Result<void> execute(SqliteHandle& db, const std::string& sql) { return db.execute(sql.c_str()); }

}  // namespace

Result<void> Generation::initialise(const std::string& folder, const Options& options) {
  const std::string database = join_path(folder, kDatabase);
  {
    // SQLite gives its other files the mode of this one. No connection has it open yet.
    const UniqueFd fd(
        ::open(database.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) {
      return make_error(ErrorCode::io, "cannot create {}: {}", database, errno_text(errno));
    }
  }
  create_wal_index(database + "-shm");
  SqliteHandle::Options open_options;
  open_options.busy_ms = kOpenBusyMs;
  CUKILN_TRY(SqliteHandle db, SqliteHandle::open(database, open_options));
  // No other process opens the folder before CURRENT names it. The checkpoint at the end makes
  // everything durable, so the steps before it need not wait for the disk.
  CUKILN_CHECK(db.execute("PRAGMA synchronous=OFF"));
  CUKILN_CHECK(execute(
      db, fmt::format("PRAGMA page_size={}; PRAGMA auto_vacuum=INCREMENTAL", options.page_bytes)));
  {
    Query mode = db.query("PRAGMA journal_mode=WAL");
    CUKILN_TRY(const bool row, mode.next());
    if (!row || mode.column_bytes(0) != "wal") {
      return make_error(ErrorCode::io,
                        "SQLite cannot use its write-ahead log in {}; choose a directory on a "
                        "local file system",
                        folder);
    }
  }
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  for (const embedded::File& file : embedded::store_schema()) {
    CUKILN_CHECK(db.execute(file.bytes.data()));
  }
  for (const std::string& step : options.schema.steps) {
    CUKILN_CHECK(execute(db, step));
  }
  CUKILN_CHECK(write_meta(db, options.schema));
  CUKILN_CHECK(execute(db, fmt::format("PRAGMA application_id={}; PRAGMA user_version={}",
                                       StoreSchema::kApplicationId, options.schema.version)));
  CUKILN_CHECK(transaction.commit());
  CUKILN_CHECK(db.execute("PRAGMA synchronous=NORMAL"));
  // Until the checkpoint the tables are in the WAL only, and would be lost with it.
  return db.query("PRAGMA wal_checkpoint(TRUNCATE)").run();
}

Generation::Generation(std::string folder, std::string name, const Options& options,
                       FileLock in_use, ProcessLock process)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      database_(join_path(folder_, kDatabase)),
      options_(options),
      in_use_(std::move(in_use)),
      process_lock_(std::move(process)),
      process_(::getpid()) {
  idle_.reserve(kMaxIdle);  // returning a connection must not allocate
}

Result<std::shared_ptr<Generation>> Generation::open(const StoreDirectory& directory,
                                                     const std::string& name,
                                                     const Options& options,
                                                     SqliteTrouble* trouble) {
  std::string folder = directory.path(name);
  if (auto checked = directory.check_folder(folder); !checked) {
    if (checked.error().code() == ErrorCode::not_found) {
      return make_error(ErrorCode::corrupt, "the generation {} was removed", folder);
    }
    return std::move(checked).error();
  }
  const std::string database = join_path(folder, kDatabase);
  for (const char* suffix : kSuffixes) {
    CUKILN_CHECK(directory.check_file(database + suffix));
  }
  if (::access(database.c_str(), F_OK) != 0) {
    return make_error(ErrorCode::corrupt, "{} was removed", database);
  }
  FileLock in_use;
  ProcessLock process;
  if (!options.read_only) {
    const std::string lock_file = join_path(folder, "inuse.lock");
    CUKILN_TRY(in_use, FileLock::acquire(lock_file, FileLock::Mode::shared,
                                         std::chrono::milliseconds(kOpenBusyMs)));
    CUKILN_TRY(ProcessLock mine, ProcessLock::acquire(lock_file));
    std::shared_ptr<Generation> self(
        new Generation(std::move(folder), name, options, std::move(in_use), std::move(mine)));
    CUKILN_CHECK(self->check(trouble));
    return self;
  }
  std::shared_ptr<Generation> self(
      new Generation(std::move(folder), name, options, FileLock(), ProcessLock()));
  CUKILN_CHECK(self->check(trouble));
  return self;
}

Generation::~Generation() {
  if (!belongs_to_this_process() && has_connections()) {
    // Leaked: closing them would release the parent's locks and write its files.
    static_cast<void>(new (std::nothrow) std::vector<SqliteHandle>(std::move(idle_)));
  }
}

Result<void> Generation::check(SqliteTrouble* trouble) {
  CUKILN_TRY(Lease db, lease(trouble));
  auto checked = check_identity(*db);
  if (trouble != nullptr) {
    *trouble = checked ? SqliteTrouble::none : db->trouble();
  }
  return checked;
}

Result<void> Generation::check_identity(SqliteHandle& db) {
  CUKILN_TRY(const std::int64_t application, db.number("PRAGMA application_id"));
  if (application != StoreSchema::kApplicationId) {
    return make_error(ErrorCode::corrupt,
                      "{} is not a store: its application id is {:#x}, expected {:#x}", database_,
                      application, StoreSchema::kApplicationId);
  }
  CUKILN_TRY(const std::int64_t version, db.number("PRAGMA user_version"));
  version_ = static_cast<int>(version);
  record_files();
  if (version_ < 1) {
    return make_error(ErrorCode::corrupt, "{} has schema version {}, expected 1 or more", database_,
                      version_);
  }
  if (version_ <= options_.schema.version) {
    return {};
  }
  // A row that is missing or impossible counts as the store's own version: then this one neither
  // reads nor writes a store that may not be for it.
  const auto oldest = [&](const char* sql) -> Result<std::int64_t> {
    CUKILN_TRY(const std::int64_t stored, db.number(sql, version));
    return stored >= 1 && stored <= version ? stored : version;
  };
  CUKILN_TRY(const std::int64_t reader, oldest("SELECT v FROM meta WHERE k='min_reader'"));
  CUKILN_TRY(const std::int64_t writer, oldest("SELECT v FROM meta WHERE k='min_writer'"));
  if (reader > options_.schema.version) {
    return make_error(
        ErrorCode::incompatible,
        "{} was written by a newer cukiln: schema {}, readable from version {}, and this "
        "is version {}; use the newer one, or another directory",
        database_, version_, reader, options_.schema.version);
  }
  options_.read_only = options_.read_only || writer > options_.schema.version;
  return {};
}

Result<void> Generation::migrate() {
  assert(needs_migration() && !read_only());
  CUKILN_TRY(Lease db, lease());
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(*db));
  CUKILN_TRY(const std::int64_t version, db->number("PRAGMA user_version"));
  const auto& schema = options_.schema;
  assert(schema.steps.size() + 1 == static_cast<std::size_t>(schema.version));
  for (int step = static_cast<int>(version); step < schema.version; ++step) {
    CUKILN_CHECK(execute(*db, schema.steps[static_cast<std::size_t>(step) - 1]));
  }
  CUKILN_CHECK(write_meta(*db, schema));
  CUKILN_CHECK(execute(*db, fmt::format("PRAGMA user_version={}", schema.version)));
  CUKILN_CHECK(transaction.commit());
  version_ = schema.version;
  return {};
}

Result<Generation::Lease> Generation::lease(SqliteTrouble* trouble) {
  {
    const MutexLock lock(mutex_);
    if (!idle_.empty()) {
      SqliteHandle handle = std::move(idle_.back());
      idle_.pop_back();
      ++leased_;
      return Lease(*this, std::move(handle));
    }
  }
  SqliteHandle::Options open_options;
  open_options.read_only = options_.read_only;
  open_options.busy_ms = kOpenBusyMs;
  CUKILN_TRY(SqliteHandle handle, SqliteHandle::open(database_, open_options, trouble));
  const MutexLock lock(mutex_);
  ++leased_;
  return Lease(*this, std::move(handle));
}

Generation::Lease::~Lease() {
  if (owner_ != nullptr) {
    owner_->return_to_pool(std::move(handle_));
  }
}

void Generation::return_to_pool(SqliteHandle handle) {
  handle.set_busy_timeout(kReadBusyMs);
  handle.forget_trouble();
  const MutexLock lock(mutex_);
  assert(leased_ > 0);
  --leased_;
  if (idle_.size() < kMaxIdle) {
    idle_.push_back(std::move(handle));
  }
}

void Generation::before_fork() noexcept {
  const MutexLock lock(mutex_);
  if (process_ == ::getpid()) {
    idle_.clear();
  }
}

bool Generation::belongs_to_this_process() const noexcept { return process_ == ::getpid(); }

bool Generation::has_connections() const {
  const MutexLock lock(mutex_);
  return leased_ > 0 || !idle_.empty();
}

Generation::FileIdentity Generation::identity_of(const char* suffix) const {
  struct stat status {};
  if (::stat((database_ + suffix).c_str(), &status) != 0) {
    return {};
  }
  return {status.st_dev, status.st_ino};
}

void Generation::record_files() {
  for (std::size_t i = 0; i < 3; ++i) {
    files_[i] = identity_of(kSuffixes[i]);
  }
}

bool Generation::files_replaced() const {
  // Of a store that is only read, its owner may create and remove the WAL at any time.
  const std::size_t count = options_.read_only ? 1 : 3;
  for (std::size_t i = 0; i < count; ++i) {
    if (identity_of(kSuffixes[i]) != files_[i]) {
      return true;
    }
  }
  return false;
}

}  // namespace cukiln
