// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cukiln/cukiln.h>
#include <cukiln/export.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/manifest.hpp>
#include <cukiln/result.hpp>

/// For libraries that add kernels, and C functions of their own, to cukiln: cukiln_nvfp4 is one,
/// and needs no more than this and the other public headers.
///
/// Such a library embeds its sources, gives them as a Manifest (`Manifest::parse` with a
/// `SourceOf`, `Source::literal`), and finds its kernels with `KernelTable::find` or
/// `KernelLoader::get`. Threads: any at once.
namespace cukiln::extension {
inline namespace v0 {

/// The loader behind a C handle; lives as long as the handle.
CUKILN_API KernelLoader& loader_of(cukiln_loader& handle) noexcept;

/// What a C function of such a library returns for an error: its code, the message being kept for
/// `cukiln_last_error()` of the calling thread.
CUKILN_API cukiln_code keep_error(Error error) noexcept;
/// The same where there may be no memory for a message. `message` must live for ever.
CUKILN_API cukiln_code keep_error(ErrorCode code, const char* message) noexcept;

/// `cukiln_loader_preload` for a manifest that is no file. `options` and `report` may be null.
CUKILN_API Result<void> preload(cukiln_loader& handle, Manifest manifest,
                                const cukiln_preload_options* options,
                                cukiln_preload_report* report);

}  // namespace v0
}  // namespace cukiln::extension
