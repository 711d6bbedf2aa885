// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace cukiln::dropin {

/// An nvrtcProgram.
using Handle = void*;

// The values of nvrtcResult that this layer returns itself.
inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 1;
inline constexpr int kInvalidInput = 3;
inline constexpr int kInvalidProgram = 4;
inline constexpr int kInvalidOption = 5;
inline constexpr int kCompilation = 6;
inline constexpr int kNamesAfterCompile = 8;
inline constexpr int kLoweredBeforeCompile = 9;
inline constexpr int kNameNotValid = 10;
inline constexpr int kInternalError = 11;
inline constexpr int kNoPchAttempted = 13;

/// What a program has to give after its compile: one pair of NVRTC's functions each, for the size
/// and for the bytes.
enum class Part : int { log, ptx, cubin, lto_ir, optix_ir, nvvm, tile_ir };
inline constexpr int kParts = 7;

using SizeFunction = int (*)(Handle, std::size_t*);
using BytesFunction = int (*)(Handle, char*);

/// The functions of the NVRTC that the host would use without the drop-in. Null: it lacks them.
struct NvrtcFunctions {
  int (*version)(int*, int*) = nullptr;
  int (*create)(Handle*, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*compile)(Handle, int, const char* const*) = nullptr;
  int (*add_name)(Handle, const char*) = nullptr;
  int (*lowered_name)(Handle, const char*, const char**) = nullptr;
  SizeFunction size[kParts] = {};
  BytesFunction bytes[kParts] = {};
  int (*pch_status)(Handle) = nullptr;
  int (*pch_heap_required)(Handle, std::size_t*) = nullptr;
  int (*set_flow_callback)(Handle, int (*)(void*, void*), void*) = nullptr;
};

/// The real NVRTC, which is opened once its functions are needed.
struct RealNvrtc {
  const char* library = nullptr;  ///< its path
  /// Its functions. The first call opens it, if the host has not: a hit does not need it, and a
  /// process pays ten milliseconds for its relocations.
  const NvrtcFunctions& (*functions)() = nullptr;
  /// Why the environment changes what NVRTC returns (NVRTC_APPEND_FLAGS); null if it does not.
  const char* (*environment_of_results)() = nullptr;
  /// The variable PWD, which NVRTC takes for the working folder if it names the same one.
  const char* (*pwd)() = nullptr;
};

/// What libcukiln offers to libcukiln_nvrtc, which is built with it. All functions behave as
/// NVRTC's of the same purpose. Threads: safe, calls for one program wait for each other.
struct ProgramFunctions {
  /// The first argument is an address in the library that makes the program, for the report.
  int (*create)(const void*, Handle*, const char*, const char*, int, const char* const*,
                const char* const*);
  int (*destroy)(Handle*);
  int (*compile)(Handle, int, const char* const*);
  int (*add_name)(Handle, const char*);
  int (*lowered_name)(Handle, const char*, const char**);
  int (*size)(Part, Handle, std::size_t*);
  int (*bytes)(Part, Handle, char*);
  int (*pch_status)(Handle);
  int (*pch_heap_required)(Handle, std::size_t*);
  int (*set_flow_callback)(Handle, int (*)(void*, void*), void*);
};

/// The paths of a library and of NVRTC's builtins library; the second is empty if there is none.
struct FoundLibrary {
  char library[PATH_MAX];
  char builtins[PATH_MAX];
};

/// Changes with every change of the structures above. That of nvJitLink's functions is another
/// (linker_functions.hpp), and tells the two functions below which library is meant.
inline constexpr std::uint32_t kInterface = 6;

/// The name under which libcukiln exports a FindFunction.
inline constexpr const char* kFindName = "cukiln_nvrtc_find";
/// Searches for a library as the loader does, or, if `opened` is the path of an NVRTC, for its
/// builtins only. False if there is none, or if `interface` is another.
using FindFunction = bool (*)(std::uint32_t interface, const char* opened, FoundLibrary* found);

/// The name under which libcukiln exports an OpenFunction.
inline constexpr const char* kOpenName = "cukiln_nvrtc_open";
/// Returns ProgramFunctions for a RealNvrtc, LinkFunctions for a RealLinker. Only the first call in
/// a process makes what the functions work with. `real` must stay valid; `report` is a file to
/// which a line is appended for each program (`cukiln run`), or null. Null if `interface` is
/// another.
using OpenFunction = const void* (*)(std::uint32_t interface, const void* real, const char* report);

}  // namespace cukiln::dropin
