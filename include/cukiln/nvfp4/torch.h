// SPDX-License-Identifier: Apache-2.0
#pragma once

/// PyTorch ops over the shipped kernels, and the runners that hold their weights. What Python's
/// `cukiln.torch` is made of; other hosts with libtorch in their process may call it too.
///
///     import torch  (or libtorch linked)        the ops are found in the libtorch that is loaded
///     cukiln_torch_register();                  torch.ops.nvfp4.* and torch.ops.cukiln.* exist
///     cukiln_torch_set_loader(loader);          ... and run on CUDA tensors
///     cukiln_torch_linear_create(&linear, &id); nvfp4::linear_gemm(x, id, out_features)
///
/// The library is built without PyTorch and serves 2.11 and later: it uses libtorch's stable C
/// interface, found at run time. Ops, shapes and formulas: `cukiln/torch/__init__.py` and
/// <cukiln/nvfp4/nvfp4.hpp>. Errors, strings, structs: as in <cukiln/cukiln.h>. Of an op, an
/// unknown runner is an IndexError, anything else a RuntimeError, as with PyTorch's own ops.

// NOLINTBEGIN(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers): C
#include <cukiln/cukiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Registers the ops with the libtorch of this process, for CPU and CUDA tensors. They stay until
/// the process ends; a second call does nothing.
/// Errors: not_found (no libtorch is loaded); incompatible (one before 2.11, or another copy of
/// cukiln has registered its ops).
CUKILN_API cukiln_code cukiln_torch_register(void);

/// Makes the kernels that the ops launch on CUDA tensors ready: found or compiled, and loaded. The
/// loader must outlive every op. Call it once, before CUDA runners are made. The ops then run on
/// every visible device. Errors: invalid_argument (not registered, or another loader was set);
/// not_found (PyTorch has no CUDA); those of KernelLoader::get. A kernel that a device cannot run
/// is an error of the op that needs it.
CUKILN_API cukiln_code cukiln_torch_set_loader(cukiln_loader* loader);

/// The weights of a linear layer, quantised as <cukiln/nvfp4/nvfp4.hpp> says, on one device.
/// Pointers are the caller's, and stay valid until the runner is destroyed.
typedef struct cukiln_torch_linear {
  size_t struct_bytes;
  int device;                       ///< CUDA ordinal; -1: the CPU
  int64_t in_features;              ///< a multiple of 32
  int64_t out_features;             ///< a multiple of 8
  const void* data;                 ///< [out_features, in_features / 2] bytes
  const void* scales;               ///< as the quantiser lays them out
  const float* global_scale;        ///< {encode, decode} of the weight
  const void* bias;                 ///< bf16 [out_features], or NULL
  const float* input_global_scale;  ///< of every input; NULL: its own amax decides
  int64_t max_tokens;               ///< as cukiln_torch_runner_reserve; 0: none
  int64_t fingerprint;              ///< of the weights, or 0: see below
  int64_t w4a16;  ///< not 0: inputs stay in bf16, and input_global_scale is not read
} cukiln_torch_linear;

/// The weights of a mixture of experts: <cukiln/nvfp4/moe.hpp>.
typedef struct cukiln_torch_moe {
  size_t struct_bytes;
  int device;
  int64_t experts;         ///< that have weights here
  int64_t global_experts;  ///< ids count to this; 0: experts
  int64_t hidden;          ///< a multiple of 32
  int64_t width;           ///< a multiple of 32
  const void* up_data;     ///< [experts, 2 * width, hidden / 2] bytes
  const void* up_scales;
  const float* up_decode;  ///< [experts]
  const void* down_data;   ///< [experts, hidden, width / 2] bytes
  const void* down_scales;
  const float* down_decode;              ///< [experts]
  const float* hidden_global_scale;      ///< of every input; NULL: each input's own amax decides
  const float* activation_global_scale;  ///< of SwiGLU's results; NULL: W4A16, both stay in bf16
  const int32_t* expert_map;             ///< [global_experts] to local experts, or NULL
  int interleaved;  ///< 1: gate and up rows alternate, gate first; 0: a half each
  float limit;      ///< of SwiGLU, > 0; infinity: none
  float alpha;
  float beta;
  int64_t max_tokens;
  int64_t max_topk;             ///< that scratch is reserved for; 0: 8
  int64_t fingerprint;          ///< of the weights, or 0: see below
  const void* up_bias;          ///< bf16 [experts, 2 * width], in the order of up's rows, or NULL
  const void* down_bias;        ///< bf16 [experts, hidden], or NULL
  int64_t dynamic_activations;  ///< not 0: each row of SwiGLU's results has a scale of its own
                                ///< amax, and activation_global_scale is not read
} cukiln_torch_moe;

/// A runner has an id, which compiled graphs contain as an integer. Ids follow from the order of
/// create and destroy alone (0, 1, 2, …), so that the next process finds the graph again. Each is
/// used once.
///
/// Another process has the same ids. A graph that may come from there also passes the fingerprint
/// of the weights that it was made with as the op's last argument: the op is an IndexError if it is
/// not 0 and not the runner's. The caller chooses it so that equal weights have an equal one.
///
/// Threads and streams: any concurrently. An op finds its runner without a lock and writes nothing
/// of it. Scratch is memory that PyTorch's allocator lends for the length of a call, in the order
/// of the stream; in a capture it is the graph's. Captures are PyTorch's: a graph that another
/// library captures around an op does not keep that memory. Errors: invalid_argument.
CUKILN_API cukiln_code cukiln_torch_linear_create(const cukiln_torch_linear* linear, int64_t* id);
CUKILN_API cukiln_code cukiln_torch_moe_create(const cukiln_torch_moe* moe, int64_t* id);

/// Names the shipped modules that a runner launches kernels of for 1 to max_tokens tokens, on any
/// card of a compute capability (90): what a process preloads before `seal()`. One of `linear` and
/// `moe` is given, of which sizes and formats are read. `*count` is that of all names, which are
/// there as long as the library; `capacity` of them are written. Errors: invalid_argument.
CUKILN_API cukiln_code cukiln_torch_modules(const cukiln_torch_linear* linear,
                                            const cukiln_torch_moe* moe, int capability,
                                            const char** names, size_t capacity, size_t* count);

/// A runner whose GEMMs are computed in Python: `nvfp4::linear_gemm` and `nvfp4::moe_gemm` call
/// the ops `cukiln::run_linear` and `cukiln::run_moe` for it, which take the same arguments, and
/// which the Python package defines. Errors: invalid_argument.
CUKILN_API cukiln_code cukiln_torch_python_create(int64_t* id);

/// Has PyTorch's allocator get scratch for `tokens` rows or fewer now, for the current stream, and
/// keep it for whatever is allocated there next, of this runner or another: a first call then waits
/// for no allocation. Captures need none. Errors: not_found (no such runner), driver.
CUKILN_API cukiln_code cukiln_torch_runner_reserve(int64_t id, int64_t tokens);

/// Destroys a runner. No call of it may be in progress, and no captured graph with one may be
/// replayed later. Errors: not_found.
CUKILN_API cukiln_code cukiln_torch_runner_destroy(int64_t id);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers)
