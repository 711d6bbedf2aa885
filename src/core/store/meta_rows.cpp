// SPDX-License-Identifier: Apache-2.0
#include "core/store/meta_rows.hpp"

#include <array>
#include <cassert>
#include <string_view>

#include <fmt/format.h>

#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr const char* kRows[] = {"store_uuid", "min_reader", "min_writer"};

bool is_uuid(ByteView type, ByteView value) {
  return type == "text" && value.size() == 32 &&
         value.find_first_not_of("0123456789abcdef") == ByteView::npos;
}

}  // namespace

Result<std::vector<std::string>> check_meta(SqliteHandle& db, const StoreSchema& schema) {
  std::vector<std::string> wrong;
  CUKILN_TRY(const std::int64_t version, db.number("PRAGMA user_version"));
  if (version != schema.version) {
    return wrong;
  }
  std::array<bool, std::size(kRows)> is_there{};
  Query query = db.query("SELECT k, typeof(v), v FROM meta");
  for (;;) {
    CUKILN_TRY(const bool there, query.next());
    if (!there) {
      break;
    }
    const std::string name(query.column_bytes(0));
    const std::string type(query.column_bytes(1));
    const std::int64_t number = query.column_number(2);
    bool is_right = false;
    if (name == kRows[0]) {
      is_there[0] = true;
      is_right = is_uuid(type, query.column_bytes(2));
    } else if (name == kRows[1]) {
      is_there[1] = true;
      is_right = type == "integer" && number == schema.min_reader;
    } else if (name == kRows[2]) {
      is_there[2] = true;
      is_right = type == "integer" && number == schema.min_writer;
    }
    if (!is_right) {
      wrong.push_back(fmt::format("the row {} of meta is damaged", name));
    }
  }
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    if (!is_there[i]) {
      wrong.push_back(fmt::format("the row {} of meta is missing", kRows[i]));
    }
  }
  return wrong;
}

Result<void> write_meta(SqliteHandle& db, const StoreSchema& schema) {
  assert(db.in_transaction());
  CUKILN_CHECK(
      db.query("DELETE FROM meta WHERE k NOT IN ('store_uuid', 'min_reader', 'min_writer') "
               "OR (k='store_uuid' AND (typeof(v)<>'text' OR length(v)<>32 "
               "OR v GLOB '*[^0-9a-f]*'))")
          .run());
  CUKILN_CHECK(db.query("INSERT OR IGNORE INTO meta(k, v) "
                        "VALUES('store_uuid', lower(hex(randomblob(16))))")
                   .run());
  return db.query("INSERT OR REPLACE INTO meta(k, v) VALUES('min_reader', ?), ('min_writer', ?)")
      .number(schema.min_reader)
      .number(schema.min_writer)
      .run();
}

}  // namespace cukiln
