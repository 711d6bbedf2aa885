// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/key/output_kind.hpp"

#include <cukiln/target.hpp>

namespace cukiln::dropin {

/// What the options of a compile say about its result.
struct Asked {
  OutputKind output = OutputKind::ptx;
  Target target;
  std::string bypass_reason;  ///< why the result cannot be stored; empty if it can
};
/// True for an option of precompiled headers. They save time and change no code.
bool is_of_precompiled_headers(std::string_view option);
/// True for one that names a header that is not there, which is an error of NVRTC's. It may have
/// been to be created by a program whose result was in the store.
bool uses_absent_precompiled_header(std::string_view option);
/// Reads the options of nvrtcCompileProgram. `default_capability` returns NVRTC's own, and is
/// called if they name no target.
Asked read_options(const std::vector<std::string>& options,
                   const std::function<int()>& default_capability);

}  // namespace cukiln::dropin
