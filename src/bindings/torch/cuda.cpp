// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/cuda.hpp"

#include "base/fork_gate.hpp"
#include "base/result.hpp"
#include "bindings/torch/host.hpp"
#include "bindings/torch/tensor.hpp"
#include "loader/loader_impl.hpp"

namespace cukiln::torch {

Result<std::unique_ptr<Cuda>> Cuda::create(KernelLoader& loader) {
  CUKILN_TRY(const CudaShim shim, open_cuda_shim());
  CUKILN_TRY(auto driver, loader.impl().driver());
  auto amax = nvfp4::AmaxGsa::create(loader);
  if (!amax) {  // the simplest kernel: without it there is no other
    return std::move(amax).error();
  }
  std::unique_ptr<Cuda> cuda(
      new Cuda{shim, driver, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, std::move(amax),
               nvfp4::Quantize::create(loader), nvfp4::QuantizeStatic::create(loader),
               nvfp4::DeinterleaveQuantize::create(loader), nvfp4::SwiGluAmaxGsa::create(loader),
               nvfp4::Gemm::create(loader), nvfp4::MoeGemm::create(loader),
               sampling::Sampler::create(loader, sampling::LogitType::f32),
               sampling::Sampler::create(loader, sampling::LogitType::bf16),
               sampling::Sampler::create(loader, sampling::LogitType::f16)});
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(driver->symbol(name));
    missing = function == nullptr ? name : missing;
  };
  find(cuda->cuMemAlloc, "cuMemAlloc_v2");
  find(cuda->cuMemFree, "cuMemFree_v2");
  find(cuda->cuMemsetD8, "cuMemsetD8_v2");
  find(cuda->cuMemsetD8Async, "cuMemsetD8Async");
  find(cuda->cuStreamSynchronize, "cuStreamSynchronize");
  find(cuda->cuCtxSetCurrent, "cuCtxSetCurrent");
  if (missing != nullptr) {
    return make_error(ErrorCode::incompatible, "the CUDA driver has no {}; install a later one",
                      missing);
  }
  return cuda;
}

CudaScope::CudaScope(const Cuda& cuda, int device) : cuda_(cuda) {
  void* current = nullptr;
  if (cuda.shim.aoti_torch_create_cuda_guard(device, &guard_) != 0 ||
      cuda.shim.aoti_torch_get_current_cuda_stream(device, &current) != 0) {
    throw std::runtime_error(fmt::format("PyTorch gave no stream of cuda:{}", device));
  }
  stream = static_cast<Stream>(current);
  // The runtime binds a context to a thread at its own first call, which may not have been.
  CUcontext context = nullptr;
  const auto& call = cuda.driver->call;
  if (call.cuCtxGetCurrent(&context) == kCudaSuccess && context == nullptr) {
    CUdevice handle = 0;
    if (call.cuDeviceGet(&handle, device) == kCudaSuccess &&
        call.cuDevicePrimaryCtxRetain(&context, handle) == kCudaSuccess) {
      cuda.cuCtxSetCurrent(context);
    }
  }
}

CudaScope::~CudaScope() { cuda_.shim.aoti_torch_delete_cuda_guard(guard_); }

Scratch::~Scratch() {
  if (blocks_.empty()) {
    return;
  }
  try {
    const CudaScope scope(cuda_, device_);
    for (const auto& block : blocks_) {
      cuda_.cuMemFree(block->memory);
    }
  } catch (const std::exception&) {  // the device is gone, and its memory with it
  }
}

Result<Scratch::Block> Scratch::grow(Stream stream, std::int64_t tokens, std::size_t bytes) {
  const ForkSafeLock lock(mutex_);
  if (const Block latest = current(); latest.tokens >= tokens && latest.bytes >= bytes) {
    return latest;  // another thread was faster
  }
  int status = kCaptureNone;
  const CUresult asked = cuda_.driver->call.cuStreamIsCapturing(stream, &status);
  if (asked == kCudaStreamCaptureImplicit || status != kCaptureNone) {
    return make_error(ErrorCode::invalid_argument,
                      "{} tokens came while the stream is being captured, and scratch is reserved "
                      "for {}: call reserve({}) before the capture begins",
                      tokens, current().tokens, tokens);
  }
  void* memory = nullptr;
  if (const CUresult result = cuda_.cuMemAlloc(&memory, bytes); result != kCudaSuccess) {
    return cuda_.driver->error(fmt::format("cuMemAlloc({} bytes)", bytes), result);
  }
  CUresult result = cuda_.cuMemsetD8(memory, 0, bytes);
  if (result == kCudaSuccess) {
    result = cuda_.cuStreamSynchronize(nullptr);  // for streams that do not wait for the default
  }
  if (result != kCudaSuccess) {
    cuda_.cuMemFree(memory);
    return cuda_.driver->error("zeroing scratch", result);
  }
  blocks_.push_back(
      std::make_unique<const Block>(Block{static_cast<std::byte*>(memory), bytes, tokens}));
  current_.store(blocks_.back().get(), std::memory_order_release);
  return *blocks_.back();
}

const Cuda& Host::require_cuda() const {
  const Cuda* const ready = cuda.load(std::memory_order_acquire);
  if (ready == nullptr) {
    throw std::runtime_error(
        "no kernels are loaded for CUDA tensors: call cukiln.torch.use_loader() once, at start");
  }
  return *ready;
}

}  // namespace cukiln::torch
