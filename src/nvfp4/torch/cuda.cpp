// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/cuda.hpp"

#include <algorithm>

#include "core/base/result.hpp"
#include "nvfp4/torch/host.hpp"
#include "nvfp4/torch/tensor.hpp"

namespace cukiln::torch {

Result<Driver> Driver::create(KernelLoader& loader) {
  Driver made(loader);
  Result<void> missing;
  const auto find = [&](auto& function, const char* name) {
    auto found = loader.driver_function(name);
    if (found) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(*found);
    } else {
      missing = std::move(found).error();
    }
  };
  find(made.cuMemAlloc, "cuMemAlloc_v2");
  find(made.cuMemFree, "cuMemFree_v2");
  find(made.cuMemsetD8Async, "cuMemsetD8Async");
  find(made.cuStreamCreate, "cuStreamCreate");
  find(made.cuStreamDestroy, "cuStreamDestroy_v2");
  find(made.cuStreamSynchronize, "cuStreamSynchronize");
  find(made.cuStreamGetId, "cuStreamGetId");
  find(made.cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2");
  find(made.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  find(made.cuUserObjectCreate, "cuUserObjectCreate");
  find(made.cuUserObjectRelease, "cuUserObjectRelease");
  find(made.cuGraphRetainUserObject, "cuGraphRetainUserObject");
  find(made.cuCtxGetCurrent, "cuCtxGetCurrent");
  find(made.cuCtxSetCurrent, "cuCtxSetCurrent");
  find(made.cuDeviceGet, "cuDeviceGet");
  find(made.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  CUKILN_CHECK(std::move(missing));
  return made;
}

namespace {

template <class Launcher>
std::size_t workspace_bytes_of(const Result<Launcher>& launcher) {
  return launcher ? launcher->workspace_bytes() : 0;
}

}  // namespace

DeviceLaunchers::DeviceLaunchers(KernelLoader& loader, int device)
    : global_scale(nvfp4::ComputeGlobalScale::create(loader, device)),
      quantize(nvfp4::Quantize::create(loader, device)),
      quantize_static(nvfp4::QuantizeStatic::create(loader, device)),
      deinterleave(nvfp4::DeinterleaveQuantize::create(loader, device)),
      swiglu_global_scale(nvfp4::ComputeSwiGluGlobalScale::create(loader, device)),
      gemm(nvfp4::Gemm::create(loader, device)),
      w4a16_gemm(nvfp4::W4a16Gemm::create(loader, device)),
      moe(nvfp4::MoeGemm::create(loader, device)),
      sample_f32(sampling::Sampler::create(loader, device, DataType::f32)),
      sample_bf16(sampling::Sampler::create(loader, device, DataType::bf16)),
      sample_f16(sampling::Sampler::create(loader, device, DataType::f16)),
      top_log_probabilities_f32(
          sampling::TopLogProbabilities::create(loader, device, DataType::f32)),
      top_log_probabilities_bf16(
          sampling::TopLogProbabilities::create(loader, device, DataType::bf16)),
      top_log_probabilities_f16(
          sampling::TopLogProbabilities::create(loader, device, DataType::f16)),
      zeroed_workspaces(std::make_unique<ZeroedWorkspaces>(
          std::max(workspace_bytes_of(global_scale), workspace_bytes_of(swiglu_global_scale)))) {}

Result<std::unique_ptr<Cuda>> Cuda::create(KernelLoader& loader) {
  CUKILN_TRY(const CudaShim shim, open_cuda_shim());
  CUKILN_TRY(const Driver driver, Driver::create(loader));
  CUKILN_TRY(const auto devices, loader.devices());
  auto made = std::make_unique<Cuda>(Cuda{shim, driver, {}});
  for (const DeviceInfo& device : devices) {
    made->launchers.emplace_back(loader, device.ordinal);
    const auto& simplest = made->launchers.front().global_scale;
    if (!simplest) {  // then no other kernel compiles or loads
      return simplest.error();
    }
  }
  return made;
}

Result<const DeviceLaunchers*> Cuda::on(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= launchers.size()) {
    return make_error(ErrorCode::invalid_argument,
                      "the device is cuda:{}; {} devices are visible to cukiln, counted from 0",
                      device, launchers.size());
  }
  return &launchers[static_cast<std::size_t>(device)];
}

CudaScope::CudaScope(const Cuda& cuda, int device)
    : launchers(*require(cuda.on(device))), cuda_(cuda) {
  void* current = nullptr;
  if (cuda.shim.aoti_torch_create_cuda_guard(device, &guard_) != 0 ||
      cuda.shim.aoti_torch_get_current_cuda_stream(device, &current) != 0) {
    throw std::runtime_error(fmt::format(
        "PyTorch has no current stream for cuda:{}: expected a device that torch.cuda sees too",
        device));
  }
  stream = static_cast<Stream>(current);
  // The runtime makes a context current at its own first call in a thread, which may be still to
  // come.
  Driver::CUcontext context = nullptr;
  const Driver& driver = cuda.driver;
  if (driver.cuCtxGetCurrent(&context) == Driver::kSuccess && context == nullptr) {
    Driver::CUdevice handle = 0;
    if (driver.cuDeviceGet(&handle, device) == Driver::kSuccess &&
        driver.cuDevicePrimaryCtxRetain(&context, handle) == Driver::kSuccess) {
      driver.cuCtxSetCurrent(context);
    }
  }
}

CudaScope::~CudaScope() { cuda_.shim.aoti_torch_delete_cuda_guard(guard_); }

nvfp4::Workspace CudaScope::zeroed_workspace() const {
  return require(launchers.zeroed_workspaces->get(cuda_.driver, stream));
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
