// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sodium.h>

#include <string>

#include "core/base/bytes.hpp"

namespace cukiln {

/// Returns bytes as standard base64, with padding.
inline std::string to_base64(ByteView bytes) {
  std::string text(sodium_base64_ENCODED_LEN(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  ::sodium_bin2base64(text.data(), text.size(),
                      reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                      sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // the final NUL
  return text;
}

}  // namespace cukiln
