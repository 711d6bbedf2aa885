// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/device_kernels.hpp"

#include <algorithm>
#include <utility>

#include "core/base/target_families.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::kernels {
namespace {

constexpr int kFirstSuffixed = 90;  // the first compute capability with targets that end in a
constexpr unsigned kSuccess = 0;    // CUDA_SUCCESS

Result<DeviceInfo> device_info(KernelLoader& loader, int ordinal) {
  CUKILN_TRY(const auto devices, loader.devices());
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](const DeviceInfo& each) { return each.ordinal == ordinal; });
  if (found == devices.end()) {
    return make_error(ErrorCode::invalid_argument,
                      "device is {}; {} devices are visible, counted from 0", ordinal,
                      devices.size());
  }
  return *found;
}

template <class Function>
Result<void> find(Function*& function, KernelLoader& loader, const char* name) {
  CUKILN_TRY(void* const found, loader.driver_function(name));
  function = reinterpret_cast<Function*>(found);
  return {};
}

}  // namespace

Result<DeviceKernels> DeviceKernels::open(KernelLoader& loader, int device) {
  DeviceKernels made(loader);
  CUKILN_TRY(made.info_, device_info(loader, device));
  made.device_.ordinal = device;
  made.device_.num_sms = made.info_.num_sms;
  CUKILN_CHECK(find(made.device_.current_device, loader, "cuCtxGetDevice"));
  unsigned (*device_get)(int* handle, int ordinal) = nullptr;
  CUKILN_CHECK(find(device_get, loader, "cuDeviceGet"));
  if (const unsigned result = device_get(&made.device_.handle, device); result != kSuccess) {
    return loader.driver_error("cuDeviceGet", static_cast<int>(result));
  }
  return made;
}

Kernel DeviceKernels::find_loaded(const std::string& module, const std::string& kernel) const {
  const std::string name = module + "/" + kernel;
  const auto loaded = [&](const std::string& suffix) {
    const Kernel found = loader_->kernels().find(name + suffix);
    return found && found.attributes(info_.ordinal) ? found : Kernel();
  };
  // Where devices differ, the bare name is that of any of their targets: it comes last.
  std::vector<Target> targets = target_and_families({info_.capability, 'a'});
  targets.push_back({info_.capability, '\0'});
  for (const Target target : targets) {
    if (const Kernel found = loaded("@" + target.name())) {
      return found;
    }
  }
  return loaded({});
}

Result<Kernel> DeviceKernels::get(const std::string& module, const std::string& kernel) const {
  if (const Kernel found = find_loaded(module, kernel)) {
    return found;
  }
  const Manifest shipped = nvfp4::manifest();
  const auto spec = std::find_if(shipped.modules().begin(), shipped.modules().end(),
                                 [&](const ModuleSpec& each) { return each.name == module; });
  if (spec == shipped.modules().end()) {
    return make_error(ErrorCode::not_found, "this build of cukiln ships no module {}", module);
  }
  ModuleSpec for_device = *spec;
  for_device.targets = {{info_.capability, info_.capability >= kFirstSuffixed ? 'a' : '\0'}};
  CUKILN_TRY(const Kernel found, loader_->get(for_device, kernel));
  CUKILN_TRY([[maybe_unused]] const auto attributes, found.attributes(info_.ordinal));
  return found;
}

Result<Kernel> DeviceKernels::get_unless_sealed(const char* module, const char* kernel) const {
  if (refuses_) {
    return find_loaded(module, kernel);
  }
  auto found = get(module, kernel);
  refuses_ = !found && found.error().code() == ErrorCode::sealed;
  return refuses_ ? Kernel() : std::move(found);
}

Result<std::uint32_t> DeviceKernels::wave_blocks(const Kernel& kernel,
                                                 std::uint32_t block_threads) const {
  CUKILN_TRY(const std::uint32_t per_sm, kernel.max_blocks_per_sm(info_.ordinal, block_threads));
  return std::max(per_sm, 1u) * info_.num_sms;
}

Result<void> check_current_device(const char* name, const LaunchDevice& device) noexcept {
  int current = -1;
  const unsigned result = device.current_device(&current);
  if (result != kSuccess) {
    return refuse(
        "the calling thread has no current CUDA context (cuCtxGetDevice returned {}); expected one "
        "of device {}, which this {} was created for",
        result, device.ordinal, name);
  }
  if (current != device.handle) {
    return refuse(
        "the calling thread's current CUDA context is one of device {}; expected one of device {}, "
        "which this {} was created for",
        current, device.ordinal, name);
  }
  return {};
}

}  // namespace cukiln::kernels
