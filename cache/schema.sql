-- The store's tables in format 6. FORMAT.md says what every column holds. Columns that inventories and
-- evictions read come first: SQLite leaves the rest of a long row on overflow pages, unread.
CREATE TABLE meta(
  k TEXT PRIMARY KEY,
  v ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE cubin(
  id INTEGER PRIMARY KEY,
  data BLOB NOT NULL
) STRICT;

CREATE TABLE request(
  id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE,
  only_entry INTEGER NOT NULL,
  check128 BLOB NOT NULL,
  canonical BLOB NOT NULL,
  tree BLOB NOT NULL
) STRICT;

CREATE TABLE entry(
  id INTEGER PRIMARY KEY,
  key BLOB NOT NULL UNIQUE,
  request BLOB NOT NULL,
  cubin_id INTEGER NOT NULL REFERENCES cubin(id),
  created_s INTEGER NOT NULL,
  last_used_s INTEGER NOT NULL,
  hits INTEGER NOT NULL,
  compile_us INTEGER NOT NULL,
  origin INTEGER NOT NULL,
  cubin_bytes INTEGER NOT NULL,
  dependency_count INTEGER NOT NULL,
  check128 BLOB NOT NULL,
  name TEXT NOT NULL,
  source TEXT NOT NULL,
  target TEXT NOT NULL,
  flags TEXT NOT NULL,
  compiler TEXT NOT NULL,
  signer TEXT NOT NULL,
  kernels BLOB NOT NULL,
  dependencies BLOB NOT NULL,
  log TEXT NOT NULL,
  source_text BLOB NOT NULL
) STRICT;
CREATE INDEX entry_request ON entry(request);
CREATE INDEX entry_lru ON entry(last_used_s);
CREATE TRIGGER entry_gone AFTER DELETE ON entry BEGIN
  DELETE FROM cubin WHERE id = OLD.cubin_id;
  DELETE FROM compile_peak WHERE key = OLD.key;
  DELETE FROM request WHERE digest = OLD.request
    AND NOT EXISTS (SELECT 1 FROM entry WHERE request = OLD.request);
END;

CREATE TABLE compile_peak(
  key BLOB PRIMARY KEY,
  peak_bytes INTEGER NOT NULL,
  check64 INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE blob(
  id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  key BLOB NOT NULL,
  created_s INTEGER NOT NULL,
  last_used_s INTEGER NOT NULL,
  hits INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  signer TEXT NOT NULL,
  check128 BLOB NOT NULL,
  data BLOB NOT NULL
) STRICT;
CREATE INDEX blob_lru ON blob(last_used_s, bytes);

CREATE TABLE stat_cache(
  path TEXT PRIMARY KEY,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL,
  digest BLOB NOT NULL,
  note TEXT NOT NULL,
  recorded_ns INTEGER NOT NULL,
  check64 INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE counter(
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
