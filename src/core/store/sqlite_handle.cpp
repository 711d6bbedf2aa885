// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_handle.hpp"

#include <sqlite3.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <initializer_list>
#include <memory>
#include <new>

#include "core/base/portable.hpp"
#include "core/base/result.hpp"
#include "core/store/wal_index_vfs.hpp"

namespace cukiln {

namespace {

int set_wal_pages(void* pages, sqlite3*, const char*, int count) {
  *static_cast<int*>(pages) = count;
  return SQLITE_OK;
}

/// True for a failure that a lack of space can cause.
bool may_lack_space(int code) noexcept {
  return code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_TRUNCATE ||
         code == SQLITE_IOERR_SHMSIZE || code == SQLITE_IOERR_FSYNC;
}

/// True if the last system call that failed on the database or its WAL did so for one of these
/// reasons. (`sqlite3_system_errno` returns a later errno.)
bool failed_for(sqlite3* db, std::initializer_list<int> reasons) noexcept {
  for (const int which : {SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_JOURNAL_POINTER}) {
    sqlite3_file* file = nullptr;
    int last = 0;
    if (sqlite3_file_control(db, "main", which, &file) == SQLITE_OK && file != nullptr &&
        file->pMethods != nullptr &&
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &last) == SQLITE_OK &&
        std::find(reasons.begin(), reasons.end(), last) != reasons.end()) {
      return true;
    }
  }
  return false;
}

/// Allocates memory that is not zeroed and whose pages are mapped in one call: a fault for each
/// page would take as long as reading into it. Before Linux 5.14 the pages are mapped one by one.
std::shared_ptr<char[]> populated_memory(std::size_t bytes) {
  std::shared_ptr<char[]> memory(new char[bytes]);
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kFewPages = 3;
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory.get()) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory.get()) + bytes) / kPage * kPage;
  if (end > begin + kFewPages * kPage) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, kMadvPopulateWrite);  // NOLINT
  }
  return memory;
}

ErrorCode code_of(SqliteTrouble trouble) noexcept {
  switch (trouble) {
    case SqliteTrouble::busy: return ErrorCode::timeout;
    case SqliteTrouble::corrupt: return ErrorCode::corrupt;
    default: return ErrorCode::io;
  }
}

}  // namespace

SqliteTrouble trouble_of(int code) noexcept {
  switch (code) {
    case SQLITE_READONLY_DBMOVED: return SqliteTrouble::moved;
    case SQLITE_IOERR_CORRUPTFS:
    case SQLITE_IOERR_DATA: return SqliteTrouble::corrupt;
    default: break;
  }
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return SqliteTrouble::none;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: return SqliteTrouble::busy;
    case SQLITE_FULL: return SqliteTrouble::full;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT: return SqliteTrouble::corrupt;
    case SQLITE_READONLY: return SqliteTrouble::read_only;
    default: return SqliteTrouble::other;  // SQLITE_NOMEM too
  }
}

Query::~Query() {
  if (statement_ != nullptr) {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
}

Query& Query::blob(ByteView bytes) noexcept {
  // A null pointer would bind NULL, which no column accepts.
  sqlite3_bind_blob64(statement_, ++parameter_, bytes.empty() ? "" : bytes.data(), bytes.size(),
                      SQLITE_STATIC);
  return *this;
}

Query& Query::text(ByteView text) noexcept {
  sqlite3_bind_text64(statement_, ++parameter_, text.empty() ? "" : text.data(), text.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Query& Query::number(std::int64_t value) noexcept {
  sqlite3_bind_int64(statement_, ++parameter_, value);
  return *this;
}

Result<bool> Query::next() {
  if (statement_ == nullptr) {
    return handle_->error(handle_->prepare_code_);
  }
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) {
    return true;
  }
  if (code == SQLITE_DONE) {
    return false;
  }
  return handle_->error(code);
}

Result<void> Query::run() {
  for (;;) {
    CUKILN_TRY(const bool row, next());
    if (!row) {
      return {};
    }
  }
}

std::int64_t Query::column_number(int column) const noexcept {
  assert(column < sqlite3_data_count(statement_));
  return sqlite3_column_int64(statement_, column);
}

ByteView Query::column_bytes(int column) const {
  assert(column < sqlite3_data_count(statement_));
  const void* bytes = sqlite3_column_blob(statement_, column);
  if (bytes == nullptr && sqlite3_errcode(handle_->db_) == SQLITE_NOMEM) {
    throw std::bad_alloc();  // as `new` does: an empty value would look like a damaged row
  }
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr
             ? ByteView()
             : ByteView(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

Result<SqliteHandle> SqliteHandle::open(const std::string& path, const Options& options,
                                        SqliteTrouble* trouble) {
  const int access = options.read_only
                         ? SQLITE_OPEN_READONLY
                         : SQLITE_OPEN_READWRITE | (options.create ? SQLITE_OPEN_CREATE : 0);
  SqliteHandle handle(nullptr);
  const int code = sqlite3_open_v2(
      path.c_str(), &handle.db_,
      access | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOFOLLOW, wal_index_vfs());
  sqlite3* const db = handle.db_;
  const auto failed = [&](int failure) {
    Error error = handle.error(failure).with_context("the database " + path);
    if (trouble != nullptr) {
      *trouble = handle.trouble();
    }
    return error;
  };
  if (code != SQLITE_OK) {
    return failed(code);
  }
  sqlite3_busy_timeout(db, options.busy_ms);
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, kMaxRowBytes);
  sqlite3_wal_autocheckpoint(db, 0);
  sqlite3_wal_hook(db, set_wal_pages, handle.wal_pages_);
  // The WAL is merged with the writer lock held only, and not by the connection that closes last.
  sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
  int persist = 1;
  sqlite3_file_control(db, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
  sqlite3_int64 no_mmap = 0;
  sqlite3_file_control(db, "main", SQLITE_FCNTL_MMAP_SIZE, &no_mmap);
  const int set = sqlite3_exec(db,
                               "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY;"
                               "PRAGMA synchronous=NORMAL; PRAGMA secure_delete=OFF",
                               nullptr, nullptr, nullptr);
  if (set != SQLITE_OK) {
    return failed(set);
  }
  handle.use_cache(Cache::small);
  return handle;
}

SqliteHandle::SqliteHandle(SqliteHandle&& other) noexcept
    : db_(std::exchange(other.db_, nullptr)),
      wal_pages_(std::exchange(other.wal_pages_, nullptr)),
      trouble_(other.trouble_),
      prepare_code_(other.prepare_code_),
      prepared_(std::exchange(other.prepared_, {})) {}

SqliteHandle& SqliteHandle::operator=(SqliteHandle&& other) noexcept {
  if (this != &other) {
    close();
    db_ = std::exchange(other.db_, nullptr);
    wal_pages_ = std::exchange(other.wal_pages_, nullptr);
    trouble_ = other.trouble_;
    prepare_code_ = other.prepare_code_;
    prepared_ = std::exchange(other.prepared_, {});
  }
  return *this;
}

SqliteHandle::~SqliteHandle() { close(); }

void SqliteHandle::close() noexcept {
  for (const Prepared& prepared : prepared_) {
    sqlite3_finalize(prepared.statement);
  }
  prepared_.clear();
  sqlite3_close_v2(db_);
  db_ = nullptr;
  delete wal_pages_;
  wal_pages_ = nullptr;
}

Result<void> SqliteHandle::execute(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    return error(code);
  }
  return {};
}

// The cache is small because a hit reads pages that it does not read again, and reused memory is
// cheaper than memory that the kernel has to clear and map; the operating system caches the pages.
// cache_spill keeps the changed pages of a transaction in memory until it is committed: a full disk
// has no room to write them twice.
void SqliteHandle::use_cache(Cache size) noexcept {
  sqlite3_exec(db_,
               size == Cache::small ? "PRAGMA cache_size=-128; PRAGMA cache_spill=1024"
                                    : "PRAGMA cache_size=-32768; PRAGMA cache_spill=8192",
               nullptr, nullptr, nullptr);
}

Query SqliteHandle::query(const char* sql) {
  assert(is_open());
  for (const Prepared& prepared : prepared_) {
    if (prepared.sql == sql) {
      return Query(*this, prepared.statement);
    }
  }
  prepared_.reserve(prepared_.size() + 1);  // before the statement exists: it would leak
  sqlite3_stmt* statement = nullptr;
  prepare_code_ = sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (prepare_code_ == SQLITE_OK) {
    prepared_.push_back({sql, statement});
  }
  return Query(*this, statement);
}

Result<std::int64_t> SqliteHandle::number(const char* sql, std::int64_t fallback) {
  Query asked = query(sql);
  CUKILN_TRY(const bool row, asked.next());
  return row ? asked.column_number(0) : fallback;
}

Result<SharedBytes> SqliteHandle::read_blob(const char* table, const char* column, std::int64_t row,
                                            std::int64_t bytes) {
  sqlite3_blob* opened = nullptr;
  int code = sqlite3_blob_open(db_, "main", table, column, row, 0, &opened);
  const std::unique_ptr<sqlite3_blob, int (*)(sqlite3_blob*)> blob(opened, sqlite3_blob_close);
  if (code == SQLITE_ERROR || (code == SQLITE_OK && sqlite3_blob_bytes(opened) != bytes)) {
    return SharedBytes();
  }
  std::shared_ptr<char[]> data;
  if (code == SQLITE_OK) {
    data = populated_memory(static_cast<std::size_t>(bytes));
    code = sqlite3_blob_read(opened, data.get(), static_cast<int>(bytes), 0);
  }
  if (code != SQLITE_OK) {
    return error(code);
  }
  const ByteView view(data.get(), static_cast<std::size_t>(bytes));
  return SharedBytes(std::move(data), view);
}

bool SqliteHandle::has_failed_to_read() const noexcept {
  return failed_for(db_, {EIO, ENXIO, ERANGE});
}

void SqliteHandle::set_busy_timeout(int milliseconds) noexcept {
  sqlite3_busy_timeout(db_, milliseconds);
}

bool SqliteHandle::in_transaction() const noexcept { return sqlite3_get_autocommit(db_) == 0; }
int SqliteHandle::changes() const noexcept { return sqlite3_changes(db_); }
std::int64_t SqliteHandle::last_row_id() const noexcept { return sqlite3_last_insert_rowid(db_); }

Error SqliteHandle::error(int code) {
  trouble_ = trouble_of(code);
  if (db_ != nullptr && may_lack_space(code) && failed_for(db_, {EFBIG, EDQUOT, ENOSPC})) {
    trouble_ = SqliteTrouble::full;  // SQLite itself reports only ENOSPC of a plain write as full
  }
  if (code == SQLITE_ERROR && (db_ == nullptr || sqlite3_errcode(db_) != SQLITE_NOMEM)) {
    // "unsupported file format", or a table or column is missing.
    trouble_ = SqliteTrouble::corrupt;
  }
  const char* words = db_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db_);
  return make_error(code_of(trouble_), "SQLite: {} (code {})", words, code);
}

Result<WriteTransaction> WriteTransaction::begin(SqliteHandle& db) {
  assert(!db.in_transaction());
  CUKILN_CHECK(db.query("BEGIN IMMEDIATE").run());
  return WriteTransaction(db);
}

WriteTransaction::~WriteTransaction() {
  if (db_ != nullptr) {
    // After some errors (full, io) SQLite has rolled back already, and this fails harmlessly.
    sqlite3_exec(db_->raw(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

Result<void> WriteTransaction::commit() {
  assert(db_ != nullptr);  // it was neither committed nor moved from
  if (!db_->in_transaction()) {
    return make_error(ErrorCode::io, "SQLite ended the transaction after an error of the disk");
  }
  CUKILN_CHECK(db_->query("COMMIT").run());
  db_ = nullptr;
  return {};
}

}  // namespace cukiln
