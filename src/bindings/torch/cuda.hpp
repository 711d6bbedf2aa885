// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "bindings/torch/shim.hpp"
#include "driver/driver_api.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4.hpp>
#include <cukiln/nvfp4_moe.hpp>
#include <cukiln/sampling.hpp>

namespace cukiln::torch {

/// PyTorch's CUDA side, the driver, and the launchers of the kernels that the ops use. A launcher
/// that this device or compiler refuses is the error that its op reports.
struct Cuda {
  /// Errors: not_found, incompatible (PyTorch), those of KernelLoader::get for amax_gsa.
  static Result<std::unique_ptr<Cuda>> create(KernelLoader& loader);

  CudaShim shim;
  std::shared_ptr<const DriverApi> driver;
  // NOLINTBEGIN(readability-identifier-naming): the driver's names
  CUresult (*cuMemAlloc)(void** out, std::size_t bytes);
  CUresult (*cuMemFree)(void* memory);
  CUresult (*cuMemsetD8)(void* memory, unsigned char value, std::size_t bytes);
  CUresult (*cuMemsetD8Async)(void* memory, unsigned char value, std::size_t bytes, Stream stream);
  CUresult (*cuStreamSynchronize)(Stream stream);
  CUresult (*cuCtxSetCurrent)(CUcontext context);
  // NOLINTEND(readability-identifier-naming)

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
  std::mutex mutex_;
  std::vector<std::unique_ptr<const Block>> blocks_;
};

}  // namespace cukiln::torch
