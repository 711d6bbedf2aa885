// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.hpp"

#include <cukiln/kernel_info.hpp>
#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// What a compile gives: immutable bytes, the kernels in them, the compiler's log (with the user's
/// own file names replaced by virtual ones, so that it can be stored).
struct Cubin {
  SharedBytes image;
  std::vector<KernelInfo> kernels;
  std::string log;
};

/// Whether the bytes can be a cubin for `target`: ELF, machine 190 (EM_CUDA), non-empty, the SM
/// version of the header's flags. Errors: corrupt (not a cubin), incompatible (another target).
Result<void> check_image(ByteView image, Target target);

std::string encode_kernels(const std::vector<KernelInfo>& kernels);
Result<std::vector<KernelInfo>> decode_kernels(ByteView bytes);

}  // namespace cukiln
