// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/file.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/store_blob.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

class SqliteStore;

/// Calls `on_entry` with every entry of the system store in a folder, whole and checked, in the
/// order of their keys, then `on_blob`, unless it is empty, with every blob in the order of their
/// ids. Errors: not_found (there is no store), those of the bodies; corrupt (one is damaged).
Result<void> for_each_of_system_store(const std::string& directory,
                                      const std::function<Result<void>(StoreEntry)>& on_entry,
                                      const std::function<Result<void>(StoreBlob)>& on_blob);

/// Writes a system store (cache/FORMAT.md, "System store"): the folder that an image or an
/// administrator hands to other users, readable by all, writable by no process. What the folder has
/// already is kept. The same entries give the same bytes, whichever process compiled them and in
/// whatever order they are added. Readers see the store before or after `finish`, and nothing in
/// between. Threads: one at a time.
class SystemStoreWriter {
 public:
  /// Creates missing folders, 0755. Errors: invalid_argument (the folder is open to other users, is
  /// another user's, or is a store that processes write), timeout (another process writes it), io;
  /// corrupt (what is there is damaged).
  static Result<SystemStoreWriter> create(const std::string& directory);
  SystemStoreWriter(SystemStoreWriter&&) noexcept;
  SystemStoreWriter& operator=(SystemStoreWriter&&) = delete;
  /// Removes what was not finished.
  ~SystemStoreWriter();

  /// Adds an entry, without what differs between two compiles of it: times, uses. Errors: those of
  /// ObjectTier::put.
  Result<PutOutcome> add(StoreEntry entry);
  /// Adds a blob, unless there is one of its name. Errors: those of SqliteStore::put.
  Result<PutOutcome> add(const StoreBlob& blob);

  struct Summary {
    std::string directory;      ///< as resolved
    std::string database;       ///< `v6/gen-0001/store.db`, below it
    std::uint64_t entries = 0;  ///< with those that were there before
    std::uint64_t bytes = 0;
  };
  /// Makes the entries the store's. Call it once. Errors: io.
  Result<Summary> finish();

 private:
  SystemStoreWriter(std::string top, UniqueFd lock);
  std::string folder(const char* name) const;

  std::string top_;
  UniqueFd lock_;  // of the store's folder
  std::unique_ptr<SqliteStore> staged_;
};

}  // namespace cukiln
