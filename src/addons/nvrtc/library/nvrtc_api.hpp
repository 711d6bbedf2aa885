// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "addons/nvrtc/library/real_library.hpp"
#include "addons/nvrtc/nvrtc_functions.hpp"

namespace cukiln::binding {

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

}  // namespace cukiln::binding
