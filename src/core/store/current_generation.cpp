// SPDX-License-Identifier: Apache-2.0
#include "core/store/current_generation.hpp"

#include <sys/stat.h>

#include <chrono>
#include <string_view>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"
#include "core/store/disk_reserve.hpp"

namespace cukiln {

namespace {

constexpr auto kInitialiseWait = std::chrono::seconds(10);
constexpr std::int64_t kRecheckIntervalNs = 1'000'000'000;
// What looks like damage again may be the disk's or another program's doing, and each new
// generation gives up all entries, for all processes.
constexpr std::int64_t kMinRebuildIntervalNs = 60'000'000'000;
constexpr std::string_view kFirstGeneration = "gen-0001";
constexpr int kMaxRaces = 10;
constexpr int kMaxAttempts = 12;

FileStamp stamp_at(const std::string& path) noexcept {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? stamp_of(status) : FileStamp{};
}

}  // namespace

FileStamp CurrentGeneration::stamp_of_current() const {
  return stamp_at(directory_.path("CURRENT"));
}

bool CurrentGeneration::is_stale(const Generation& generation) const {
  return !generation.belongs_to_this_process() || stamp_of_current() != current_stamp_ ||
         generation.files_replaced();
}

Result<std::shared_ptr<Generation>> CurrentGeneration::get(bool as_writer) {
  {
    const MutexLock lock(mutex_);
    if (generation_ != nullptr) {
      const bool ours = generation_->belongs_to_this_process();
      if (!ours && generation_->has_connections()) {
        return make_error(
            ErrorCode::io,
            "this process was forked without fork handlers from one that had the store "
            "open: SQLite cannot be used in it; open a new store after the fork");
      }
      const std::int64_t now = steady_ns();
      const bool recheck =
          as_writer || !ours || now >= recheck_at_ns_.load(std::memory_order_relaxed);
      if (!recheck) {
        return generation_;
      }
      recheck_at_ns_.store(now + kRecheckIntervalNs, std::memory_order_relaxed);
      if (!is_stale(*generation_)) {
        return generation_;
      }
    }
  }
  return open_current(as_writer);
}

std::string CurrentGeneration::folder() const {
  const MutexLock lock(mutex_);
  return generation_ != nullptr && generation_->belongs_to_this_process() ? generation_->folder()
                                                                          : std::string();
}

Generation::Options CurrentGeneration::generation_options() const {
  Generation::Options options;
  options.read_only = directory_.read_only();
  options.page_bytes = options_.page_bytes;
  options.schema = options_.schema;
  return options;
}

Result<std::shared_ptr<Generation>> CurrentGeneration::open_named(const std::string& name,
                                                                  SqliteTrouble* trouble) const {
  return Generation::open(directory_, name, generation_options(), trouble);
}

CurrentGeneration::Candidate CurrentGeneration::open_candidate() {
  const FileStamp stamp = stamp_of_current();
  auto name = directory_.current();
  std::shared_ptr<Generation> before;
  {
    const MutexLock lock(mutex_);
    before = generation_;
  }
  // All connections of a process share SQLite's state of a file: a database that is opened again
  // while the old one is still open would be read through the index of the old WAL.
  const bool files_replaced = name && before != nullptr && before->belongs_to_this_process() &&
                              before->name() == *name && before->has_connections() &&
                              before->files_replaced();
  SqliteTrouble trouble = SqliteTrouble::none;
  auto generation = files_replaced
                        ? Error(ErrorCode::corrupt,
                                fmt::format("the files of {} were replaced while they were open",
                                            before->folder()))
                        : (name ? open_named(*name, &trouble)
                                : Result<std::shared_ptr<Generation>>(name.error()));
  return {stamp, std::move(name), files_replaced, trouble, std::move(generation)};
}

Error CurrentGeneration::outdated_and_read_only(const Generation& generation) const {
  return make_error(ErrorCode::incompatible,
                    "{} has schema version {}, expected {}, and cannot be migrated because it is "
                    "read-only; open it once where it can be written",
                    generation.folder(), generation.version(), options_.schema.version);
}

std::shared_ptr<Generation> CurrentGeneration::use(std::shared_ptr<Generation> generation,
                                                   const FileStamp& stamp) {
  const MutexLock lock(mutex_);
  generation_ = std::move(generation);
  current_stamp_ = stamp;
  recheck_at_ns_.store(steady_ns() + kRecheckIntervalNs, std::memory_order_relaxed);
  return generation_;
}

Result<std::shared_ptr<Generation>> CurrentGeneration::open_current(bool as_writer) {
  FileLock lock;  // acquired once something has to be written
  bool is_writer = as_writer;
  const auto become_writer = [&](std::chrono::milliseconds wait) -> Result<void> {
    CUKILN_TRY(lock, writer_.acquire(wait));
    is_writer = true;
    return {};
  };
  bool released_reserve = false;
  for (int attempt = 0;; ++attempt) {
    Candidate found = open_candidate();
    const bool raced = stamp_of_current() != found.stamp && attempt < kMaxRaces;
    if (raced) {
      continue;
    }
    if (found.generation) {
      Generation& generation = **found.generation;
      if (generation.needs_migration()) {
        if (generation.read_only()) {
          return outdated_and_read_only(generation);
        }
        if (!is_writer) {
          CUKILN_CHECK(become_writer(kInitialiseWait));
          continue;
        }
        CUKILN_CHECK(generation.migrate());
      }
      return use(*std::move(found.generation), found.stamp);
    }
    const Error why = found.generation.error();
    if (found.trouble == SqliteTrouble::full && !released_reserve && !directory_.read_only()) {
      // The disk has no room for the WAL index, without which entries can be neither read nor
      // removed.
      released_reserve = true;
      if (!is_writer) {
        CUKILN_CHECK(become_writer(options_.write_wait));
      }
      if (DiskReserve(directory_.path("reserve.bin")).release_some()) {
        continue;
      }
    }
    const bool is_damaged = why.code() == ErrorCode::corrupt;
    const bool is_absent = !found.name && why.code() == ErrorCode::not_found;
    if ((!is_damaged && !is_absent) || directory_.read_only() || attempt >= kMaxAttempts) {
      return why;
    }
    if (!is_writer) {  // check again with the lock: another process may be creating it now
      CUKILN_CHECK(become_writer(kInitialiseWait));
      continue;
    }
    CUKILN_CHECK(create(why, is_absent              ? std::optional<Rebuild>()
                             : found.files_replaced ? Rebuild::replaced
                                                    : Rebuild::damaged));
  }
}

bool CurrentGeneration::was_just_rebuilt() const {
  const auto name = directory_.current();
  const std::int64_t age = Clock::system().now_ns() - stamp_of_current().mtime_ns;
  return name && *name != kFirstGeneration && age >= 0 && age < kMinRebuildIntervalNs &&
         stamp_at(directory_.path(*name)) != FileStamp{};
}

Result<void> CurrentGeneration::create(const Error& why, std::optional<Rebuild> rebuild) {
  if (rebuild == Rebuild::damaged && was_just_rebuilt()) {
    return make_error(ErrorCode::io,
                      "{}; the store in {} is not used until a minute after its last new "
                      "generation; check the disk",
                      why.message(), directory_.root());
  }
  if (rebuild) {
    rebuilds_[static_cast<std::size_t>(*rebuild)].fetch_add(1, std::memory_order_relaxed);
    options_.log.warn("the store in {} starts a new, empty generation: {}", directory_.root(),
                      why.message());
  }
  CUKILN_TRY(const std::string name, directory_.make_generation());
  Generation::Options options = generation_options();
  options.read_only = false;
  if (auto made = Generation::initialise(directory_.path(name), options); !made) {
    directory_.remove_generation(name);
    return std::move(made).error();
  }
  DiskReserve(directory_.path("reserve.bin")).make(limits_.reserve_bytes());
  return directory_.set_current(name);
}

Result<void> CurrentGeneration::recover(const std::shared_ptr<Generation>& broken,
                                        const Error& why) {
  {
    const MutexLock lock(mutex_);
    if (generation_ != broken) {
      return {};  // another thread has replaced it
    }
  }
  if (spurious_errors_.fetch_add(1, std::memory_order_relaxed) == 0 &&
      passes_quick_check(*broken)) {
    const MutexLock lock(mutex_);
    generation_.reset();
    return {};
  }
  const auto name = directory_.current();
  if (!name || *name == broken->name()) {
    CUKILN_CHECK(
        create(why, why.code() == ErrorCode::corrupt ? Rebuild::damaged : Rebuild::replaced));
  }
  CUKILN_TRY([[maybe_unused]] const auto generation, open_current(true));
  return {};
}

Result<void> CurrentGeneration::start_new(const Error& why) {
  CUKILN_CHECK(create(why, Rebuild::repair));
  CUKILN_TRY([[maybe_unused]] const auto generation, open_current(true));
  return {};
}

bool CurrentGeneration::passes_quick_check(const Generation& generation) const {
  // Only for the first error, and only where the check is short: a second error counts as damage.
  constexpr std::int64_t kMaxBytes = 64 << 20;
  auto fresh = generation.files_replaced()
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

}  // namespace cukiln
