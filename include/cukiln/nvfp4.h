// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The C interface of libcukiln_nvfp4: the kernels that come with cukiln. Errors, strings, structs:
/// as in <cukiln/cukiln.h>.
///
///     cukiln_nvfp4_preload(loader, NULL, NULL);                           // all of them, ready
///     cukiln_kernel amax = cukiln_loader_find(loader, "amax_gsa");        // NULL: not there
///
/// What each takes: `kernels_src/README.md`. PyTorch ops over them: <cukiln/torch.h>.

// NOLINTBEGIN(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers): C
#include <cukiln/cukiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/// cukiln_loader_preload for the kernels that come with cukiln. `options` and `report` may be NULL.
CUKILN_API cukiln_code cukiln_nvfp4_preload(cukiln_loader* loader,
                                            const cukiln_preload_options* options,
                                            cukiln_preload_report* report);

/// The text of a source that comes with cukiln, by its file's name (`sampler.cu`). Ended by NUL;
/// there as long as the library. NULL, and `*text_bytes` 0: there is none. `text_bytes` may be
/// NULL.
CUKILN_API const char* cukiln_nvfp4_source(const char* file_name, size_t* text_bytes);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers)
