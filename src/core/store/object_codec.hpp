// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/key/entry_labels.hpp"
#include "core/key/output_kind.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/object_name.hpp"
#include "core/store/store_blob.hpp"

#include <cukiln/kernel_info.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// The kind of an entry that is a failure. No blob has it: it is no BlobName's.
#define CUKILN_FAILURE_KIND "!failure"

/// What a tier keeps under a name: an entry or a blob, encoded (cache/FORMAT.md, "Objects").
struct Object {
  ObjectName name;
  std::string kind;     ///< a blob's; empty: an entry; CUKILN_FAILURE_KIND
  std::string request;  ///< the canonical request of an entry
  std::string
      summary;  ///< what inventories show: labels and kernels of an entry, the key of a blob
  std::string details;  ///< the dependency set and the log of an entry
  std::string signer;
  Origin origin = Origin::compiled;
  std::int64_t created_s = 0;
  SharedBytes data;

  bool is_entry() const noexcept { return kind.empty(); }
  bool is_failure() const noexcept { return kind == CUKILN_FAILURE_KIND; }
  /// The approximate size in a store: the bytes of the columns, and the slack of pages.
  std::uint64_t bytes() const noexcept;
};

Object encode(const StoreEntry& entry);
/// `data` refers to the bytes of the blob, which must outlive it.
Object encode(const StoreBlob& blob);

/// Decodes an object from outside this process to an entry without its source text. Checks that
/// request and set hash to the name, and that the image is one for the target. Errors: corrupt,
/// incompatible.
Result<StoreEntry> decode_entry(Object object);
/// Decodes an entry for a caller that knows the digest of `object.request`, and what its compile
/// returns. Checks and errors: as above.
Result<StoreEntry> decode_entry(Object object, const RequestDigest& request, OutputKind output);
/// Decodes an object to a blob. Checks that kind and key hash to the name. Errors: corrupt.
Result<StoreBlob> decode_blob(Object object);

/// The decoded `summary` of an entry.
struct EntrySummaryFields {
  EntryLabels labels;
  std::vector<KernelInfo> kernels;
  std::int64_t compile_us = 0;
  std::uint32_t files = 0;  ///< in the dependency set
};
/// Errors: corrupt.
Result<EntrySummaryFields> decode_summary(ByteView summary);
/// Returns the dependency set in the `details` of an entry, encoded. Nothing if they are malformed.
std::optional<ByteView> set_in_details(ByteView details);

/// Checks that key, request, set and image of an entry belong together. Errors: invalid_argument.
Result<void> check_consistent(const StoreEntry& entry, const Object& encoded);

}  // namespace cukiln
