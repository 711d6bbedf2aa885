// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The parts of the CUDA driver's ABI that cukiln uses, so that building needs no toolkit. A unit
// test compares them with <cuda.h> where that is installed. The handles' structs are the driver's
// own, in the global namespace, so that a host's CUstream is the same type.
struct CUctx_st;
struct CUfunc_st;
struct CUkern_st;
struct CUlib_st;
struct CUstream_st;

namespace cukiln {

inline namespace v0 {
struct TensorMap;  // <cukiln/tensor_map.hpp>
}

// NOLINTBEGIN(readability-identifier-naming): the driver's own names
using CUresult = unsigned;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = CUctx_st*;
using CUfunction = CUfunc_st*;
using CUkernel = CUkern_st*;
using CUlibrary = CUlib_st*;
using CUstream = CUstream_st*;
// NOLINTEND(readability-identifier-naming)

inline constexpr CUresult kCudaSuccess = 0;
inline constexpr CUresult kCudaInvalidValue = 1;
inline constexpr CUresult kCudaOutOfMemory = 2;
inline constexpr CUresult kCudaNotInitialized = 3;
inline constexpr CUresult kCudaDeinitialized = 4;
inline constexpr CUresult kCudaStubLibrary = 34;
inline constexpr CUresult kCudaNoDevice = 100;
inline constexpr CUresult kCudaInvalidDevice = 101;
inline constexpr CUresult kCudaInvalidImage = 200;
inline constexpr CUresult kCudaInvalidContext = 201;
inline constexpr CUresult kCudaNoBinaryForGpu = 209;
inline constexpr CUresult kCudaInvalidPtx = 218;
inline constexpr CUresult kCudaUnsupportedPtxVersion = 222;
inline constexpr CUresult kCudaInvalidHandle = 400;
inline constexpr CUresult kCudaNotFound = 500;
inline constexpr CUresult kCudaIllegalAddress = 700;
inline constexpr CUresult kCudaLaunchOutOfResources = 701;
inline constexpr CUresult kCudaLaunchTimeout = 702;
inline constexpr CUresult kCudaHardwareStackError = 714;
inline constexpr CUresult kCudaLaunchFailed = 719;
inline constexpr CUresult kCudaCooperativeLaunchTooLarge = 720;
inline constexpr CUresult kCudaSystemNotReady = 802;
inline constexpr CUresult kCudaSystemDriverMismatch = 803;
inline constexpr CUresult kCudaStreamCaptureUnsupported = 900;
inline constexpr CUresult kCudaStreamCaptureInvalidated = 901;
inline constexpr CUresult kCudaStreamCaptureImplicit = 906;

// CUdevice_attribute
inline constexpr int kDeviceMaxSharedPerBlock = 8;
inline constexpr int kDeviceMultiprocessors = 16;
inline constexpr int kDeviceCapabilityMajor = 75;
inline constexpr int kDeviceCapabilityMinor = 76;
inline constexpr int kDeviceMaxSharedPerBlockOptin = 97;

// CUfunction_attribute
inline constexpr int kKernelMaxThreadsPerBlock = 0;
inline constexpr int kKernelStaticShared = 1;
inline constexpr int kKernelConstantBytes = 2;
inline constexpr int kKernelLocalBytes = 3;
inline constexpr int kKernelNumRegisters = 4;
inline constexpr int kKernelMaxDynamicShared = 8;
inline constexpr int kKernelSharedCarveout = 9;
inline constexpr int kKernelClusterWidth = 11;
inline constexpr int kKernelNonPortableCluster = 14;
inline constexpr int kKernelClusterScheduling = 15;

// CUstreamCaptureStatus, CUstreamCaptureMode
inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureActive = 1;
inline constexpr int kCaptureInvalidated = 2;
inline constexpr int kCaptureModeRelaxed = 2;

/// CU_STREAM_LEGACY
inline CUstream legacy_stream() noexcept {
  return reinterpret_cast<CUstream>(std::uintptr_t{1});  // NOLINT: a handle, never dereferenced
}

// CUlaunchAttributeID
inline constexpr int kLaunchCooperative = 2;
inline constexpr int kLaunchClusterDimension = 4;
inline constexpr int kLaunchClusterScheduling = 5;
inline constexpr int kLaunchProgrammaticSerialization = 6;

// CUclusterSchedulingPolicy
inline constexpr int kClusterLoadBalancing = 2;

/// CUlaunchAttribute, with the members of its value that cukiln sets.
struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int flag;
    int cluster_scheduling;
    struct {
      unsigned x;
      unsigned y;
      unsigned z;
    } cluster;
  } value;
};

/// CUlaunchConfig
struct LaunchConfiguration {
  unsigned grid_x;
  unsigned grid_y;
  unsigned grid_z;
  unsigned block_x;
  unsigned block_y;
  unsigned block_z;
  unsigned shared_bytes;
  CUstream stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

// CUtensorMapDataType
inline constexpr int kTensorU8 = 0;
inline constexpr int kTensorU16 = 1;
inline constexpr int kTensorF16 = 6;
inline constexpr int kTensorBf16 = 9;

// CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
inline constexpr int kTensorInterleaveNone = 0;
inline constexpr int kTensorSwizzleNone = 0;
inline constexpr int kTensorSwizzle64 = 2;
inline constexpr int kTensorSwizzle128 = 3;
inline constexpr int kTensorPromotion128 = 2;
inline constexpr int kTensorPromotion256 = 3;
inline constexpr int kTensorFillZero = 0;

/// The driver functions used. Their exported names include the version of their ABI
/// (`cuCtxPushCurrent_v2`), which every later driver keeps. Optional ones are null in older
/// drivers.
struct DriverFunctions {
  // NOLINTBEGIN(readability-identifier-naming): the driver's own names
  CUresult (*cuInit)(unsigned flags);
  CUresult (*cuDriverGetVersion)(int* version);
  CUresult (*cuGetErrorName)(CUresult error, const char** name);
  CUresult (*cuGetErrorString)(CUresult error, const char** text);

  CUresult (*cuDeviceGetCount)(int* count);
  CUresult (*cuDeviceGet)(CUdevice* device, int ordinal);
  CUresult (*cuDeviceGetName)(char* name, int length, CUdevice device);
  CUresult (*cuDeviceGetAttribute)(int* value, int attribute, CUdevice device);
  CUresult (*cuDeviceTotalMem)(std::size_t* bytes, CUdevice device);

  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device);
  CUresult (*cuDevicePrimaryCtxRelease)(CUdevice device);
  CUresult (*cuCtxGetCurrent)(CUcontext* context);
  CUresult (*cuCtxGetDevice)(CUdevice* device);
  CUresult (*cuCtxPushCurrent)(CUcontext context);
  CUresult (*cuCtxPopCurrent)(CUcontext* context);

  CUresult (*cuLibraryLoadData)(CUlibrary* library, const void* image, int* jit_options,
                                void** jit_values, unsigned jit_count, int* options, void** values,
                                unsigned count);
  CUresult (*cuLibraryUnload)(CUlibrary library);
  CUresult (*cuLibraryGetKernel)(CUkernel* kernel, CUlibrary library, const char* name);
  CUresult (*cuLibraryGetGlobal)(CUdeviceptr* address, std::size_t* bytes, CUlibrary library,
                                 const char* name);
  CUresult (*cuKernelGetFunction)(CUfunction* function, CUkernel kernel);
  CUresult (*cuKernelGetAttribute)(int* value, int attribute, CUkernel kernel, CUdevice device);
  CUresult (*cuKernelSetAttribute)(int attribute, int value, CUkernel kernel, CUdevice device);
  CUresult (*cuKernelGetParamInfo)(CUkernel kernel, std::size_t index, std::size_t* offset,
                                   std::size_t* size);  ///< optional, 12.4
  CUresult (*cuFuncGetAttribute)(int* value, int attribute, CUfunction function);
  CUresult (*cuFuncLoad)(CUfunction function);  ///< optional, 12.4
  CUresult (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, CUfunction function,
                                                          int block_threads,
                                                          std::size_t shared_bytes);

  CUresult (*cuLaunchKernel)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, CUstream stream, void** arguments,
                             void** extra);
  CUresult (*cuLaunchKernelEx)(const LaunchConfiguration* configuration, CUfunction function,
                               void** arguments, void** extra);

  CUresult (*cuTensorMapEncodeTiled)(TensorMap* map, int type, std::uint32_t rank, void* data,
                                     const std::uint64_t* size, const std::uint64_t* stride,
                                     const std::uint32_t* box, const std::uint32_t* step,
                                     int interleave, int swizzle, int promotion, int fill);

  CUresult (*cuStreamIsCapturing)(CUstream stream, int* status);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int* mode);
  // NOLINTEND(readability-identifier-naming)
};

}  // namespace cukiln
