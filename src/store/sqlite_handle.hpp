// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"

#include <cukiln/result.hpp>

struct sqlite3;
struct sqlite3_stmt;

namespace cukiln {

/// What a failed SQLite call asks of its caller.
enum class SqliteTrouble {
  none,
  busy,       ///< somebody else holds a lock: give up for now
  full,       ///< no space, no quota, or the file may not grow
  corrupt,    ///< the file is not a healthy database
  moved,      ///< the file was renamed or unlinked under us
  read_only,  ///< the file or its folder may not be written
  other,
};
SqliteTrouble trouble_of(int code) noexcept;

/// No row and no value is larger: a damaged length must not ask for the machine's memory.
inline constexpr int kMaxRowBytes = 512 << 20;

class SqliteHandle;

/// A prepared statement in use. It is reset when this goes, so that no read transaction outlives
/// the lookup that began it and pins the WAL. Bind in order, then `next` or `run`.
class Query {
 public:
  Query(SqliteHandle& handle, sqlite3_stmt* statement) noexcept
      : handle_(&handle), statement_(statement) {}
  Query(Query&& other) noexcept
      : handle_(other.handle_),
        statement_(std::exchange(other.statement_, nullptr)),
        parameter_(other.parameter_) {}
  Query& operator=(Query&&) = delete;
  ~Query();

  /// Bound bytes are not copied: they outlive this.
  Query& blob(ByteView bytes) noexcept;
  Query& text(ByteView text) noexcept;
  Query& number(std::int64_t value) noexcept;

  /// True: a row is there to be read. False: the end.
  Result<bool> next();
  Result<void> run();

  std::int64_t column_number(int column) const noexcept;
  /// Valid until the next call of `next`.
  ByteView column_bytes(int column) const;

 private:
  SqliteHandle* handle_;
  sqlite3_stmt* statement_;
  int parameter_ = 0;
};

/// One connection, with its prepared statements. Threads: one at a time.
class SqliteHandle {
 public:
  struct Options {
    bool create = false;
    bool read_only = false;
    int busy_ms = 250;
  };

  /// The file is never opened through a symbolic link or a URI. Errors: as `error`; `trouble`: what
  /// it came from.
  static Result<SqliteHandle> open(const std::string& path, const Options& options,
                                   SqliteTrouble* trouble = nullptr);

  SqliteHandle() = default;
  SqliteHandle(SqliteHandle&& other) noexcept;
  SqliteHandle& operator=(SqliteHandle&& other) noexcept;
  ~SqliteHandle();

  Result<void> execute(const char* sql);
  /// `sql` is a literal: statements are kept by its address.
  Query query(const char* sql);
  /// The first column of the first row, or `fallback`.
  Result<std::int64_t> number(const char* sql, std::int64_t fallback = 0);

  /// A blob by its row, in the snapshot of a query that is in use. Empty: there is no such row, or
  /// it does not have `bytes` bytes.
  Result<SharedBytes> read_blob(const char* table, const char* column, std::int64_t row,
                                std::int64_t bytes);

  void set_busy_timeout(int milliseconds) noexcept;
  /// Of pages. Large is for who changes many rows from all over; small is what a handle begins
  /// with.
  enum class Cache { small, large };
  void use_cache(Cache size) noexcept;
  int changes() const noexcept;
  std::int64_t last_row_id() const noexcept;
  /// Pages in the WAL after the last commit of this connection.
  int wal_pages() const noexcept { return *wal_pages_; }
  void forget_wal_pages() noexcept { *wal_pages_ = 0; }

  /// An Error with SQLite's words, the code mapped: corrupt, timeout (busy), io. Remembers the
  /// trouble.
  Error error(int code);
  SqliteTrouble trouble() const noexcept { return trouble_; }  ///< of the last error
  void forget_trouble() noexcept { trouble_ = SqliteTrouble::none; }
  bool is_open() const noexcept { return db_ != nullptr; }
  sqlite3* raw() noexcept { return db_; }

 private:
  struct Prepared {
    const char* sql;
    sqlite3_stmt* statement;
  };
  explicit SqliteHandle(sqlite3* db) : db_(db), wal_pages_(new int(0)) {}
  void close() noexcept;

  sqlite3* db_ = nullptr;
  int* wal_pages_ = nullptr;  // SQLite's hook writes it: it must not move with this object
  SqliteTrouble trouble_ = SqliteTrouble::none;
  int prepare_code_ = 0;
  std::vector<Prepared> prepared_;
  friend class Query;
};

/// BEGIN IMMEDIATE … COMMIT; rolled back unless committed. A deferred transaction that turns into a
/// writer fails at once with SQLITE_BUSY_SNAPSHOT whatever the timeout, so there is no other kind.
class WriteTransaction {
 public:
  static Result<WriteTransaction> begin(SqliteHandle& db);
  WriteTransaction(WriteTransaction&& other) noexcept : db_(std::exchange(other.db_, nullptr)) {}
  WriteTransaction& operator=(WriteTransaction&&) = delete;
  ~WriteTransaction();
  Result<void> commit();

 private:
  explicit WriteTransaction(SqliteHandle& db) noexcept : db_(&db) {}
  SqliteHandle* db_;
};

}  // namespace cukiln
