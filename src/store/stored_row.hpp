#pragma once

#include <cstdint>
#include <string>

#include "store/sqlite_handle.hpp"

namespace cukiln {

/// The columns of a StoredRow, then the key; a condition follows.
#define CUKILN_SELECT_ENTRY                                                                       \
  "SELECT check128, request_canonical, dependencies, cubin_id, cubin_bytes, kernels, log, name, " \
  "source, target, flags, compiler, signer, origin, compile_us, created_s, last_used_s, hits, "   \
  "key FROM entry WHERE "
inline constexpr int kKeyColumn = 18;

/// A row of `entry`.
struct StoredRow {
  std::string check128, request_canonical, dependencies;
  std::int64_t cubin_id, cubin_bytes;
  std::string kernels, log, name, source, target, flags, compiler, signer;
  std::int64_t origin, compile_us, created_s, last_used_s, hits;

  explicit StoredRow(const Query& query)
      : check128(query.column_bytes(0)),
        request_canonical(query.column_bytes(1)),
        dependencies(query.column_bytes(2)),
        cubin_id(query.column_number(3)),
        cubin_bytes(query.column_number(4)),
        kernels(query.column_bytes(5)),
        log(query.column_bytes(6)),
        name(query.column_bytes(7)),
        source(query.column_bytes(8)),
        target(query.column_bytes(9)),
        flags(query.column_bytes(10)),
        compiler(query.column_bytes(11)),
        signer(query.column_bytes(12)),
        origin(query.column_number(13)),
        compile_us(query.column_number(14)),
        created_s(query.column_number(15)),
        last_used_s(query.column_number(16)),
        hits(query.column_number(17)) {}
};

}  // namespace cukiln
