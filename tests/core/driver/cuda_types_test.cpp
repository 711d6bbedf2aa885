// SPDX-License-Identifier: Apache-2.0
// Compares cuda_types.hpp with <cuda.h>, where that is installed. <cuda.h> is included first: it
// maps names to the versions that driver_api.cpp spells out, in both headers.
#if __has_include(<cuda.h>)
#include <cuda.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <doctest/doctest.h>

#include "core/driver/cuda_types.hpp"

#include <cukiln/tensor_map.hpp>

namespace cukiln {
namespace {

template <class A, class B>
constexpr bool kSameKind = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <class A, class B>
struct SameAbi : std::false_type {};
template <class R, class S, class... A, class... B>
struct SameAbi<R (*)(A...), S (*)(B...)> {
  static constexpr bool check() {
    if constexpr (sizeof...(A) == sizeof...(B)) {
      return (kSameKind<A, B> && ...) && kSameKind<R, S>;
    } else {
      return false;
    }
  }
  static constexpr bool value = check();
};

#define SAME_FUNCTION(name) \
  static_assert(SameAbi<decltype(DriverFunctions::name), decltype(&::name)>::value, #name)
SAME_FUNCTION(cuInit);
SAME_FUNCTION(cuDriverGetVersion);
SAME_FUNCTION(cuGetErrorName);
SAME_FUNCTION(cuGetErrorString);
SAME_FUNCTION(cuDeviceGetCount);
SAME_FUNCTION(cuDeviceGet);
SAME_FUNCTION(cuDeviceGetName);
SAME_FUNCTION(cuDeviceGetAttribute);
SAME_FUNCTION(cuDevicePrimaryCtxRetain);
SAME_FUNCTION(cuCtxGetCurrent);
SAME_FUNCTION(cuCtxGetDevice);
SAME_FUNCTION(cuLibraryLoadData);
SAME_FUNCTION(cuLibraryUnload);
SAME_FUNCTION(cuLibraryGetKernel);
SAME_FUNCTION(cuLibraryGetGlobal);
SAME_FUNCTION(cuKernelGetFunction);
SAME_FUNCTION(cuKernelGetAttribute);
SAME_FUNCTION(cuKernelSetAttribute);
SAME_FUNCTION(cuFuncGetAttribute);
SAME_FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor);
SAME_FUNCTION(cuLaunchKernel);
SAME_FUNCTION(cuLaunchKernelEx);
SAME_FUNCTION(cuTensorMapEncodeTiled);
SAME_FUNCTION(cuStreamIsCapturing);
SAME_FUNCTION(cuThreadExchangeStreamCaptureMode);
#if CUDA_VERSION >= 12040
SAME_FUNCTION(cuKernelGetParamInfo);
SAME_FUNCTION(cuFuncLoad);
#endif
SAME_FUNCTION(cuDeviceTotalMem);
SAME_FUNCTION(cuDevicePrimaryCtxRelease);
SAME_FUNCTION(cuCtxPushCurrent);
SAME_FUNCTION(cuCtxPopCurrent);

static_assert(sizeof(CUresult) == sizeof(::CUresult));
static_assert(std::is_same_v<CUdevice, ::CUdevice>);
static_assert(std::is_same_v<CUcontext, ::CUcontext>);
static_assert(std::is_same_v<CUfunction, ::CUfunction>);
static_assert(std::is_same_v<CUkernel, ::CUkernel>);
static_assert(std::is_same_v<CUlibrary, ::CUlibrary>);
static_assert(std::is_same_v<CUstream, ::CUstream>);

static_assert(kCudaSuccess == CUDA_SUCCESS);
static_assert(kCudaInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kCudaOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kCudaNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kCudaDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(kCudaStubLibrary == CUDA_ERROR_STUB_LIBRARY);
static_assert(kCudaNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kCudaInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kCudaInvalidImage == CUDA_ERROR_INVALID_IMAGE);
static_assert(kCudaInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kCudaNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kCudaInvalidPtx == CUDA_ERROR_INVALID_PTX);
static_assert(kCudaUnsupportedPtxVersion == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(kCudaInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kCudaNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kCudaIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kCudaLaunchOutOfResources == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
static_assert(kCudaLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT);
static_assert(kCudaHardwareStackError == CUDA_ERROR_HARDWARE_STACK_ERROR);
static_assert(kCudaLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kCudaCooperativeLaunchTooLarge == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
static_assert(kCudaSystemNotReady == CUDA_ERROR_SYSTEM_NOT_READY);
static_assert(kCudaSystemDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
static_assert(kCudaStreamCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kCudaStreamCaptureInvalidated == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(kCudaStreamCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);

static_assert(kDeviceMaxSharedPerBlock == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
static_assert(kDeviceCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kDeviceCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kDeviceMaxSharedPerBlockOptin ==
              CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kKernelMaxThreadsPerBlock == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(kKernelStaticShared == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
static_assert(kKernelConstantBytes == CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
static_assert(kKernelLocalBytes == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
static_assert(kKernelNumRegisters == CU_FUNC_ATTRIBUTE_NUM_REGS);
static_assert(kKernelMaxDynamicShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(kCaptureActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(kCaptureInvalidated == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
static_assert(kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kLaunchCooperative == CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
static_assert(kLaunchClusterDimension == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(kLaunchClusterScheduling == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
static_assert(kClusterLoadBalancing == CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING);
static_assert(kLaunchProgrammaticSerialization ==
              CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
              alignof(TensorMap) >= alignof(CUtensorMap));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfiguration) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfiguration, block_x) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfiguration, shared_bytes) ==
              offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfiguration, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfiguration, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfiguration, attribute_count) == offsetof(CUlaunchConfig, numAttrs));

}  // namespace

TEST_CASE("Launch attributes are written where cuda.h reads them") {
  LaunchAttribute ours{};
  ours.id = kLaunchClusterDimension;
  ours.value.cluster = {2, 3, 4};
  CUlaunchAttribute theirs;
  static_assert(sizeof ours == sizeof theirs);
  std::memcpy(&theirs, &ours, sizeof theirs);
  CHECK(theirs.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  CHECK(theirs.value.clusterDim.x == 2);
  CHECK(theirs.value.clusterDim.y == 3);
  CHECK(theirs.value.clusterDim.z == 4);

  ours = {};
  ours.value.flag = 1;
  std::memcpy(&theirs, &ours, sizeof theirs);
  CHECK(theirs.value.cooperative == 1);
  CHECK(theirs.value.programmaticStreamSerializationAllowed == 1);
  ours.value.cluster_scheduling = kClusterLoadBalancing;
  std::memcpy(&theirs, &ours, sizeof theirs);
  CHECK(theirs.value.clusterSchedulingPolicyPreference ==
        CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING);
  CHECK(legacy_stream() == CU_STREAM_LEGACY);
}

}  // namespace cukiln
#endif
