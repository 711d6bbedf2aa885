// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "addons/fleet/envelope.hpp"
#include "addons/fleet/keys.hpp"
#include "core/store/cubin_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

// An OCI image layout (image specification 1.1) whose one layer is a system store: mounted as an
// image volume at the path of a system store, or copied there, it is one. See cache/FORMAT.md, "OCI
// image". The same store and key give the same bytes.

/// What registries and people see of an image.
struct OciLabels {
  std::string version;               ///< of cukiln
  std::vector<std::string> targets;  ///< sorted
  std::vector<std::string> modules;  ///< names, sorted
};

struct OciSummary {
  std::string digest;  ///< of the image's manifest, `sha256:…`
  std::uint64_t bytes = 0;
};

/// Writes the layout of the system store in `store` to a folder, which is made if it is missing. A
/// layout that is there is replaced: readers see the image before or after, never half. If `key` is
/// not null, an annotation of the manifest is the key's signature of the unpacked layer's digest.
/// Errors: invalid_argument (another folder than a layout), io.
Result<OciSummary> write_oci_layout(const std::string& directory, const std::string& store,
                                    const OciLabels& labels, const SecretKey* key);

/// True if a path is a folder that claims to be a layout.
bool is_oci_layout(const std::string& path) noexcept;

/// Calls `on_entry` with every entry of a layout that `write_oci_layout` wrote, after the digest of
/// each blob of the layout, the signature and the entry itself were checked; its signers are as
/// those of open_entry. Then calls `on_blob`, unless it is empty, with every blob of the store.
/// Unpacks to a folder that it removes, below `scratch`. Errors: not_found (no layout), io;
/// corrupt, with `why`; those of the bodies.
Result<void> for_each_of_oci_layout(const std::string& directory, const std::string& scratch,
                                    const OpenRules& rules, Rejection& why,
                                    const std::function<Result<void>(const StoreEntry&)>& on_entry,
                                    const std::function<Result<void>(const StoreBlob&)>& on_blob);

}  // namespace cukiln
