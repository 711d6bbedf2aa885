// SPDX-License-Identifier: Apache-2.0
#include "core/store/wal_index_vfs.hpp"

#include <sqlite3.h>

#include "core/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

// fault 129
TEST_CASE("a store changes nothing for a host's own use of the same SQLite") {
  const ScratchFolder folder;
  const sqlite3_vfs* const before = sqlite3_vfs_find(nullptr);
  put_numbers(*open_store_at(folder / "s"), 0, 1);
  CHECK(sqlite3_vfs_find(nullptr) == before);
  CHECK(before->zName == std::string("unix"));

  const char* const ours = wal_index_vfs();
  REQUIRE(ours != nullptr);
  CHECK(sqlite3_vfs_find(ours) != nullptr);
  CHECK(sqlite3_vfs_find(ours) != before);

  const auto map_of = [&](const char* vfs) {
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open_v2((folder / "host.db").c_str(), &db,
                            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs) == SQLITE_OK);
    sqlite3_file* file = nullptr;
    REQUIRE(sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK);
    const auto map = file->pMethods->xShmMap;
    sqlite3_close(db);
    return map;
  };
  CHECK((map_of(nullptr) == map_of("unix")));
  CHECK((map_of(nullptr) != map_of(ours)));
}

// fault 129
TEST_CASE("a host that shuts SQLite down and starts it again does not lose the store's VFS") {
  const ScratchFolder folder;
  put_numbers(*open_store_at(folder / "s"), 0, 1);
  REQUIRE(sqlite3_shutdown() == SQLITE_OK);
  CHECK(sqlite3_vfs_find(wal_index_vfs()) != nullptr);
  CHECK(count_hits(*open_store_at(folder / "s"), 0, 1) == 1);
}

}  // namespace
}  // namespace cukiln::testing
