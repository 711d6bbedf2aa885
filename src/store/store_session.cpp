// SPDX-License-Identifier: Apache-2.0
#include "store/store_session.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/file.hpp"

namespace cukiln {

namespace {

constexpr auto kInitialiseWait = std::chrono::seconds(10);
constexpr std::int64_t kLookEveryNs = 1'000'000'000;
constexpr std::chrono::milliseconds kNoWait{0};
constexpr std::uint64_t kPatienceWithKeeper = 8;
constexpr std::uint64_t kLongWalAtClose = 64 << 10;

FileStamp stamp_at(const std::string& path) noexcept {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? stamp_of(status) : FileStamp{};
}

}  // namespace

Result<std::unique_ptr<StoreSession>> StoreSession::open(const SqliteStoreOptions& options) {
  const ForkGate::Pass pass;
  std::unique_ptr<StoreSession> self(new StoreSession(options));
  CUKILN_TRY(
      StoreDirectory directory,
      StoreDirectory::prepare(options.directory,
                              {options.system, options.allow_network_file_system}, *options.facts));
  self->directory_ = std::make_unique<StoreDirectory>(std::move(directory));
  self->read_only_ = self->directory_->read_only();
  CUKILN_TRY(const std::shared_ptr<Generation> generation, self->current(false));
  self->read_only_ = generation->read_only();
  self->become_keeper();
  if (self->read_only_ && !options.system) {
    options.log.warn("the store in {} can only be read: new kernels are not kept; {}",
                     options.directory, self->directory_->why_read_only());
  }
  return self;
}

Result<FileLock> StoreSession::take_turn(std::chrono::milliseconds wait) {
  if (read_only_) {
    return make_error(ErrorCode::io, "the store in {} is read-only", directory_->root());
  }
  const std::string lock_file = directory_->path("writer.lock");
  const std::int64_t began = steady_ns();
  auto lock = FileLock::acquire(lock_file, FileLock::Mode::exclusive, wait);
  lock_waits_.add(std::chrono::nanoseconds(steady_ns() - began));
  if (!lock && lock.error().code() == ErrorCode::io &&
      ::access(directory_->root().c_str(), F_OK) != 0) {
    // The whole store was removed under us: it is made again.
    CUKILN_TRY(const StoreDirectory again,
               StoreDirectory::prepare(options_.directory,
                                       {options_.system, options_.allow_network_file_system},
                                       *options_.facts));
    lock = FileLock::acquire(again.path("writer.lock"), FileLock::Mode::exclusive, wait);
  }
  if (!lock && lock.error().code() == ErrorCode::timeout) {
    lock_timeouts_.fetch_add(1, std::memory_order_relaxed);
  }
  return lock;
}

bool StoreSession::is_stale(const Generation& generation) {
  return !generation.belongs_to_this_process() ||
         stamp_at(directory_->path("CURRENT")) != current_stamp_ || generation.moved();
}

Result<std::shared_ptr<Generation>> StoreSession::current(bool in_turn) {
  {
    const std::lock_guard hold(mutex_);
    if (generation_ != nullptr) {
      const bool ours = generation_->belongs_to_this_process();
      if (!ours && generation_->has_connections()) {
        return make_error(
            ErrorCode::io,
            "this process was forked without fork handlers from one that had the store "
            "open: SQLite cannot be used in it; open a new store after the fork");
      }
      const std::int64_t now = steady_ns();
      const bool look = in_turn || !ours || now >= next_look_ns_.load(std::memory_order_relaxed);
      if (!look) {
        return generation_;
      }
      next_look_ns_.store(now + kLookEveryNs, std::memory_order_relaxed);
      if (!is_stale(*generation_)) {
        return generation_;
      }
    }
  }
  return open_current(in_turn);
}

Result<std::shared_ptr<Generation>> StoreSession::open_named(const std::string& name,
                                                             SqliteTrouble* trouble) const {
  Generation::Options options;
  options.read_only = directory_->read_only();
  options.page_bytes = options_.page_bytes;
  options.schema = options_.schema;
  return Generation::open(*directory_, name, options, trouble);
}

Result<std::shared_ptr<Generation>> StoreSession::open_current(bool in_turn) {
  FileLock turn;  // taken once something has to be written
  bool alone = in_turn;
  bool asked_reserve = false;
  for (int attempt = 0;; ++attempt) {
    const FileStamp stamp = stamp_at(directory_->path("CURRENT"));
    auto name = directory_->current();
    std::shared_ptr<Generation> before;
    {
      const std::lock_guard hold(mutex_);
      before = generation_;
    }
    // In one process SQLite shares what it knows of a file among connections: opened again while it
    // is still open, a database would be read through the index of a WAL that is gone.
    SqliteTrouble trouble = SqliteTrouble::none;
    const bool files_replaced = name && before != nullptr && before->belongs_to_this_process() &&
                                before->name() == *name && before->has_connections() &&
                                before->moved();
    auto generation =
        files_replaced
            ? Error(ErrorCode::corrupt,
                    fmt::format("the files of {} were replaced under their user", before->folder()))
            : (name ? open_named(*name, &trouble)
                    : Result<std::shared_ptr<Generation>>(name.error()));
    const bool raced = stamp_at(directory_->path("CURRENT")) != stamp && attempt < 10;
    if (raced) {
      continue;
    }
    if (generation) {
      if ((*generation)->needs_migration()) {
        if ((*generation)->read_only()) {
          return make_error(ErrorCode::incompatible,
                            "{} has schema version {}, expected {}, and it cannot be brought up to "
                            "date because it is read-only; open it once where it can be written",
                            (*generation)->folder(), (*generation)->version(),
                            options_.schema.version);
        }
        if (!alone) {
          CUKILN_TRY(turn, take_turn(kInitialiseWait));
          alone = true;
          continue;
        }
        CUKILN_CHECK((*generation)->migrate());
      }
      const std::lock_guard hold(mutex_);
      generation_ = *generation;
      current_stamp_ = stamp;
      next_look_ns_.store(steady_ns() + kLookEveryNs, std::memory_order_relaxed);
      return generation_;
    }
    const Error why = generation.error();
    if (trouble == SqliteTrouble::full && !asked_reserve && !directory_->read_only()) {
      // The WAL index found no room on the disk: without it nothing can be read, or removed.
      asked_reserve = true;
      if (!alone) {
        CUKILN_TRY(turn, take_turn(options_.write_wait));
        alone = true;
      }
      if (reserve().release_some()) {
        continue;
      }
    }
    const bool begin =
        why.code() == ErrorCode::corrupt || (!name && why.code() == ErrorCode::not_found);
    if (!begin || directory_->read_only() || attempt >= 12) {
      return why;
    }
    if (!alone) {  // look again as the only writer: somebody may be making it just now
      CUKILN_TRY(turn, take_turn(kInitialiseWait));
      alone = true;
      continue;
    }
    const bool there_was_one = why.code() == ErrorCode::corrupt;
    CUKILN_CHECK(begin_generation(why, !there_was_one   ? std::optional<Rebuild>()
                                       : files_replaced ? Rebuild::replaced
                                                        : Rebuild::damaged));
  }
}

Result<void> StoreSession::begin_generation(const Error& why, std::optional<Rebuild> rebuild) {
  if (rebuild) {
    rebuilds_[static_cast<std::size_t>(*rebuild)].fetch_add(1, std::memory_order_relaxed);
    options_.log.warn("the store in {} begins anew: {}", directory_->root(), why.message());
  }
  CUKILN_TRY(const std::string name, directory_->make_generation());
  Generation::Options options;
  options.page_bytes = options_.page_bytes;
  options.schema = options_.schema;
  if (auto made = Generation::initialise(directory_->path(name), options); !made) {
    directory_->remove_generation(name);
    return std::move(made).error();
  }
  make_reserve();
  return directory_->set_current(name);
}

bool StoreSession::worth_recovering(const SqliteHandle& db, const Error& error) noexcept {
  return error.code() == ErrorCode::corrupt || db.trouble() == SqliteTrouble::moved;
}

Result<void> StoreSession::recover(const std::shared_ptr<Generation>& broken, const Error& why) {
  if (read_only_) {
    return why;
  }
  CUKILN_TRY(const FileLock turn, take_turn(options_.write_wait));
  return recover_in_turn(broken, why);
}

Result<void> StoreSession::recover_in_turn(const std::shared_ptr<Generation>& broken,
                                           const Error& why) {
  {
    const std::lock_guard hold(mutex_);
    if (generation_ != broken) {
      return {};  // another thread was faster
    }
  }
  if (forgiven_.fetch_add(1, std::memory_order_relaxed) == 0 && looks_healthy(*broken)) {
    const std::lock_guard hold(mutex_);
    generation_.reset();
    return {};
  }
  const auto name = directory_->current();
  if (!name || *name == broken->name()) {
    CUKILN_CHECK(begin_generation(
        why, why.code() == ErrorCode::corrupt ? Rebuild::damaged : Rebuild::replaced));
  }
  CUKILN_TRY([[maybe_unused]] const auto generation, open_current(true));
  return {};
}

Result<void> StoreSession::begin_anew(const Error& why) {
  const ForkGate::Pass pass;
  CUKILN_TRY(const FileLock turn, take_turn(options_.write_wait));
  CUKILN_CHECK(begin_generation(why, Rebuild::repair));
  CUKILN_TRY([[maybe_unused]] const auto generation, open_current(true));
  return {};
}

bool StoreSession::looks_healthy(const Generation& generation) const {
  // Once only, and only where it takes moments: a second complaint is believed at once.
  constexpr std::int64_t kMaxBytes = 64 << 20;
  auto fresh = generation.moved()
                   ? Result<std::shared_ptr<Generation>>(Error(ErrorCode::corrupt, ""))
                   : open_named(generation.name());
  auto db = fresh ? (*fresh)->lease() : Result<Generation::Lease>(fresh.error());
  const auto bytes = stamp_at(join_path(generation.folder(), "store.db")).size;
  if (!db || bytes > kMaxBytes) {
    return false;
  }
  Query check = (*db)->query("PRAGMA quick_check(1)");
  const auto row = check.next();
  return row && *row && check.column_bytes(0) == "ok";
}

Result<std::string> StoreSession::generation_name() {
  const ForkGate::Pass pass;
  CUKILN_TRY(const std::shared_ptr<Generation> generation, current(false));
  return generation->name();
}

Result<int> StoreSession::schema_version() {
  const ForkGate::Pass pass;
  CUKILN_TRY(const std::shared_ptr<Generation> generation, current(false));
  return generation->version();
}

std::uint64_t StoreSession::rebuilds() const noexcept {
  std::uint64_t all = 0;
  for (const auto& count : rebuilds_) {
    all += count.load(std::memory_order_relaxed);
  }
  return all;
}

std::uint64_t StoreSession::reserve_bytes() const noexcept {
  return std::min(options_.reserve_bytes, max_bytes() / 8);
}

void StoreSession::remove_leftovers() {
  const auto current_name = directory_->current();
  if (!current_name) {
    return;
  }
  directory_->remove_stray_files();
  for (const std::string& name : directory_->generations()) {
    if (name == *current_name) {
      continue;
    }
    auto unused = FileLock::acquire(join_path(directory_->path(name), "inuse.lock"),
                                    FileLock::Mode::exclusive, kNoWait);
    if (unused) {
      directory_->remove_generation(name);
    }
  }
}

Result<bool> StoreSession::checkpoint(SqliteHandle& db) {
  const auto began = std::chrono::steady_clock::now();
  // No waiting for readers: with one in the way the WAL is cut next time.
  db.set_busy_timeout(0);
  Query query = db.query("PRAGMA wal_checkpoint(TRUNCATE)");
  const auto row = query.next();
  const bool done = row && *row && query.column_number(0) == 0;
  {
    const ForkSafeLock hold(checkpoints_mutex_);
    ++(!row ? checkpoints_.failed : done ? checkpoints_.done : checkpoints_.held_up);
    checkpoints_.took += std::chrono::steady_clock::now() - began;
  }
  db.set_busy_timeout(static_cast<int>(options_.write_wait.count()));
  if (!row) {
    return row.error();
  }
  if (done) {
    db.forget_wal_pages();
  }
  return done;
}

bool StoreSession::is_keeper() const {
  return keeper_.held() || !FileLock::holder(directory_->path("keeper.lock"));
}

void StoreSession::become_keeper() {
  if (!options_.keeper || read_only_ || keeper_.held()) {
    return;
  }
  auto lock =
      FileLock::acquire(directory_->path("keeper.lock"), FileLock::Mode::exclusive, kNoWait);
  if (lock) {
    keeper_ = *std::move(lock);
  }
}

void StoreSession::checkpoint_before_close() {
  const ForkGate::Pass pass;
  std::string wal;
  {
    const std::lock_guard hold(mutex_);
    if (read_only_ || generation_ == nullptr || !generation_->belongs_to_this_process()) {
      return;
    }
    wal = join_path(generation_->folder(), "store.db-wal");
  }
  if (stamp_at(wal).size >= kLongWalAtClose && is_keeper()) {
    static_cast<void>(write(kNoWait, [this](SqliteHandle& db) { return checkpoint(db); }));
  }
}

void StoreSession::checkpoint_if_long(SqliteHandle& db) {
  const auto pages = static_cast<std::uint64_t>(db.wal_pages());
  const auto page_bytes = static_cast<std::uint64_t>(options_.page_bytes);
  const auto lost =
      static_cast<std::uint64_t>(lost_checkpoint_pages_.load(std::memory_order_relaxed));
  // Merging a WAL may take as much space again: the reserve has to be enough for it on a full disk.
  const std::uint64_t reserve = reserve_bytes();
  const std::uint64_t limit =
      reserve == 0 ? options_.checkpoint_bytes : std::min(options_.checkpoint_bytes, reserve / 2);
  if ((pages - std::min(lost, pages)) * page_bytes < limit) {
    if (pages < lost) {
      lost_checkpoint_pages_.store(0, std::memory_order_relaxed);
    }
    return;
  }
  // A keeper that hangs must not let the log grow for ever.
  if (pages * page_bytes < kPatienceWithKeeper * limit && !is_keeper()) {
    return;
  }
  const auto done = checkpoint(db);
  // A reader in the way: try again when the WAL has grown as much once more.
  const bool cut = done && *done;
  lost_checkpoint_pages_.store(cut ? 0 : static_cast<int>(pages), std::memory_order_relaxed);
  if (!cut && pages * page_bytes > 4 * options_.checkpoint_bytes) {
    options_.log.warn(
        "the store's write-ahead log has {} MiB because a reader holds it; expected at "
        "most {} MiB",
        pages * page_bytes >> 20, options_.checkpoint_bytes >> 20);
  }
}

}  // namespace cukiln
