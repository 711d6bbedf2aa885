// SPDX-License-Identifier: Apache-2.0
#include "core/loader/fixed_blobs.hpp"

#include "core/base/fork_gate.hpp"
#include "core/base/printable.hpp"
#include "core/base/result.hpp"
#include "core/store/blob_name.hpp"

namespace cukiln {

Result<std::optional<std::string>> FixedBlobs::get(
    std::string_view kind, std::string_view key,
    const std::function<Result<void>(std::string_view bytes)>& check) {
  CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
  const std::pair<std::string, std::string> id(kind, key);
  {
    const ForkSafeLock lock(mutex_);
    if (const auto known = blobs_.find(id); known != blobs_.end()) {
      return known->second;
    }
  }
  CUKILN_TRY(const auto blob, tiers_.get(name));
  const Result<void> checked = blob ? check(blob->bytes.view()) : Result<void>();
  std::optional<std::string> bytes;
  if (blob && checked) {
    bytes = blob->bytes.view();
  }
  bool is_first = false;
  std::optional<std::string> fixed;
  {
    const ForkSafeLock lock(mutex_);
    const auto [at, is_new] = blobs_.try_emplace(id, std::move(bytes));
    is_first = is_new;
    fixed = at->second;  // of another thread, if it came first
  }
  if (is_first && !checked) {
    log_.warn(
        "ignored the blob {} of kind {}: {}; 'cukiln show {}' shows it, 'cukiln rm' removes it",
        printable(key), kind, checked.error().message(), name.id.hex().substr(0, 12));
  }
  return fixed;
}

}  // namespace cukiln
