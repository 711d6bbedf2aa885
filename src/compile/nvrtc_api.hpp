// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "wire/messages.hpp"

namespace cukiln {

/// NVRTC's C interface, opened at run time. Used by the compile worker and by the in-process
/// compiler, so it needs nothing but libc. Never closed: NVRTC registers destructors of its own.
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
  int (*num_supported_archs)(int*) = nullptr;  ///< null: not there
  int (*supported_archs)(int*) = nullptr;      ///< likewise

  /// The builtins library (when its path is known) is opened first, by its absolute path: libraries
  /// without an RPATH look for it by name alone. Gives why it failed; empty: it worked.
  std::string open(const std::string& library, const std::string& builtins);
};

/// nvrtcResult values that are told apart.
inline constexpr int kNvrtcOutOfMemory = 1;
inline constexpr int kNvrtcInvalidOption = 5;
inline constexpr int kNvrtcCompilation = 6;
inline constexpr int kNvrtcBuiltins = 7;

enum class NvrtcOutput { cubin, ptx };

/// A virtual architecture (`--gpu-architecture=compute_100a`) asks for PTX: it gives no cubin.
NvrtcOutput output_of(const std::vector<std::string>& arguments);

/// A header that NVRTC is given with the program, by the name that the text includes it by.
struct NamedHeader {
  std::string name;
  std::string text;
};

/// One compile, from text to image, log and lowered names.
wire::Compiled compile_with(const NvrtcApi& api, const wire::Compile& job, NvrtcOutput output,
                            const std::vector<NamedHeader>& headers = {});

}  // namespace cukiln
