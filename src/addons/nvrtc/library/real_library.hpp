// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "addons/nvrtc/nvrtc_functions.hpp"

namespace cukiln::nvrtc_binding {

/// libc's dlopen, called from this library: see dlopen.cpp.
void* open_library(const char* file, int mode);

/// True for the file name of an NVRTC, `libnvrtc.so.13`.
bool is_nvrtc(const char* path) noexcept;

/// Makes an open NVRTC the real one. False if another one is already.
bool set_real(void* handle) noexcept;

/// The functions of the real NVRTC that `Api` does not need by program.
struct RealApi {
  dropin::RealNvrtc programs;
  const char* (*error_string)(int) = nullptr;
  int (*count_architectures)(int*) = nullptr;
  int (*architectures)(int*) = nullptr;
  int (*pch_heap)(std::size_t*) = nullptr;
  int (*set_pch_heap)(std::size_t) = nullptr;
  int (*install_headers)(const char*, unsigned, const char**) = nullptr;
  int (*headers_info)(void*, const char**) = nullptr;
  int (*remove_headers)(const char*, unsigned, const char**) = nullptr;
};

/// The real NVRTC and, if libcukiln can be opened, its functions for programs; else `programs` is
/// null and the real one's are used.
struct Api {
  RealApi real;
  const dropin::ProgramFunctions* programs = nullptr;
};
/// The functions of an open library.
RealApi functions_of(void* handle);

/// Appends a line to the report of `cukiln run`, if there is one: what is not reached, with its
/// path.
void report_unreached(const char* word, const char* path) noexcept;

/// Finds both, once. The real NVRTC is: CUKILN_NVRTC_LIBRARY; the one that the host opened or is
/// linked with; the first of libcukiln's search. Its builtins library is opened with it. Its
/// functions are null if there is none.
const Api& api();
/// The functions for a call from an address: those of the NVRTC that its own library has in it,
/// else api().
const Api& api_for(const void* caller);
/// As api(). The first call of either opens both libraries: if it is this one, programs are
/// reported to `file`, unless CUKILN_RUN_REPORT names one. Threads: one at a time.
const Api& api_with_report(const char* file);

}  // namespace cukiln::nvrtc_binding
