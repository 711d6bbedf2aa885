// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.hpp"

#include <cukiln/result.hpp>

struct sqlite3;
struct sqlite3_stmt;

namespace cukiln {

/// The kinds of SQLite's failures that callers treat differently.
enum class SqliteTrouble {
  none,
  busy,       ///< another connection holds a lock
  full,       ///< no space, no quota, or a limit on file sizes
  corrupt,    ///< the file is not a healthy database
  moved,      ///< the file was renamed or unlinked while it was open
  read_only,  ///< the file or its folder may not be written
  other,
};
SqliteTrouble trouble_of(int code) noexcept;

/// The largest row or value. A damaged length must not allocate all memory of the machine.
inline constexpr int kMaxRowBytes = 512 << 20;

class SqliteHandle;

/// A prepared statement in use. Its destructor resets it, so that no read transaction outlives the
/// lookup that started it and pins the WAL. Bind the parameters in order, then call `next` or
/// `run`.
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

  /// Bound bytes are not copied and must outlive the query.
  Query& blob(ByteView bytes) noexcept;
  Query& text(ByteView text) noexcept;
  Query& number(std::int64_t value) noexcept;

  /// Steps to the next row. False at the end.
  Result<bool> next();
  Result<void> run();

  /// The columns of the current row: call after `next` returned true.
  std::int64_t column_number(int column) const noexcept;
  /// Valid until the next call of `next`.
  ByteView column_bytes(int column) const;

 private:
  SqliteHandle* handle_;
  sqlite3_stmt* statement_;
  int parameter_ = 0;
};

/// One connection with its prepared statements. Threads: one at a time.
class SqliteHandle {
 public:
  struct Options {
    bool create = false;
    bool read_only = false;
    int busy_ms = 250;
  };

  /// Opens a database, never through a symbolic link or a URI. Errors: those of `error`; `trouble`
  /// receives the kind of failure.
  static Result<SqliteHandle> open(const std::string& path, const Options& options,
                                   SqliteTrouble* trouble = nullptr);

  SqliteHandle() = default;
  SqliteHandle(SqliteHandle&& other) noexcept;
  SqliteHandle& operator=(SqliteHandle&& other) noexcept;
  ~SqliteHandle();

  Result<void> execute(const char* sql);
  /// `sql` must be a literal: prepared statements are found by its address.
  Query query(const char* sql);
  /// Returns the first column of the first row, or `fallback` if there is no row.
  Result<std::int64_t> number(const char* sql, std::int64_t fallback = 0);

  /// Reads a blob in the snapshot of a query that is in use. Empty if there is no such row, or the
  /// blob does not have `bytes` bytes.
  Result<SharedBytes> read_blob(const char* table, const char* column, std::int64_t row,
                                std::int64_t bytes);

  /// True if the last read that failed was an I/O error of the disk. `quick_check` reports one in
  /// its text, like damage.
  bool has_failed_to_read() const noexcept;

  void set_busy_timeout(int milliseconds) noexcept;
  /// The size of the page cache. A handle starts with the small one; the large one is for
  /// transactions that change many rows all over the file.
  enum class Cache { small, large };
  void use_cache(Cache size) noexcept;
  /// True between the begin and the end of a WriteTransaction.
  bool in_transaction() const noexcept;
  int changes() const noexcept;
  std::int64_t last_row_id() const noexcept;
  /// Pages in the WAL after the last commit of this connection.
  int wal_pages() const noexcept { return *wal_pages_; }
  void forget_wal_pages() noexcept { *wal_pages_ = 0; }

  /// Makes an Error with SQLite's message and the mapped code: corrupt, timeout (busy), io. Sets
  /// `trouble`.
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
  int* wal_pages_ = nullptr;  // on the heap: SQLite's hook writes it, and this object moves
  SqliteTrouble trouble_ = SqliteTrouble::none;
  int prepare_code_ = 0;
  std::vector<Prepared> prepared_;
  friend class Query;
};

/// A transaction, BEGIN IMMEDIATE … COMMIT, which the destructor rolls back unless it was
/// committed. There is no deferred kind: it fails with SQLITE_BUSY_SNAPSHOT when it starts to
/// write, whatever the timeout.
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
