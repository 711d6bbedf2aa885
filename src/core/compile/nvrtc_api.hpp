// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/key/output_kind.hpp"
#include "core/wire/messages.hpp"

namespace cukiln {

/// NVRTC's C interface, opened at run time. Needs nothing but libc, because the compile worker uses
/// it too. Never closed: NVRTC registers destructors of its own.
struct NvrtcApi {
  using Program = struct NvrtcProgram*;
  int (*version)(int*, int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*create_program)(Program*, const char*, const char*, int, const char* const*,
                        const char* const*) = nullptr;
  int (*destroy_program)(Program*) = nullptr;
  int (*compile_program)(Program, int, const char* const*) = nullptr;
  int (*add_name_expression)(Program, const char*) = nullptr;
  int (*lowered_name)(Program, const char*, const char**) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*ptx_size)(Program, std::size_t*) = nullptr;
  int (*ptx)(Program, char*) = nullptr;
  int (*cubin_size)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*lto_ir_size)(Program, std::size_t*) = nullptr;    ///< null if this NVRTC lacks it
  int (*lto_ir)(Program, char*) = nullptr;                ///< null if this NVRTC lacks it
  int (*optix_ir_size)(Program, std::size_t*) = nullptr;  ///< null if this NVRTC lacks it
  int (*optix_ir)(Program, char*) = nullptr;              ///< null if this NVRTC lacks it
  int (*tile_ir_size)(Program, std::size_t*) = nullptr;   ///< null if this NVRTC lacks it
  int (*num_supported_archs)(int*) = nullptr;             ///< null if this NVRTC lacks it
  int (*supported_archs)(int*) = nullptr;                 ///< null if this NVRTC lacks it
  /// Folder, flags, and where the text of an error is put; null if this NVRTC carries no headers.
  int (*install_bundled_headers)(const char*, unsigned, const char**) = nullptr;

  /// Opens the library. The builtins library, if its path is given, is opened before it: an NVRTC
  /// without an RPATH would look for it by name alone. Returns an error, or an empty string.
  std::string open(const std::string& library, const std::string& builtins);

  /// Returns the compute capabilities that this NVRTC has targets for: 75, 80, …; none if it cannot
  /// list them.
  std::vector<std::uint32_t> list_capabilities() const;
};

/// The values of nvrtcResult that get an error message of their own.
inline constexpr int kNvrtcOutOfMemory = 1;
inline constexpr int kNvrtcInvalidOption = 5;
inline constexpr int kNvrtcCompilation = 6;
inline constexpr int kNvrtcBuiltins = 7;

/// What `cukiln-compile-worker --install-headers` sends once the headers are installed.
inline constexpr const char* kHeadersInstalled = "installed";

/// Returns what a compile with these arguments produces: PTX for a virtual architecture
/// (`--gpu-architecture=compute_100a`), LTO-IR for a part of a link with LTO, else a cubin.
OutputKind output_of(const std::vector<std::string>& arguments);

/// A header passed to nvrtcCreateProgram, under the name by which the program includes it.
struct NamedHeader {
  std::string name;
  std::string text;
};

/// Compiles one program to image, log and lowered names. PTX is without the zero at its end. A
/// program of NVRTC's own interface (`is_program`) that has more than `output` has no image; one
/// that is compiled to a cubin has its PTX, too.
wire::Compiled compile_with(const NvrtcApi& api, const wire::Compile& job, OutputKind output,
                            const std::vector<NamedHeader>& headers = {});

}  // namespace cukiln
