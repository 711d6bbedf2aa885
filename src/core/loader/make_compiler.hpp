// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/compile/compiler.hpp"
#include "core/compile/nvrtc_compiler.hpp"
#include "core/compile/nvrtc_library.hpp"
#include "core/key/stat_cache.hpp"

#include <cukiln/loader.hpp>

namespace cukiln {

class TieredStore;

/// Returns where a loader with these options searches for NVRTC.
NvrtcSearch nvrtc_search(const LoaderOptions& options);

/// Returns the options of an NVRTC compiler. The identity of its libraries is cached in `stats` and
/// stored in `tiers`, which must outlive the compiler.
NvrtcCompilerOptions nvrtc_options(const LoaderOptions& options, TieredStore& tiers,
                                   StatCache& stats);

/// Creates the compiler of a loader: in cukilnd if there is one, else in workers with the options
/// `workers`. `tiers` must outlive it.
std::unique_ptr<Compiler> make_compiler(TieredStore& tiers, const NvrtcCompilerOptions& workers);

}  // namespace cukiln
