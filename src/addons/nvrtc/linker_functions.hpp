// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "addons/nvrtc/nvrtc_functions.hpp"

namespace cukiln::dropin {

// The values of nvJitLinkResult that this layer returns itself.
inline constexpr int kLinkInvalidInput = 3;
inline constexpr int kLinkInternalError = 6;

/// What a link has to give after it: one pair of nvJitLink's functions each, for the size and for
/// the bytes.
enum class LinkPart : int { cubin, ptx, lto_ir, error_log, info_log };
inline constexpr int kLinkParts = 5;

/// The functions of the nvJitLink that the host would use without the drop-in. Null: it lacks them.
/// It exports each under names with a version too, `__nvJitLinkCreate_13_0`: they are the same.
struct RealLinker {
  const char* library = nullptr;  ///< its path
  int (*version)(unsigned*, unsigned*) = nullptr;
  int (*create)(Handle*, std::uint32_t, const char* const*) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*add_data)(Handle, int, const void*, std::size_t, const char*) = nullptr;
  int (*add_file)(Handle, int, const char*) = nullptr;
  int (*complete)(Handle) = nullptr;
  int (*size[kLinkParts])(Handle, std::size_t*) = {};
  int (*bytes[kLinkParts])(Handle, void*) = {};
  /// The variable that changes what nvJitLink returns, or has it write files; null if none is set.
  const char* (*environment_of_results)() = nullptr;

  int size_of(Handle link, LinkPart part, std::size_t* bytes_out) const {
    const auto function = size[static_cast<int>(part)];
    return function != nullptr ? function(link, bytes_out) : kLinkInternalError;
  }
  int bytes_of(Handle link, LinkPart part, void* out) const {
    const auto function = bytes[static_cast<int>(part)];
    return function != nullptr ? function(link, out) : kLinkInternalError;
  }
};

/// What libcukiln offers to libcukiln_nvjitlink, which is built with it. All functions behave as
/// nvJitLink's of the same purpose. Threads: safe, calls for one link wait for each other.
struct LinkFunctions {
  /// The first argument is an address in the library that links, for the report.
  int (*create)(const void*, Handle*, std::uint32_t, const char* const*);
  int (*destroy)(Handle*);
  int (*add_data)(Handle, int, const void*, std::size_t, const char*);
  int (*add_file)(Handle, int, const char*);
  int (*complete)(Handle);
  int (*size)(LinkPart, Handle, std::size_t*);
  int (*bytes)(LinkPart, Handle, void*);
};

/// As kInterface, for a RealLinker and LinkFunctions.
inline constexpr std::uint32_t kLinkInterface = 0x10001;

/// The OpenFunction of nvJitLink's interface.
const LinkFunctions* open_links(const RealLinker& real, const char* report);

}  // namespace cukiln::dropin
