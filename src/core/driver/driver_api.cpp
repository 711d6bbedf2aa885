// SPDX-License-Identifier: Apache-2.0
#include "core/driver/driver_api.hpp"

#include <dlfcn.h>

#include <string_view>

#include "core/base/result.hpp"

namespace cukiln {
namespace {

// Resolves the function table and remembers the first required function that is missing.
class Resolver {
 public:
  explicit Resolver(void* handle) noexcept : handle_(handle) {}

  template <class Function>
  void required(Function*& function, const char* name) {
    optional(function, name);
    if (function == nullptr && missing_ == nullptr) {
      missing_ = name;
    }
  }
  template <class Function>
  void optional(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));  // NOLINT: what dlsym is for
  }
  const char* missing() const noexcept { return missing_; }

 private:
  void* handle_;
  const char* missing_ = nullptr;
};

const char* resolve(DriverFunctions& call, void* handle) {
  Resolver from(handle);
  from.required(call.cuInit, "cuInit");
  from.required(call.cuDriverGetVersion, "cuDriverGetVersion");
  from.required(call.cuGetErrorName, "cuGetErrorName");
  from.required(call.cuGetErrorString, "cuGetErrorString");
  from.required(call.cuDeviceGetCount, "cuDeviceGetCount");
  from.required(call.cuDeviceGet, "cuDeviceGet");
  from.required(call.cuDeviceGetName, "cuDeviceGetName");
  from.required(call.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  from.required(call.cuDeviceTotalMem, "cuDeviceTotalMem_v2");
  from.required(call.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  from.required(call.cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  from.required(call.cuCtxGetCurrent, "cuCtxGetCurrent");
  from.required(call.cuCtxGetDevice, "cuCtxGetDevice");
  from.required(call.cuCtxPushCurrent, "cuCtxPushCurrent_v2");
  from.required(call.cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  from.required(call.cuLibraryLoadData, "cuLibraryLoadData");
  from.required(call.cuLibraryUnload, "cuLibraryUnload");
  from.required(call.cuLibraryGetKernel, "cuLibraryGetKernel");
  from.required(call.cuLibraryGetGlobal, "cuLibraryGetGlobal");
  from.required(call.cuKernelGetFunction, "cuKernelGetFunction");
  from.required(call.cuKernelGetAttribute, "cuKernelGetAttribute");
  from.required(call.cuKernelSetAttribute, "cuKernelSetAttribute");
  from.optional(call.cuKernelGetParamInfo, "cuKernelGetParamInfo");
  from.required(call.cuFuncGetAttribute, "cuFuncGetAttribute");
  from.optional(call.cuFuncLoad, "cuFuncLoad");
  from.required(call.cuOccupancyMaxActiveBlocksPerMultiprocessor,
                "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  from.required(call.cuLaunchKernel, "cuLaunchKernel");
  from.required(call.cuLaunchKernelEx, "cuLaunchKernelEx");
  from.required(call.cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
  from.required(call.cuStreamIsCapturing, "cuStreamIsCapturing");
  from.required(call.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  return from.missing();
}

std::string_view advice_for(CUresult result) noexcept {
  switch (result) {
    case kCudaOutOfMemory: return "; free device memory, or load fewer kernels on this device";
    case kCudaNotInitialized:
      return "; CUDA does not survive fork: use cukiln only in processes that start CUDA "
             "themselves";
    case kCudaDeinitialized:
      return "; the process is exiting: end the use of CUDA before main returns";
    case kCudaStubLibrary:
      return "; this is the toolkit's stub for linking: remove its folder from the library path";
    case kCudaNoDevice: return "; no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case kCudaSystemNotReady:
      return "; a service of the machine is not running yet: check nvidia-fabricmanager";
    case kCudaSystemDriverMismatch:
      return "; libcuda and the kernel module are of different versions: reload the module or "
             "reboot";
    case kCudaInvalidContext: return "; make a CUDA context current in this thread first";
    case kCudaIllegalAddress:
    case kCudaLaunchTimeout:
    case kCudaHardwareStackError:
    case kCudaLaunchFailed:
      return "; a kernel that ran before failed, not necessarily this one, and the context is "
             "lost: "
             "find it with compute-sanitizer";
    case kCudaStreamCaptureUnsupported:
    case kCudaStreamCaptureInvalidated:
    case kCudaStreamCaptureImplicit: return "; a stream is being captured: end the capture first";
    default: return "";
  }
}

}  // namespace

Result<std::shared_ptr<const DriverApi>> DriverApi::open(const std::string& library) {
  const std::string path = library.empty() ? "libcuda.so.1" : library;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return make_error(ErrorCode::not_found,
                      "no CUDA driver: {}; install the NVIDIA driver, or name its libcuda.so.1 "
                      "(cuda_library). Without a GPU kernels can be compiled but not loaded",
                      reason != nullptr ? reason : path.c_str());
  }
  std::shared_ptr<DriverApi> api(new DriverApi());
  api->handle_ = handle;
  if (const char* missing = resolve(api->call, handle)) {
    int version = 0;
    if (api->call.cuDriverGetVersion != nullptr) {
      api->call.cuDriverGetVersion(&version);
    }
    constexpr int kFirstSupported = 12000;
    const Error error =
        version == 0 ? make_error(ErrorCode::incompatible, "{} is not a CUDA driver: it has no {}",
                                  path, missing)
        : version < kFirstSupported
            ? make_error(ErrorCode::incompatible,
                         "{} has no {}: it is for CUDA {}.{}, expected 12.0 or later; update the "
                         "NVIDIA driver",
                         path, missing, version / 1000, version % 1000 / 10)
            : make_error(ErrorCode::incompatible,
                         "{} says that it is for CUDA {}.{}, and has no {}; expected NVIDIA's "
                         "driver, which has it since CUDA 12.0",
                         path, version / 1000, version % 1000 / 10, missing);
    dlclose(handle);
    return error;
  }
  // Never closed from here on: cuInit starts threads of the library.
  if (const CUresult result = api->call.cuInit(0); result != kCudaSuccess) {
    return api->error("cuInit", result);
  }
  if (const CUresult result = api->call.cuDriverGetVersion(&api->version); result != kCudaSuccess) {
    return api->error("cuDriverGetVersion", result);
  }
  return std::shared_ptr<const DriverApi>(std::move(api));
}

std::string DriverApi::version_text() const {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string DriverApi::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (call.cuGetErrorName(result, &name) != kCudaSuccess || name == nullptr) {
    return fmt::format("CUDA error {}", result);
  }
  if (call.cuGetErrorString(result, &text) != kCudaSuccess || text == nullptr) {
    return fmt::format("{} ({})", name, result);
  }
  return fmt::format("{} ({}): {}", name, result, text);
}

Error DriverApi::error(std::string_view what, CUresult result) const {
  return make_error(ErrorCode::driver, "{} failed: {}{}", what, describe(result),
                    advice_for(result));
}

void* DriverApi::symbol(const char* name) const noexcept { return dlsym(handle_, name); }

}  // namespace cukiln
