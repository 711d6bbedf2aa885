// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/mutex.hpp"
#include "bindings/torch/shim.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4.hpp>
#include <cukiln/nvfp4_moe.hpp>
#include <cukiln/sampling.hpp>

struct CUctx_st;

namespace cukiln::torch {

/// Functions of the CUDA driver that the loader opened, for memory and contexts of the ops' own.
class Driver {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the driver's names
  using CUresult = unsigned;
  using CUdevice = int;
  using CUcontext = CUctx_st*;
  // NOLINTEND(readability-identifier-naming)
  static constexpr CUresult kSuccess = 0;
  static constexpr CUresult kCaptureImplicit = 906;  ///< the legacy stream while another captures
  static constexpr int kCaptureNone = 0;

  /// Errors: driver, incompatible (one of these is not in it).
  static Result<Driver> create(KernelLoader& loader);

  /// "`what` failed: …", in the driver's words.
  Error error(std::string_view what, CUresult result) const {
    return loader_->driver_error(what, static_cast<int>(result));
  }

  // NOLINTBEGIN(readability-identifier-naming): the driver's names
  CUresult (*cuMemAlloc)(void** out, std::size_t bytes) = nullptr;
  CUresult (*cuMemFree)(void* memory) = nullptr;
  CUresult (*cuMemsetD8)(void* memory, unsigned char value, std::size_t bytes) = nullptr;
  CUresult (*cuMemsetD8Async)(void* memory, unsigned char value, std::size_t bytes,
                              Stream stream) = nullptr;
  CUresult (*cuStreamSynchronize)(Stream stream) = nullptr;
  CUresult (*cuStreamIsCapturing)(Stream stream, int* status) = nullptr;
  CUresult (*cuCtxGetCurrent)(CUcontext* context) = nullptr;
  CUresult (*cuCtxSetCurrent)(CUcontext context) = nullptr;
  CUresult (*cuDeviceGet)(CUdevice* device, int ordinal) = nullptr;
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device) = nullptr;
  // NOLINTEND(readability-identifier-naming)

 private:
  Driver() = default;
  KernelLoader* loader_ = nullptr;  // which outlives every op
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
  Result<nvfp4::MoeGemm> moe;
  Result<sampling::Sampler> sample_f32;
  Result<sampling::Sampler> sample_bf16;
  Result<sampling::Sampler> sample_f16;
  Result<sampling::TopLogProbabilities> top_log_probabilities_f32;
  Result<sampling::TopLogProbabilities> top_log_probabilities_bf16;
  Result<sampling::TopLogProbabilities> top_log_probabilities_f16;
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

  const DeviceLaunchers& launchers;
  Stream stream = nullptr;

 private:
  const Cuda& cuda_;
  GuardHandle guard_ = nullptr;
};

/// Memory of a runner, outside of PyTorch's allocator. A captured graph may use it as long as the
/// runner lives: it therefore grows by a further block, and all blocks are freed at the end.
/// Threads: any concurrently.
class Scratch {
 public:
  struct Block {
    std::byte* memory;
    std::size_t bytes;
    std::int64_t tokens;  ///< it was laid out for
  };

  Scratch(const Cuda& cuda, int device) : cuda_(cuda), device_(device) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// The latest block; no memory before the first.
  Block current() const noexcept {
    const Block* const block = current_.load(std::memory_order_acquire);
    return block != nullptr ? *block : Block{nullptr, 0, 0};
  }

  /// Returns the latest block if it is large enough, else adds a block of zeros.
  /// Errors: invalid_argument (`stream` captures; the message says what to reserve), driver.
  Result<Block> grow(Stream stream, std::int64_t tokens, std::size_t bytes) CUKILN_EXCLUDES(mutex_);

 private:
  const Cuda& cuda_;
  int device_;
  std::atomic<const Block*> current_{nullptr};
  Mutex mutex_;
  std::vector<std::unique_ptr<const Block>> blocks_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln::torch
