// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "addons/nvrtc/library/real_library.hpp"
#include "addons/nvrtc/nvrtc_functions.hpp"

namespace cukiln::binding {

/// The functions of the real NVRTC; those of programs apart.
struct RealApi {
  dropin::NvrtcFunctions programs;
  const char* (*error_string)(int) = nullptr;
  int (*count_architectures)(int*) = nullptr;
  int (*architectures)(int*) = nullptr;
  int (*pch_heap)(std::size_t*) = nullptr;
  int (*set_pch_heap)(std::size_t) = nullptr;
  int (*install_headers)(const char*, unsigned, const char**) = nullptr;
  int (*headers_info)(void*, const char**) = nullptr;
  int (*remove_headers)(const char*, unsigned, const char**) = nullptr;
};

/// The functions of the real NVRTC; null if there is none. The first call opens it, if the host has
/// not. Threads: safe.
const RealApi& real_api();

/// The real NVRTC and, if libcukiln can be opened, its functions for programs; else `programs` is
/// null and the real one's are used.
struct Api {
  dropin::RealNvrtc nvrtc;
  const dropin::ProgramFunctions* programs = nullptr;
  const RealApi* own = nullptr;  ///< of a library that has an NVRTC in it; null: the process's

  const RealApi& real() const { return own != nullptr ? *own : real_api(); }
};

/// Opens the builtins library of the real NVRTC, once. NVRTC opens it by its name alone, when it
/// first compiles or installs its headers. Before that, who opened NVRTC by its path calls this.
void open_builtins();

}  // namespace cukiln::binding
