// SPDX-License-Identifier: Apache-2.0
#include "core/base/result.hpp"
#include "core/driver/module.hpp"

namespace cukiln {

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
