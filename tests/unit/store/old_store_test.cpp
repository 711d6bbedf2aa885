// SPDX-License-Identifier: Apache-2.0
// The store of format 1 that lies beside ours: `gc` removes it when it was not used for a month.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "support/paths.hpp"
#include "unit/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

namespace fs = std::filesystem;

/// A store directory with ours, and beside it one as format 1 wrote it; none of its files was
/// written for `days`.
struct OldStore : ScratchFolder {
  explicit OldStore(int days) {
    const auto store = open_store_at(top);
    put_numbers(*store, 0, 1);
    fs::copy(testing::sources() + "/cache/golden/v1", old, fs::copy_options::recursive);
    fs::create_directory(old + "/flights");
    for (const char* name : {"writer.lock", "gc.lock", "keeper.lock", "gen-0001/inuse.lock",
                             "flights/0123456789abcdef0123456789abcdef.lock",
                             "flights/toolchain.lock", "CURRENT.aBc123", "reserve.bin"}) {
      write_all(old + "/" + name, "");
    }
    for (const auto& entry : fs::recursive_directory_iterator(old)) {
      fs::permissions(entry, entry.is_directory() ? fs::perms::owner_all
                                                  : fs::perms::owner_read | fs::perms::owner_write);
    }
    fs::permissions(old, fs::perms::owner_all);
    age(days);
  }
  void age(int days) const {
    for (const auto& entry : fs::recursive_directory_iterator(old)) {
      if (entry.is_regular_file()) {
        fs::last_write_time(entry,
                            fs::file_time_type::clock::now() - std::chrono::hours(24) * days);
      }
    }
  }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& entry : fs::recursive_directory_iterator(old)) {
      sum += entry.is_regular_file() && !entry.is_symlink() ? entry.file_size() : 0;
    }
    return sum;
  }
  /// Collects; what it says of the old store. Our own entry stays in any case.
  std::uint64_t collect(bool dry_run = false) const {
    const auto store = open_store_at(top);
    GcOptions options;
    options.dry_run = dry_run;
    const auto report = store->collect(options);
    REQUIRE_MESSAGE(report.has_value(), report.error().message());
    CHECK(count_hits(*store, 0, 1) == 1);
    return report->old_store_bytes;
  }

  const std::string top = *this / "s";
  const std::string old = top + "/v1";
};

/// Another process that holds a lock until this goes.
class LockedElsewhere {
 public:
  LockedElsewhere(const std::string& file, int mode) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      const int fd = ::open(file.c_str(), O_RDWR);
      const char answer = fd >= 0 && ::flock(fd, mode) == 0 ? 'y' : 'n';
      static_cast<void>(!::write(ready[1], &answer, 1));
      ::pause();
      ::_exit(0);
    }
    char answer = 'n';
    static_cast<void>(!::read(ready[0], &answer, 1));
    ::close(ready[0]);
    ::close(ready[1]);
    REQUIRE(answer == 'y');
  }
  ~LockedElsewhere() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  LockedElsewhere(const LockedElsewhere&) = delete;

 private:
  pid_t process_;
};

// fault 125
TEST_CASE("a store of format 1 is removed after 30 days without use") {
  const OldStore there(31);
  const std::uint64_t bytes = there.bytes();
  REQUIRE(bytes > 10'000);
  CHECK(there.collect(true) == bytes);
  CHECK(there.bytes() == bytes);
  CHECK(there.collect() == bytes);
  CHECK_FALSE(exists(there.old));
  CHECK(there.collect() == 0);
}

// fault 125
TEST_CASE("a store of format 1 stays while one of its files is younger") {
  for (const char* young : {"gen-0001/store.db", "gen-0001/store.db-wal", "CURRENT"}) {
    CAPTURE(young);
    const OldStore there(31);
    fs::last_write_time(there.old + "/" + young,
                        fs::file_time_type::clock::now() - std::chrono::hours(24) * 29);
    const std::uint64_t bytes = there.bytes();
    CHECK(there.collect() == 0);
    CHECK(there.bytes() == bytes);
  }
}

// fault 125
TEST_CASE("a store of format 1 stays while another process holds one of its locks") {
  const std::pair<const char*, int> locks[] = {{"gen-0001/inuse.lock", LOCK_SH},
                                               {"writer.lock", LOCK_EX},
                                               {"gc.lock", LOCK_EX},
                                               {"keeper.lock", LOCK_EX}};
  for (const auto& [name, mode] : locks) {
    CAPTURE(name);
    const OldStore there(31);
    const std::uint64_t bytes = there.bytes();
    {
      const LockedElsewhere open(there.old + "/" + name, mode);
      CHECK(there.collect(true) == 0);
      CHECK(there.collect() == 0);
      CHECK(there.bytes() == bytes);
    }
    CHECK(there.collect() == bytes);
    CHECK_FALSE(exists(there.old));
  }
}

// fault 125
TEST_CASE("no symbolic link in a store of format 1 is followed") {
  const OldStore there(31);
  const std::uint64_t bytes = there.bytes();
  const std::string elsewhere = there / "elsewhere";
  SUBCASE("the store itself") {
    fs::rename(there.old, elsewhere);
    fs::create_directory_symlink(elsewhere, there.old);
    CHECK(there.collect() == 0);
    CHECK(fs::is_symlink(there.old));
    CHECK(there.bytes() == bytes);
  }
  SUBCASE("a generation") {
    fs::rename(there.old + "/gen-0001", elsewhere);
    fs::create_directory_symlink(elsewhere, there.old + "/gen-0001");
    there.collect();
    CHECK(fs::is_symlink(there.old + "/gen-0001"));
    CHECK(exists(elsewhere + "/store.db"));
  }
  SUBCASE("a file") {
    fs::rename(there.old + "/CURRENT", elsewhere);
    fs::create_symlink(elsewhere, there.old + "/CURRENT");
    there.collect();
    CHECK(fs::is_symlink(there.old + "/CURRENT"));
    CHECK(exists(elsewhere));
  }
}

TEST_CASE("a file that format 1 does not name stays") {
  const OldStore there(31);
  for (const char* name : {"notes.txt", "gen-0001/notes.txt", "gen-x/store.db", "flights/a.lock",
                           "CURRENT.d/store.db"}) {
    fs::create_directories(fs::path(there.old + "/" + name).parent_path());
    write_all(there.old + "/" + name, "mine");
  }
  there.age(31);
  CHECK(there.collect() > 0);
  CHECK(there.bytes() == 5 * 4);  // "mine"
  CHECK_FALSE(exists(there.old + "/CURRENT"));
  CHECK_FALSE(exists(there.old + "/gen-0001/store.db"));
}

TEST_CASE("a sealed store of format 1 stays") {
  const OldStore there(31);
  ::chmod(there.old.c_str(), 0500);
  CHECK(there.collect() == 0);
  CHECK(mode_of(there.old) == 0500);
  CHECK(exists(there.old + "/CURRENT"));
  ::chmod(there.old.c_str(), 0700);
}

}  // namespace
}  // namespace cukiln::testing
