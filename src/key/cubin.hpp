// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.hpp"

#include <cukiln/kernel_info.hpp>
#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// The result of a compile.
struct Cubin {
  SharedBytes image;
  std::vector<KernelInfo> kernels;  ///< of `image`
  std::string log;                  ///< NVRTC's; paths in it are virtual, so that it can be stored
};

/// Checks the ELF header: 64-bit, machine 190 (EM_CUDA), section table within `image`, SM version
/// of `target`. Errors: corrupt (not a cubin), incompatible (another target).
Result<void> check_image(ByteView image, Target target);

/// The stored form of a cubin's kernel list. Errors of decode: corrupt.
std::string encode_kernels(const std::vector<KernelInfo>& kernels);
Result<std::vector<KernelInfo>> decode_kernels(ByteView bytes);

}  // namespace cukiln
