-- The store's tables in format 6. FORMAT.md says what every column holds. Columns that inventories and
-- evictions read come first: SQLite leaves the rest of a long row on overflow pages, unread.
CREATE TABLE meta(
  k TEXT PRIMARY KEY,
  v ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE request(
  id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE,
  only_entry INTEGER NOT NULL,
  peak_bytes INTEGER NOT NULL,
  check128 BLOB NOT NULL,
  canonical BLOB NOT NULL,
  tree BLOB NOT NULL
) STRICT;

-- An entry, a failure or a blob. A failure is the entry of a program that NVRTC refused: it has a request and a set.
CREATE TABLE object(
  id INTEGER PRIMARY KEY,
  name BLOB NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  request BLOB NOT NULL,
  created_s INTEGER NOT NULL,
  last_used_s INTEGER NOT NULL,
  hits INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  origin INTEGER NOT NULL,
  check128 BLOB NOT NULL,
  signer TEXT NOT NULL,
  summary BLOB NOT NULL,
  details BLOB NOT NULL
) STRICT;
CREATE INDEX object_request ON object(request);
CREATE INDEX object_lru ON object(last_used_s, kind, bytes);

-- Apart from `object`, whose rows are written again with each use.
CREATE TABLE payload(
  id INTEGER PRIMARY KEY,
  source_text BLOB NOT NULL,
  data BLOB NOT NULL
) STRICT;
CREATE TRIGGER object_gone AFTER DELETE ON object BEGIN
  DELETE FROM payload WHERE id = OLD.id;
  DELETE FROM request WHERE digest = OLD.request
    AND NOT EXISTS (SELECT 1 FROM object WHERE request = OLD.request);
END;

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
