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

/// PyTorch's CUDA side, the driver, and the launchers of the kernels that the ops use. A launcher
/// that this device or compiler refuses is the error that its op reports.
struct Cuda {
  /// Errors: not_found, incompatible (PyTorch), those of KernelLoader::get for amax_gsa.
  static Result<std::unique_ptr<Cuda>> create(KernelLoader& loader);

  CudaShim shim;
  Driver driver;

  Result<nvfp4::AmaxGsa> amax;
  Result<nvfp4::Quantize> quantize;
  Result<nvfp4::QuantizeStatic> quantize_static;
  Result<nvfp4::DeinterleaveQuantize> deinterleave;
  Result<nvfp4::SwiGluAmaxGsa> swiglu_amax;
  Result<nvfp4::Gemm> gemm;
  Result<nvfp4::MoeGemm> moe;
  Result<sampling::Sampler> sample_f32;
  Result<sampling::Sampler> sample_bf16;
  Result<sampling::Sampler> sample_f16;
};

/// For the duration of one op: its device is PyTorch's current one and has its context in this
/// thread; `stream` is PyTorch's current one there.
class CudaScope {
 public:
  CudaScope(const Cuda& cuda, int device);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

  Stream stream = nullptr;

 private:
  const Cuda& cuda_;
  GuardHandle guard_ = nullptr;
};

/// Memory of a runner, outside of PyTorch's allocator, where a captured graph may hold it for ever:
/// so it grows by a further block, and all are freed at the end.
class Scratch {
 public:
  struct Block {
    std::byte* memory;
    std::size_t bytes;
    std::int64_t tokens;  ///< that it was laid out for
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

  /// A block of zeros, complete when this returns. `stream`: refused while it captures.
  /// Errors: invalid_argument (capturing; says what to reserve), driver.
  Result<Block> grow(Stream stream, std::int64_t tokens, std::size_t bytes);

 private:
  const Cuda& cuda_;
  int device_;
  std::atomic<const Block*> current_{nullptr};
  Mutex mutex_;
  std::vector<std::unique_ptr<const Block>> blocks_;
};

}  // namespace cukiln::torch
