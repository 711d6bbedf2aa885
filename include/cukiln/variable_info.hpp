// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cukiln {
inline namespace v0 {

/// A `__device__` or `__constant__` variable of a cubin that one of the module's names is the
/// address of.
struct VariableInfo {
  // schema: VariableInfo. Written by src/schema/generate.py
  std::string name;     ///< in the canonical spelling: `ns::table<float>`, without `&`
  std::string lowered;  ///< the symbol in the cubin
  std::uint64_t size_bytes = 0;
  bool is_constant = false;  ///< `__constant__`
  // end of schema
};

}  // namespace v0
}  // namespace cukiln
