// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "compile/compiler.hpp"
#include "compile/nvrtc_compiler.hpp"
#include "compile/nvrtc_library.hpp"
#include "key/stat_cache.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

class TieredStore;

/// Where a loader with these options searches NVRTC.
NvrtcSearch nvrtc_search(const LoaderOptions& options);

/// What an NVRTC that these options find, or that was found already, is used with. What is learned
/// of it goes through `stats` to `tiers`.
NvrtcCompilerOptions nvrtc_options(const LoaderOptions& options, TieredStore& tiers,
                                   StatCache& stats);

/// The compiler of a loader: workers, or in this process where the host may not spawn. What it
/// learns of NVRTC goes through `stats` to `tiers`.
std::unique_ptr<Compiler> make_compiler(const LoaderOptions& options, TieredStore& tiers,
                                        StatCache& stats);

}  // namespace cukiln
