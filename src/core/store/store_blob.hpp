// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/base/bytes.hpp"

namespace cukiln {

/// A blob with its bytes and where it is from.
struct StoreBlob {
  std::string kind, key;
  SharedBytes bytes;
  std::string signer;          ///< the chain of its signers (store/signers.hpp); empty if made here
  std::int64_t created_s = 0;  ///< set by the store that it is put into

  /// Returns a blob that was made here. The caller keeps the bytes alive.
  static StoreBlob borrowed(ByteView kind, ByteView key, ByteView bytes) {
    return {std::string(kind), std::string(key), SharedBytes::borrowed(bytes), {}, 0};
  }
};

}  // namespace cukiln
