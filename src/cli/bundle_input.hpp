// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/context.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/store_blob.hpp"

namespace cukiln {
class TrustedKeys;
}

namespace cukiln::cli {

/// What a command reads entries from, a bundle or an OCI image layout, and whose entries it
/// accepts: the options `--trust` and `--insecure`, and the setting `remote_trust`.
class BundleInput {
 public:
  void add_to(CLI::App& app);
  /// Reads the trusted keys. Call it before `for_each`. Errors: invalid_argument, not_found, io.
  Result<void> read_keys(const Context& context);

  using EntryBody = std::function<Result<void>(const StoreEntry&)>;
  using BlobBody = std::function<Result<void>(const StoreBlob&)>;
  /// Calls `on_entry` with each entry after all checks; its origin is `imported`. Then calls
  /// `on_blob` with each blob after all checks; if it is empty, blobs are not read. Errors:
  /// not_found, invalid_argument, io (the file or layout); corrupt, with advice; those of the
  /// bodies.
  Result<void> for_each(const std::string& path, const EntryBody& on_entry,
                        const BlobBody& on_blob = {}) const;

 private:
  Result<void> for_each_of_layout(const std::string& path, const EntryBody& on_entry,
                                  const BlobBody& on_blob) const;

  std::vector<std::string> trust_;
  bool insecure_ = false;
  std::shared_ptr<const TrustedKeys> trusted_;
};

/// Returns the exit code for an error of `BundleInput::for_each`.
Exit exit_of_bundle(const Error& error) noexcept;

}  // namespace cukiln::cli
