// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <new>

#include "support/cubin_parameters.hpp"
#include "support/fake_cuda_state.hpp"

#include <cukiln/tensor_map.hpp>

using namespace cukiln;                 // NOLINT: the file is a C interface
using namespace cukiln::testing;        // NOLINT
using namespace cukiln::testing::fake;  // NOLINT

namespace {

int capability_of(int device) {
  const auto& all = settings.capabilities;
  return all[std::min<std::size_t>(device, all.size() - 1)];
}

// The driver gets no size and reads that of the headers.
std::size_t image_size(const char* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  std::size_t size = std::max<std::size_t>(
      {sizeof header, header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize,
       header.e_phoff + std::size_t{header.e_phnum} * header.e_phentsize});
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS && section.sh_type < SHT_LOOS) {
      size = std::max<std::size_t>(size, section.sh_offset + section.sh_size);
    }
  }
  return size;
}

int image_capability(const std::string& image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  const bool old = header.e_ident[EI_ABIVERSION] <= 7;
  return static_cast<int>((old ? header.e_flags : header.e_flags >> 8) & 0xff);
}

bool breaks_a_capture() { return settings.foreign_capture && capture_mode != kCaptureModeRelaxed; }

std::uint64_t bit_of(CUcontext context) { return std::uint64_t{1} << (context->id % 64); }

CUresult record(CUkernel kernel, FakeLaunch& launch, void** arguments) {
  if (current.empty()) {
    return kCudaInvalidContext;
  }
  const std::uint64_t bit = bit_of(current.back());
  // Acquires what cuFuncLoad released, as a driver synchronises its own threads.
  if ((kernel->loaded.load(std::memory_order_acquire) & bit) == 0) {
    ++lazy;
    kernel->loaded |= bit;
  }
  if (launch.block[0] * launch.block[1] * launch.block[2] > 1024 || launch.grid[0] == 0) {
    return kCudaInvalidValue;
  }
  std::size_t length = std::min(kernel->name.size(), sizeof launch.kernel - 1);
  std::memcpy(launch.kernel, kernel->name.data(), length);
  launch.kernel[length] = 0;
  launch.image = kernel->image;
  for (std::size_t i = 0; i < kernel->parameters.size(); ++i) {
    const std::size_t size = kernel->parameters[i];
    if (launch.argument_bytes + size <= sizeof launch.arguments) {
      std::memcpy(launch.arguments + launch.argument_bytes, arguments[i], size);
      launch.argument_bytes += size;
    }
  }
  while (recording.test_and_set(std::memory_order_acquire)) {
  }
  recorded[recorded_count++ % kKeptLaunches] = launch;
  recording.clear(std::memory_order_release);
  return kCudaSuccess;
}

// A forked child can call the driver, even if another thread held its mutex. The parent's fork does
// not wait for the mutex: the thread that holds it may wait for cukiln's own fork handler.
[[maybe_unused]] const int kForks = ::pthread_atfork(
    nullptr, nullptr, [] { ::new (static_cast<void*>(&mutex)) std::recursive_mutex; });

}  // namespace

FAKE_API CUresult cuInit(unsigned) {
  FAKE_CALL(cuInit);
  return kCudaSuccess;
}
FAKE_API CUresult cuDriverGetVersion(int* version) {
  FAKE_CALL(cuDriverGetVersion);
  const std::lock_guard lock(mutex);
  *version = settings.version;
  return kCudaSuccess;
}

namespace {
struct NamedError {
  CUresult result;
  const char* name;
  const char* text;
};
constexpr NamedError kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
};
const NamedError* find_error(CUresult result) {
  const auto* at = std::find_if(std::begin(kErrors), std::end(kErrors),
                                [&](const NamedError& error) { return error.result == result; });
  return at == std::end(kErrors) ? nullptr : at;
}
}  // namespace

FAKE_API CUresult cuGetErrorName(CUresult error, const char** name) {
  FAKE_CALL(cuGetErrorName);
  const NamedError* found = find_error(error);
  *name = found != nullptr ? found->name : nullptr;
  return found != nullptr ? kCudaSuccess : kCudaInvalidValue;
}
FAKE_API CUresult cuGetErrorString(CUresult error, const char** text) {
  FAKE_CALL(cuGetErrorString);
  const NamedError* found = find_error(error);
  *text = found != nullptr ? found->text : nullptr;
  return found != nullptr ? kCudaSuccess : kCudaInvalidValue;
}

FAKE_API CUresult cuDeviceGetCount(int* count) {
  FAKE_CALL(cuDeviceGetCount);
  const std::lock_guard lock(mutex);
  *count = settings.devices;
  return kCudaSuccess;
}
FAKE_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_CALL(cuDeviceGet);
  const std::lock_guard lock(mutex);
  *device = ordinal;
  return ordinal >= 0 && ordinal < settings.devices ? kCudaSuccess : kCudaInvalidDevice;
}
FAKE_API CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  FAKE_CALL(cuDeviceGetName);
  std::snprintf(name, length, "Fake GPU %d", device);
  return kCudaSuccess;
}
FAKE_API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  FAKE_CALL(cuDeviceGetAttribute);
  const std::lock_guard lock(mutex);
  switch (attribute) {
    case kDeviceCapabilityMajor: *value = capability_of(device) / 10; return kCudaSuccess;
    case kDeviceCapabilityMinor: *value = capability_of(device) % 10; return kCudaSuccess;
    case kDeviceMaxSharedPerBlock: *value = 49152; return kCudaSuccess;
    case kDeviceMultiprocessors: *value = settings.num_sms; return kCudaSuccess;
    case kDeviceMaxSharedPerBlockOptin: *value = kSharedOptin; return kCudaSuccess;
    default: *value = 0; return kCudaInvalidValue;
  }
}
FAKE_API CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  FAKE_CALL(cuDeviceTotalMem);
  *bytes = std::size_t{80} << 30;
  return kCudaSuccess;
}

FAKE_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE_CALL(cuDevicePrimaryCtxRetain);
  const std::lock_guard lock(mutex);
  ++retained_count[device];
  *context = &primary[device];
  return kCudaSuccess;
}
FAKE_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  FAKE_CALL(cuDevicePrimaryCtxRelease);
  const std::lock_guard lock(mutex);
  return --retained_count[device] >= 0 ? kCudaSuccess : kCudaInvalidContext;
}
FAKE_API CUresult cuCtxGetCurrent(CUcontext* context) {
  FAKE_CALL(cuCtxGetCurrent);
  *context = current.empty() ? nullptr : current.back();
  return kCudaSuccess;
}
FAKE_API CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_CALL(cuCtxGetDevice);
  if (current.empty()) {
    return kCudaInvalidContext;
  }
  *device = current.back()->device;
  return kCudaSuccess;
}
FAKE_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  FAKE_CALL(cuCtxPushCurrent);
  current.push_back(context);
  return kCudaSuccess;
}
FAKE_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  FAKE_CALL(cuCtxPopCurrent);
  if (current.empty()) {
    return kCudaInvalidContext;
  }
  *context = current.back();
  current.pop_back();
  return kCudaSuccess;
}

FAKE_API CUresult cuLibraryLoadData(CUlibrary* library, const void* image, int*, void**, unsigned,
                                    int*, void**, unsigned) {
  FAKE_CALL(cuLibraryLoadData);
  const std::lock_guard lock(mutex);
  if (breaks_a_capture()) {
    return kCudaStreamCaptureUnsupported;
  }
  if (std::memcmp(image, ELFMAG, SELFMAG) != 0) {
    return kCudaInvalidImage;
  }
  const char* bytes = static_cast<const char*>(image);
  static std::uint64_t loads = 0;
  live.push_back(std::make_unique<CUlib_st>());
  live.back()->number = loads++;
  live.back()->image.assign(bytes, image_size(bytes));
  *library = live.back().get();
  return kCudaSuccess;
}
FAKE_API CUresult cuLibraryUnload(CUlibrary library) {
  FAKE_CALL(cuLibraryUnload);
  const std::lock_guard lock(mutex);
  if (breaks_a_capture()) {
    return kCudaStreamCaptureUnsupported;
  }
  return std::erase_if(live, [&](const auto& one) { return one.get() == library; }) == 1
             ? kCudaSuccess
             : kCudaInvalidHandle;
}
FAKE_API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  FAKE_CALL(cuLibraryGetKernel);
  const std::lock_guard lock(mutex);
  const bool bare = library->image.size() == sizeof(Elf64_Ehdr);
  const auto& listed = settings.kernels;
  const bool known = listed ? std::find(listed->begin(), listed->end(), name) != listed->end()
                            : bare || library->image.find(name) != std::string::npos;
  if (!known) {
    return kCudaNotFound;
  }
  auto& made = library->kernels.emplace_back(std::make_unique<CUkern_st>());
  made->name = name;
  made->library = library;
  made->image = std::hash<std::string_view>()(library->image);
  made->parameters = settings.parameters[name];
  if (settings.read_parameters && made->parameters.empty()) {
    made->parameters = cubin_parameters(library->image, name);
  }
  *kernel = made.get();
  return kCudaSuccess;
}
// Behind 1 TiB, 4 GiB apart for each device.
FAKE_API CUresult cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary library,
                                     const char* name) {
  FAKE_CALL(cuLibraryGetGlobal);
  const std::lock_guard lock(mutex);
  if (current.empty()) {
    return kCudaInvalidContext;
  }
  const auto found = settings.globals.find(name);
  if (found == settings.globals.end()) {
    return kCudaNotFound;
  }
  const auto index = static_cast<std::uint64_t>(std::distance(settings.globals.begin(), found));
  *address = (library->number + 1) << 40 |
             static_cast<std::uint64_t>(current.back()->device) << 32 | 256 * index;
  *bytes = found->second;
  return kCudaSuccess;
}
FAKE_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  FAKE_CALL(cuKernelGetFunction);
  const std::lock_guard lock(mutex);
  if (current.empty()) {
    return kCudaInvalidContext;
  }
  if (breaks_a_capture()) {
    return kCudaStreamCaptureUnsupported;
  }
  if (settings.check_arch &&
      image_capability(kernel->library->image) != capability_of(current.back()->device)) {
    return kCudaNoBinaryForGpu;
  }
  *function = reinterpret_cast<CUfunction>(kernel);
  return kCudaSuccess;
}
FAKE_API CUresult cuKernelGetAttribute(int* value, int attribute, CUkernel kernel,
                                       CUdevice device) {
  FAKE_CALL(cuKernelGetAttribute);
  const std::lock_guard lock(mutex);
  const auto dynamic = kernel->dynamic_shared.find(device);
  switch (attribute) {
    case kKernelMaxThreadsPerBlock: *value = 1024; return kCudaSuccess;
    case kKernelStaticShared: *value = kStaticShared; return kCudaSuccess;
    case kKernelMaxDynamicShared:
      *value = dynamic != kernel->dynamic_shared.end() ? dynamic->second : 49152 - kStaticShared;
      return kCudaSuccess;
    case kKernelNumRegisters: *value = 32; return kCudaSuccess;
    case kKernelConstantBytes: *value = 64; return kCudaSuccess;
    case kKernelLocalBytes: *value = 16; return kCudaSuccess;
    case kKernelSharedCarveout:
    case kKernelClusterWidth:
    case kKernelNonPortableCluster:
    case kKernelClusterScheduling:
      *value = kernel->attributes[{device, attribute}];
      return kCudaSuccess;
    default: return kCudaInvalidValue;
  }
}
// 2048 threads and 227 KiB an SM, registers aside.
FAKE_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction,
                                                              int block_threads,
                                                              std::size_t shared_bytes) {
  FAKE_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  if (current.empty()) {
    return kCudaInvalidContext;
  }
  const int by_threads = 2048 / block_threads;
  const int by_shared = static_cast<int>(kSharedOptin / (kStaticShared + shared_bytes));
  *blocks = std::min(by_threads, by_shared);
  return kCudaSuccess;
}
FAKE_API CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
  FAKE_CALL(cuKernelSetAttribute);
  const std::lock_guard lock(mutex);
  if (attribute == kKernelSharedCarveout || attribute == kKernelClusterWidth ||
      attribute == kKernelNonPortableCluster || attribute == kKernelClusterScheduling) {
    kernel->attributes[{device, attribute}] = value;
    return kCudaSuccess;
  }
  if (attribute != kKernelMaxDynamicShared || value > kSharedOptin - kStaticShared) {
    return kCudaInvalidValue;
  }
  kernel->dynamic_shared[device] = value;
  return kCudaSuccess;
}
FAKE_API CUresult cuFuncGetAttribute(int* value, int, CUfunction function) {
  FAKE_CALL(cuFuncGetAttribute);
  if (current.empty()) {
    return kCudaInvalidContext;
  }
  reinterpret_cast<CUkernel>(function)->loaded |= bit_of(current.back());
  *value = 32;
  return kCudaSuccess;
}
#ifndef FAKE_CUDA_OLD
FAKE_API CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                                       std::size_t* size) {
  FAKE_CALL(cuKernelGetParamInfo);
  if (index >= kernel->parameters.size()) {
    return kCudaInvalidValue;
  }
  *offset = 0;
  *size = kernel->parameters[index];
  return kCudaSuccess;
}
FAKE_API CUresult cuFuncLoad(CUfunction function) {
  FAKE_CALL(cuFuncLoad);
  if (current.empty()) {
    return kCudaInvalidContext;
  }
  if (breaks_a_capture()) {
    return kCudaStreamCaptureUnsupported;
  }
  reinterpret_cast<CUkernel>(function)->loaded |= bit_of(current.back());
  return kCudaSuccess;
}
#endif

FAKE_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, CUstream stream,
                                 void** arguments, void**) {
  FAKE_CALL(cuLaunchKernel);
  FakeLaunch launch{};
  launch = {{}, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream};
  return record(reinterpret_cast<CUkernel>(function), launch, arguments);
}
FAKE_API CUresult cuLaunchKernelEx(const LaunchConfiguration* c, CUfunction function,
                                   void** arguments, void**) {
  FAKE_CALL(cuLaunchKernelEx);
  FakeLaunch launch{};
  launch = {{},
            {c->grid_x, c->grid_y, c->grid_z},
            {c->block_x, c->block_y, c->block_z},
            c->shared_bytes,
            c->stream};
  launch.extended = true;
  for (unsigned i = 0; i < c->attribute_count; ++i) {
    const LaunchAttribute& attribute = c->attributes[i];
    if (attribute.id == kLaunchClusterDimension) {
      const auto& cluster = attribute.value.cluster;
      launch.cluster[0] = cluster.x;
      launch.cluster[1] = cluster.y;
      launch.cluster[2] = cluster.z;
    } else if (attribute.id == kLaunchProgrammaticSerialization) {
      launch.programmatic = attribute.value.flag == 1;
    } else if (attribute.id == kLaunchClusterScheduling) {
      launch.balanced = attribute.value.cluster_scheduling == kClusterLoadBalancing;
    } else if (attribute.id == kLaunchCooperative) {
      launch.cooperative = attribute.value.flag == 1;
    } else {
      return kCudaInvalidValue;
    }
  }
  return record(reinterpret_cast<CUkernel>(function), launch, arguments);
}

// The words of a tensor map are the arguments of the call.
FAKE_API CUresult cuTensorMapEncodeTiled(TensorMap* map, int type, std::uint32_t rank, void* data,
                                         const std::uint64_t* size, const std::uint64_t* stride,
                                         const std::uint32_t* box, const std::uint32_t*, int,
                                         int swizzle, int promotion, int) {
  FAKE_CALL(cuTensorMapEncodeTiled);
  *map = {};
  map->opaque[0] = reinterpret_cast<std::uintptr_t>(data);
  map->opaque[1] = std::uint64_t(type) | std::uint64_t{rank} << 8 | std::uint64_t(swizzle) << 16;
  map->opaque[11] = std::uint64_t(promotion);
  for (std::uint32_t i = 0; i < rank && i < 3; ++i) {
    map->opaque[2 + i] = size[i];
    map->opaque[5 + i] = box[i];
    map->opaque[8 + i] = i + 1 < rank ? stride[i] : 0;
  }
  return kCudaSuccess;
}
FAKE_API CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  FAKE_CALL(cuStreamIsCapturing);
  const std::lock_guard lock(mutex);
  *status = kCaptureNone;
  if (stream == nullptr || stream == legacy_stream()) {
    if (current.empty()) {
      return kCudaInvalidContext;
    }
    return settings.legacy_capture ? kCudaStreamCaptureImplicit : kCudaSuccess;
  }
  const auto at = settings.captures.find(stream);
  *status = at != settings.captures.end() ? at->second : kCaptureNone;
  return kCudaSuccess;
}
FAKE_API CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  FAKE_CALL(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, capture_mode);
  return kCudaSuccess;
}
