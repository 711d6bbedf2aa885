// SPDX-License-Identifier: Apache-2.0
#include "core/driver/device_contexts.hpp"

#include <algorithm>

#include "core/base/result.hpp"
#include "core/driver/parallel.hpp"

namespace cukiln {
namespace {

// Returns the device of the calling thread's current context; -1 if there is none.
CUdevice current_device(const DriverApi& api, CUcontext& context) {
  CUdevice device = -1;
  if (api.call.cuCtxGetCurrent(&context) != kCudaSuccess || context == nullptr ||
      api.call.cuCtxGetDevice(&device) != kCudaSuccess) {
    return -1;
  }
  return device;
}

}  // namespace

Result<std::shared_ptr<const DeviceContexts>> DeviceContexts::open(
    std::shared_ptr<const DriverApi> api, const std::vector<int>& ordinals) {
  std::shared_ptr<DeviceContexts> contexts(new DeviceContexts(api));
  auto& entries = contexts->entries_;
  int visible = 0;
  if (const CUresult result = api->call.cuDeviceGetCount(&visible); result != kCudaSuccess) {
    return api->error("cuDeviceGetCount", result);
  }
  if (ordinals.empty()) {
    return make_error(
        ErrorCode::invalid_argument,
        "no device was given to load kernels on, expected at least one; {} are visible", visible);
  }
  CUcontext current = nullptr;
  const CUdevice current_is_on = current_device(*api, current);
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= visible) {
      return make_error(ErrorCode::invalid_argument,
                        "there is no device {}; expected an ordinal of the {} visible ones, from 0",
                        ordinal, visible);
    }
    if (std::any_of(entries.begin(), entries.end(),
                    [&](const Entry& entry) { return entry.ordinal == ordinal; })) {
      continue;
    }
    Entry entry{ordinal};
    if (const CUresult result = api->call.cuDeviceGet(&entry.device, ordinal);
        result != kCudaSuccess) {
      return api->error(fmt::format("cuDeviceGet({})", ordinal), result);
    }
    if (entry.device == current_is_on) {
      entry.context = current;
    }
    entries.push_back(entry);
  }
  CUKILN_CHECK(in_parallel(entries.size(), [&](std::size_t index) -> Result<void> {
    Entry& entry = entries[index];
    if (entry.context != nullptr) {
      return {};
    }
    const CUresult result = api->call.cuDevicePrimaryCtxRetain(&entry.context, entry.device);
    if (result != kCudaSuccess) {
      return api->error(fmt::format("cuDevicePrimaryCtxRetain on device {}", entry.ordinal),
                        result);
    }
    entry.retained = true;
    return {};
  }));
  return std::shared_ptr<const DeviceContexts>(std::move(contexts));
}

DeviceContexts::~DeviceContexts() {
  for (const Entry& entry : entries_) {
    if (entry.retained) {
      api_->call.cuDevicePrimaryCtxRelease(entry.device);
    }
  }
}

Result<std::vector<DeviceInfo>> list_devices(const DriverApi& api) {
  int count = 0;
  if (const CUresult result = api.call.cuDeviceGetCount(&count); result != kCudaSuccess) {
    return api.error("cuDeviceGetCount", result);
  }
  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    char name[256] = {};
    int major = 0;
    int minor = 0;
    int num_sms = 0;
    std::size_t memory = 0;
    CUresult result = api.call.cuDeviceGet(&device, ordinal);
    if (result == kCudaSuccess) {
      result = api.call.cuDeviceGetName(name, sizeof name, device);
    }
    if (result == kCudaSuccess) {
      result = api.call.cuDeviceGetAttribute(&major, kDeviceCapabilityMajor, device);
    }
    if (result == kCudaSuccess) {
      result = api.call.cuDeviceGetAttribute(&minor, kDeviceCapabilityMinor, device);
    }
    if (result == kCudaSuccess) {
      result = api.call.cuDeviceGetAttribute(&num_sms, kDeviceMultiprocessors, device);
    }
    if (result == kCudaSuccess) {
      result = api.call.cuDeviceTotalMem(&memory, device);
    }
    if (result != kCudaSuccess) {
      return api.error(fmt::format("reading the properties of device {}", ordinal), result);
    }
    devices.push_back(
        {ordinal, name, major * 10 + minor, memory, static_cast<std::uint32_t>(num_sms)});
  }
  return devices;
}

Target target_of(const DeviceInfo& device) noexcept {
  return {device.capability, device.capability >= 90 ? 'a' : '\0'};
}

}  // namespace cukiln
