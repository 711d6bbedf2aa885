// SPDX-License-Identifier: Apache-2.0
#include "loader/builder.hpp"

namespace cukiln {

std::string Miss::text() const {
  switch (why) {
    case Why::not_stored: return "not stored";
    case Why::changed: return "header changed: " + path;
    case Why::appeared: return "header appeared: " + path;
    case Why::vanished: return "header vanished: " + path;
    case Why::relinked: return "header linked otherwise: " + path;
    case Why::damaged: return "the stored entry was damaged";
    case Why::unvouched:
      return "there are no headers of CUDA here to check the stored entry's with, and the process "
             "that compiled it did not sign that they are its own";
    case Why::evicted: return "the stored entry was evicted";
    case Why::revoked: return "the stored entry was signed by a key that was revoked";
    case Why::out_of_scope:
      return "the stored entry was signed by a key that is not trusted for this module";
  }
  return {};
}

}  // namespace cukiln
