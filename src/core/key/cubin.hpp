// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/key/output_kind.hpp"

#include <cukiln/kernel_info.hpp>
#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// The result of a compile.
struct Cubin {
  SharedBytes image;                ///< or PTX, LTO-IR, OptiX-IR: see OutputKind
  std::vector<KernelInfo> kernels;  ///< of `image`
  std::string log;                  ///< NVRTC's; paths in it are virtual, so that it can be stored
  SharedBytes ptx = {};             ///< of a program just compiled to a cubin; no store keeps it
};

/// Checks the ELF header: 64-bit, machine 190 (EM_CUDA), section table within `image`, SM version
/// of `target`. Errors: corrupt (not a cubin), incompatible (another target).
Result<void> check_image(ByteView image, Target target);

/// Checks what a compile returned: a cubin as above, PTX for its text, LTO-IR and OptiX-IR for the
/// number with which NVVM's containers begin. Errors: as check_image.
Result<void> check_output(ByteView image, Target target, OutputKind kind);

/// The device code in a file that is to be linked.
enum class DeviceCode {
  none,        ///< a host object, or a library (`.a`) of such, without device code
  executable,  ///< linked already, as any that was not compiled with -rdc=true
  relocatable  ///< or a file of another kind, about which nvJitLink reports
};

/// Returns what nvJitLink finds in a file. It uses only what is relocatable, and reports nothing of
/// the rest.
DeviceCode device_code_in(ByteView image);

/// The stored form of a cubin's kernel list. Errors of decode: corrupt.
std::string encode_kernels(const std::vector<KernelInfo>& kernels);
Result<std::vector<KernelInfo>> decode_kernels(ByteView bytes);

}  // namespace cukiln
