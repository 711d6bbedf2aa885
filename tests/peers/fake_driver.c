// SPDX-License-Identifier: Apache-2.0
// A libcuda for packages that want a device before they compile: one of compute capability 9.0. It runs nothing. What it does
// not know is CUDA_ERROR_NOT_SUPPORTED.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kInvalidValue = 1, kNotSupported = 801 };

static void* new_handle(void) {
  static intptr_t count = 0x10000;
  return (void*)(__sync_add_and_fetch(&count, 16));
}

#define SUCCEEDS(name) \
  int name(void) { return kSuccess; }
#define WRITES(name, type, value) \
  int name(type* out) {           \
    *out = (type)(value);         \
    return kSuccess;              \
  }

WRITES(cuDriverGetVersion, int, 13050)
WRITES(cuDeviceGetCount, int, 1)
WRITES(cuCtxGetDevice, int, 0)
WRITES(cuCtxGetDevice_v2, int, 0)
WRITES(cuCtxGetCurrent, void*, 0x9990)
WRITES(cuCtxPopCurrent_v2, void*, 0x9990)
WRITES(cuDevicePrimaryCtxRetain, void*, 0x9990)
WRITES(cuCtxCreate_v2, void*, new_handle())
WRITES(cuCtxCreate_v4, void*, new_handle())
WRITES(cuModuleLoadData, void*, new_handle())
WRITES(cuModuleLoadDataEx, void*, new_handle())
WRITES(cuModuleGetFunction, void*, new_handle())
WRITES(cuLibraryLoadData, void*, new_handle())
WRITES(cuLibraryGetKernel, void*, new_handle())
WRITES(cuLibraryGetModule, void*, new_handle())
WRITES(cuLibraryGetKernelCount, unsigned, 1)
WRITES(cuKernelGetFunction, void*, new_handle())
WRITES(cuKernelGetLibrary, void*, new_handle())
WRITES(cuKernelGetAttribute, int, 32)
WRITES(cuFuncGetAttribute, int, 32)
WRITES(cuStreamCreate, void*, new_handle())
WRITES(cuStreamCreateWithPriority, void*, new_handle())
WRITES(cuEventCreate, void*, new_handle())
WRITES(cuOccupancyMaxActiveBlocksPerMultiprocessor, int, 4)
WRITES(cuDeviceTotalMem_v2, size_t, 80ull << 30)
SUCCEEDS(cuInit)
SUCCEEDS(cuCtxDestroy_v2)
SUCCEEDS(cuCtxSetCurrent)
SUCCEEDS(cuCtxPushCurrent_v2)
SUCCEEDS(cuCtxSynchronize)
SUCCEEDS(cuDevicePrimaryCtxRelease_v2)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuStreamDestroy_v2)
SUCCEEDS(cuStreamSynchronize)
SUCCEEDS(cuEventDestroy_v2)
SUCCEEDS(cuEventRecord)
SUCCEEDS(cuEventSynchronize)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuFuncLoad)

/// NVRTC asks for one: its first member is its size.
int cuGetExportTable(const void** table, const void* id) {
  (void)id;
  static const size_t kEmpty[64] = {sizeof(size_t)};
  *table = kEmpty;
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : 101;  // CUDA_ERROR_INVALID_DEVICE
}

int cuDeviceGetName(char* name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "none");
  return kSuccess;
}

int cuDeviceGetUuid_v2(char* uuid, int device) {
  memset(uuid, device + 7, 16);
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case 1: *value = 1024; break;    // MAX_THREADS_PER_BLOCK
    case 8: *value = 49152; break;   // MAX_SHARED_MEMORY_PER_BLOCK
    case 10: *value = 32; break;     // WARP_SIZE
    case 16: *value = 132; break;    // MULTIPROCESSOR_COUNT
    case 75: *value = 9; break;      // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = 0; break;      // COMPUTE_CAPABILITY_MINOR
    case 97: *value = 232448; break; // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    default: *value = 1;
  }
  return kSuccess;
}

int cuMemGetInfo_v2(size_t* unused, size_t* size) {
  *unused = *size = 80ull << 30;
  return kSuccess;
}

int cuMemAlloc_v2(void** address, size_t size) {
  *address = calloc(1, size);
  return kSuccess;
}

int cuMemFree_v2(void* address) {
  free(address);
  return kSuccess;
}

int cuMemcpyHtoD_v2(void* to, const void* from, size_t size) {
  memcpy(to, from, size);
  return kSuccess;
}

int cuMemcpyDtoH_v2(void* to, const void* from, size_t size) {
  memcpy(to, from, size);
  return kSuccess;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == kSuccess ? "CUDA_SUCCESS" : error == kNotSupported ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_ERROR_UNKNOWN";
  return kSuccess;
}

int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }

static int is_unknown(void) { return kNotSupported; }

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  (void)version, (void)flags;
  Dl_info self;
  dladdr((void*)&cuInit, &self);
  void* const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = (void*)&is_unknown;
  for (const char* const* suffix = (const char*[]){"_v4", "_v3", "_v2", "", NULL}; *suffix != NULL; ++suffix) {
    char symbol[128];
    snprintf(symbol, sizeof symbol, "%s%s", name, *suffix);
    void* const found = dlsym(library, symbol);
    if (found != NULL) {
      *function = found;
      break;
    }
  }
  if (status != NULL) {
    *status = 0;
  }
  return kSuccess;
}

int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
