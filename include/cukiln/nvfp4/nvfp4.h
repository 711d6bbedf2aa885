// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The C interface of libcukiln_nvfp4: the kernels that come with cukiln. Errors, strings, structs:
/// as in <cukiln/cukiln.h>.
///
///     cukiln_nvfp4_preload(loader, NULL, NULL);                           // all of them, ready
///     cukiln_kernel amax = cukiln_loader_find(loader, "amax_gsa");        // NULL: not there
///
/// What each takes: `kernels_src/README.md`. PyTorch ops over them: <cukiln/nvfp4/torch.h>.

// NOLINTBEGIN(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers): C
#include <cukiln/cukiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/// cukiln_loader_preload for the kernels that come with cukiln. `options` and `report` may be NULL.
CUKILN_API cukiln_code cukiln_nvfp4_preload(cukiln_loader* loader,
                                            const cukiln_preload_options* options,
                                            cukiln_preload_report* report);

/// The text of a source or header that comes with cukiln, by its file's name (`sampler.cu`) or its
/// path (`sampling/sampler.cu`), or of their manifest, `shipped.json`. Ended by NUL; there as long
/// as the library. NULL, and `*text_bytes` 0: there is none. `text_bytes` may be NULL.
CUKILN_API const char* cukiln_nvfp4_source(const char* file_name, size_t* text_bytes);

/// cukiln::nvfp4::Gemm or W4a16Gemm, a launcher of one device, for hosts that measure its tactics.
/// The loader must outlive it. Threads: any concurrently.
typedef struct cukiln_nvfp4_gemm cukiln_nvfp4_gemm;

/// Free `*gemm` with cukiln_nvfp4_gemm_destroy. Errors: those of Gemm::create.
CUKILN_API cukiln_code cukiln_nvfp4_gemm_create(cukiln_loader* loader, int device,
                                                cukiln_nvfp4_gemm** gemm);
/// Free `*gemm` with cukiln_nvfp4_gemm_destroy. Errors: those of W4a16Gemm::create.
CUKILN_API cukiln_code cukiln_nvfp4_w4a16_gemm_create(cukiln_loader* loader, int device,
                                                      cukiln_nvfp4_gemm** gemm);
/// NULL is allowed.
CUKILN_API void cukiln_nvfp4_gemm_destroy(cukiln_nvfp4_gemm* gemm);

/// Bytes of workspace for D [m, n] = A [m, k] · Bᵀ [k, n]. May be 0, and is for NULL.
CUKILN_API size_t cukiln_nvfp4_gemm_workspace_bytes(const cukiln_nvfp4_gemm* gemm, int64_t m,
                                                    int64_t n, int64_t k);
/// The number of tactics for that shape; 0 for NULL, or a size that is out of range.
CUKILN_API int cukiln_nvfp4_gemm_tactics(const cukiln_nvfp4_gemm* gemm, int64_t m, int64_t n,
                                         int64_t k);

/// cukiln::nvfp4::GemmTacticName.
typedef struct cukiln_nvfp4_tactic {  // never grows: it is used in arrays
  char kernel[64];                    ///< ended by NUL
  int splits;
} cukiln_nvfp4_tactic;

/// Names a tactic of that shape; -1: the one that a launch takes. Errors: invalid_argument.
CUKILN_API cukiln_code cukiln_nvfp4_gemm_tactic(const cukiln_nvfp4_gemm* gemm, int64_t m, int64_t n,
                                                int64_t k, int tactic, cukiln_nvfp4_tactic* name);

/// Operands in device memory, in <cukiln/nvfp4/nvfp4.hpp>'s layouts.
typedef struct cukiln_nvfp4_gemm_call {
  size_t struct_bytes;
  void* stream;
  int64_t m;
  int64_t n;
  int64_t k;
  void* output;        ///< bf16 [m, n]
  const void* a_data;  ///< a_data, a_scales and a_global_scale: of a Gemm only
  const void* a_scales;
  const float* a_global_scale;  ///< {encode, decode}
  const void* b_data;
  const void* b_scales;
  const float* b_global_scale;
  const void* bias;  ///< bf16 [n], or NULL
  void* workspace;
  size_t workspace_bytes;
  int constant_b;      ///< 1: as in GemmOptions
  int tactic;          ///< -1: the launcher's choice
  const void* a_bf16;  ///< [m, k], dense: of a W4a16Gemm only
} cukiln_nvfp4_gemm_call;

/// Errors: those of the launcher's `launch`.
CUKILN_API cukiln_code cukiln_nvfp4_gemm_launch(const cukiln_nvfp4_gemm* gemm,
                                                const cukiln_nvfp4_gemm_call* call);

/// cukiln::nvfp4::MeasuredGemm.
typedef struct cukiln_nvfp4_measured_gemm {  // never grows: it is used in arrays
  int64_t n;
  int64_t k;
  int64_t m;
  int64_t nanoseconds;
  cukiln_nvfp4_tactic tactic;
} cukiln_nvfp4_measured_gemm;

/// The launcher's `save_tactics`, in the loader's store.
CUKILN_API cukiln_code cukiln_nvfp4_gemm_save_tactics(const cukiln_nvfp4_gemm* gemm,
                                                      cukiln_loader* loader,
                                                      const cukiln_nvfp4_measured_gemm* rows,
                                                      size_t count);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers)
