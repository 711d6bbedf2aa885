// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "nvfp4/torch/shim.hpp"
#include "nvfp4/torch/zeroed_workspaces.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4/moe.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>
#include <cukiln/nvfp4/sampling.hpp>

struct CUctx_st;
struct CUgraph_st;
struct CUuserObject_st;

namespace cukiln::torch {

/// Functions of the CUDA driver that the loader opened, for contexts and for memory of the ops'
/// own.
class Driver {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the driver's names
  using CUresult = unsigned;
  using CUdevice = int;
  using CUcontext = CUctx_st*;
  using CUgraph = CUgraph_st*;
  using CUuserObject = CUuserObject_st*;
  // NOLINTEND(readability-identifier-naming)
  static constexpr CUresult kSuccess = 0;
  static constexpr CUresult kCaptureIsInvalid = 901;
  static constexpr int kCaptureNone = 0;
  static constexpr int kCaptureInvalidated = 2;
  static constexpr int kCaptureModeRelaxed = 2;
  static constexpr unsigned kStreamNonBlocking = 1;
  static constexpr unsigned kNoDestructorSync = 1;
  static constexpr unsigned kMoveUserObject = 1;

  /// Errors: driver, incompatible (one of these is not in it).
  static Result<Driver> create(KernelLoader& loader);
  /// Without functions, which a test sets. The loader outlives every op.
  explicit Driver(KernelLoader& loader) : loader_(&loader) {}

  /// "`what` failed: …", in the driver's words.
  Error error(std::string_view what, CUresult result) const {
    return loader_->driver_error(what, static_cast<int>(result));
  }

  // NOLINTBEGIN(readability-identifier-naming): the driver's names
  CUresult (*cuMemAlloc)(void** out, std::size_t bytes) = nullptr;
  CUresult (*cuMemFree)(void* memory) = nullptr;
  CUresult (*cuMemsetD8Async)(void* memory, unsigned char value, std::size_t bytes,
                              Stream stream) = nullptr;
  CUresult (*cuStreamCreate)(Stream* out, unsigned flags) = nullptr;
  CUresult (*cuStreamDestroy)(Stream stream) = nullptr;
  CUresult (*cuStreamSynchronize)(Stream stream) = nullptr;
  CUresult (*cuStreamGetId)(Stream stream, std::uint64_t* id) = nullptr;
  CUresult (*cuStreamGetCaptureInfo)(Stream stream, int* status, std::uint64_t* id, CUgraph* graph,
                                     const void* dependencies, std::size_t* count) = nullptr;
  CUresult (*cuThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  CUresult (*cuUserObjectCreate)(CUuserObject* out, void* argument, void (*destroy)(void*),
                                 unsigned references, unsigned flags) = nullptr;
  CUresult (*cuUserObjectRelease)(CUuserObject object, unsigned references) = nullptr;
  CUresult (*cuGraphRetainUserObject)(CUgraph graph, CUuserObject object, unsigned references,
                                      unsigned flags) = nullptr;
  CUresult (*cuCtxGetCurrent)(CUcontext* context) = nullptr;
  CUresult (*cuCtxSetCurrent)(CUcontext context) = nullptr;
  CUresult (*cuDeviceGet)(CUdevice* device, int ordinal) = nullptr;
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device) = nullptr;
  // NOLINTEND(readability-identifier-naming)

 private:
  KernelLoader* loader_;
};

/// The launchers of one device. One that the device or the compiler refuses is the error that its
/// op reports.
struct DeviceLaunchers {
  DeviceLaunchers(KernelLoader& loader, int device);

  Result<nvfp4::ComputeGlobalScale> global_scale;
  Result<nvfp4::Quantize> quantize;
  Result<nvfp4::QuantizeStatic> quantize_static;
  Result<nvfp4::DeinterleaveQuantize> deinterleave;
  Result<nvfp4::ComputeSwiGluGlobalScale> swiglu_global_scale;
  Result<nvfp4::Gemm> gemm;
  Result<nvfp4::W4a16Gemm> w4a16_gemm;
  Result<nvfp4::MoeGemm> moe;
  Result<sampling::Sampler> sample_f32;
  Result<sampling::Sampler> sample_bf16;
  Result<sampling::Sampler> sample_f16;
  Result<sampling::TopLogProbabilities> top_log_probabilities_f32;
  Result<sampling::TopLogProbabilities> top_log_probabilities_bf16;
  Result<sampling::TopLogProbabilities> top_log_probabilities_f16;
  std::unique_ptr<ZeroedWorkspaces> zeroed_workspaces;  ///< of those that compute a global scale
};

/// PyTorch's CUDA side, the driver, and the launchers of every visible device.
struct Cuda {
  /// Errors: not_found, incompatible (PyTorch), those of KernelLoader::get for amax_gsa on the
  /// first device.
  static Result<std::unique_ptr<Cuda>> create(KernelLoader& loader);

  /// Errors: invalid_argument, if no such device is visible.
  Result<const DeviceLaunchers*> on(int device) const;

  CudaShim shim;
  Driver driver;
  std::vector<DeviceLaunchers> launchers;  ///< by ordinal, which is PyTorch's device index
};

/// For the duration of one op: its device is PyTorch's current one and has its context in this
/// thread; `stream` is PyTorch's current one there. The constructor throws where PyTorch has no
/// such device.
class CudaScope {
 public:
  CudaScope(const Cuda& cuda, int device);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

  /// For a launch that computes a global scale. Throws.
  nvfp4::Workspace zeroed_workspace() const;

  const DeviceLaunchers& launchers;
  Stream stream = nullptr;

 private:
  const Cuda& cuda_;
  GuardHandle guard_ = nullptr;
};

}  // namespace cukiln::torch
