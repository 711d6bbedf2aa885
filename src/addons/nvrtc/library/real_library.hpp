// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

// What a library that stands in front of another one does: libcukiln_nvrtc and libcukiln_nvjitlink
// are built of these sources, and of their own functions.
namespace cukiln::binding {

/// The library that this one stands in front of.
struct Peer {
  const char* stem;         ///< of its file: `libnvrtc.so`
  const char* function;     ///< that it exports, and a library does that has it linked into it
  const char* variable;     ///< of the environment, with the path of one
  const char* own;          ///< the report's word for a library that has it linked into it
  std::uint32_t interface;  ///< of libcukiln's functions for it
  /// False for a version with functions that this library lacks: a host that opens one gets it.
  bool (*is_known)(void* handle);
};
extern const Peer kPeer;

/// The peer's functions, and libcukiln's in their place, if that can be opened. Each library's own.
struct Api;
/// The functions of the real peer, and libcukiln's.
const Api* make_api();
/// The functions of another open peer alone.
const Api* make_own_api(void* handle);
/// Has libcukiln open its functions for a peer. Null if it cannot be opened.
const void* open_functions(const void* real);

/// The path of the real peer, which is: the one of the variable; the one that the host opened or is
/// linked with; the first of libcukiln's search. Null if there is none. Threads: safe.
const char* find_real();
/// That peer, opened if the host has not. Null if there is none, or if it cannot be. Threads: safe.
void* open_real();
/// Opens what belongs to a peer with this path, as libcukiln finds it: NVRTC's builtins library.
void open_files_of(const char* peer);

/// libc's dlopen, called from this library: see dlopen.cpp.
void* open_library(const char* file, int mode);

/// True for the file name of a peer, `libnvrtc.so.13`.
bool is_peer(const char* path) noexcept;

/// The path of an open library; null if it is not known.
const char* path_of(void* handle) noexcept;

/// Makes an open peer the real one. False if another one is already; that is opened to tell.
bool set_real(void* handle) noexcept;

/// Sets a function of an open library.
template <class Function>
void find_function(Function& function, void* handle, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
}

/// Sets the functions for each output of an open library, as `nvrtcGetPTX` and `nvrtcGetPTXSize`.
template <class Bytes, class Size, std::size_t count>
void find_getters(Bytes (&bytes)[count], Size (&size)[count], void* handle, const char* prefix,
                  const char* const (&names)[count]) {
  for (std::size_t i = 0; i < count; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "%s%s", prefix, names[i]);
    find_function(bytes[i], handle, name);
    std::snprintf(name, sizeof name, "%s%sSize", prefix, names[i]);
    find_function(size[i], handle, name);
  }
}

/// The first variable of the environment that is set and begins with one of these, which end with
/// null, or is read by the code generator and the assembler in both peers: it changes a result, or
/// has a file written. They are what 12.8, 12.9, 13.0 and 13.5 ask `getenv` for.
const char* find_variable(const char* const* prefixes);

/// Appends a line to the report of `cukiln run`, if there is one: what is not reached, with its
/// path and a text of one line that says why.
void report_unreached(const char* word, const char* path, const char* why = "") noexcept;

/// True once a function of this library was called.
bool was_called() noexcept;

/// Finds both, once.
const Api& api();
/// The functions for a call from an address: those of the peer that its own library has in it, else
/// api().
const Api& api_for(const void* caller);
/// As api(). The first call of either opens both libraries: if it is this one, programs are
/// reported to `file`, unless CUKILN_RUN_REPORT names one. Threads: one at a time.
const Api& api_with_report(const char* file);

}  // namespace cukiln::binding
