// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cukiln {
inline namespace v0 {

/// A `__global__` function of a cubin, and the resources it uses as reported by ptxas.
struct KernelInfo {
  // schema: KernelInfo. Written by src/schema/generate.py
  /// `amax_gsa`, or a name expression in the canonical spelling: `ns::k<float, 4>`, without a
  /// leading `&`
  std::string name;
  std::string lowered;             ///< the symbol in the cubin
  std::uint32_t registers = 0;     ///< per thread
  std::uint32_t shared_bytes = 0;  ///< static shared memory per block
  std::uint32_t local_bytes = 0;   ///< stack frame per thread
  std::uint32_t spill_bytes = 0;   ///< spill stores and loads per thread
  // end of schema
};

}  // namespace v0
}  // namespace cukiln
