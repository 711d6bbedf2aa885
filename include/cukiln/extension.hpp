// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cukiln/cukiln.h>
#include <cukiln/export.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/manifest.hpp>
#include <cukiln/result.hpp>
#include <cukiln/store.hpp>

/// The interface for libraries that add kernels and C functions of their own to cukiln, such as
/// cukiln_nvfp4, which needs only this and the other public headers.
///
/// Such a library embeds its sources, passes them as a Manifest (`Manifest::parse` with a
/// `SourceOf`, `SourceLiteral`), and finds its kernels with `KernelTable::find` or
/// `KernelLoader::get`. Threads: every function may be called concurrently.
namespace cukiln::extension {
inline namespace v0 {

/// Returns the loader behind a C handle. It lives as long as the handle.
CUKILN_API KernelLoader& loader_of(cukiln_loader& handle) noexcept;
/// Returns the store of that loader.
CUKILN_API Store& store_of(cukiln_loader& handle) noexcept;

/// Keeps an error for `cukiln_last_error()` of the calling thread, and returns its code, which is
/// the result of the C function that failed.
CUKILN_API cukiln_code keep_error(Error error) noexcept;
/// As above, without allocating. `message` must be a string literal.
CUKILN_API cukiln_code keep_error(ErrorCode code, const char* message) noexcept;

/// As `cukiln_loader_preload`, for a manifest that is not a file. `options` and `report` may be
/// null.
CUKILN_API Result<void> preload(cukiln_loader& handle, Manifest manifest,
                                const cukiln_preload_options* options,
                                cukiln_preload_report* report);

}  // namespace v0
}  // namespace cukiln::extension
