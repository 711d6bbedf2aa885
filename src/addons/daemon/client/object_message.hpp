// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "addons/daemon/protocol/daemon_frame.hpp"
#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/store/object_codec.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Makes the attachment of `object` and of `put_blob`: an object as stores encode it, the PTX that
/// its compile made too, and a checksum. Errors: io.
Result<UniqueFd> seal_object(const Object& object, ByteView ptx = {});
/// Decodes such an attachment, to which the object's `data` refers, without its PTX if `ptx` is
/// null. Nothing if it is malformed.
std::optional<Object> open_object(const SharedBytes& attachment, std::string* ptx = nullptr);

/// The entry, or the blob, in a frame's attachment. Nothing if it is malformed, or not what its
/// name says.
std::optional<StoreEntry> entry_of(const wire::DaemonFrame& frame);
std::optional<StoreBlob> blob_of(const wire::DaemonFrame& frame);

}  // namespace cukiln
