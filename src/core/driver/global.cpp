// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/base/result.hpp"
#include "core/driver/loaded_module_impl.hpp"

namespace cukiln {

namespace {

/// The context in which a variable is looked up: that of a device, or of the current context's.
Result<const DeviceContexts::Entry*> context_of(const DriverApi& api, const DeviceContexts& devices,
                                                std::optional<int> ordinal) {
  CUdevice current = 0;
  if (!ordinal) {
    if (const CUresult result = api.call.cuCtxGetDevice(&current); result != kCudaSuccess) {
      return make_error(ErrorCode::invalid_argument,
                        "this thread has no current context to look up a variable in ({}); name a "
                        "device",
                        api.describe(result));
    }
  }
  const auto& entries = devices.entries();
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return ordinal ? entry.ordinal == *ordinal : entry.device == current;
  });
  if (found == entries.end()) {
    return make_error(ErrorCode::invalid_argument, "the module is not loaded on {}",
                      ordinal ? fmt::format("device {}", *ordinal)
                              : "the device of this thread's current context");
  }
  return &*found;
}

}  // namespace

void LoadedModule::set_variables(std::vector<VariableName> variables) {
  variables_ = std::move(variables);
}

Result<Global> LoadedModule::global(std::string_view name, std::optional<int> ordinal) const {
  const auto known =
      std::find_if(variables_.begin(), variables_.end(),
                   [&](const VariableName& variable) { return variable.name == name; });
  const std::string symbol = known != variables_.end() ? known->symbol : std::string(name);
  const DriverApi& api = *impl_->api;
  CUKILN_TRY(const DeviceContexts::Entry* const device, context_of(api, *impl_->devices, ordinal));
  const CurrentContext current(api, device->context);
  if (current.result() != kCudaSuccess) {
    return api.error(fmt::format("using the context of device {}", device->ordinal),
                     current.result());
  }
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  const CUresult result =
      api.call.cuLibraryGetGlobal(&address, &bytes, impl_->library, symbol.c_str());
  if (result == kCudaNotFound) {
    std::string names;
    for (const VariableName& variable : variables_) {
      names += (names.empty() ? "" : ", ") + variable.name;
    }
    return make_error(
        ErrorCode::not_found,
        "the module has no variable \"{}\" (symbol {}); its names have {}. Add it to the "
        "names, as \"&{}\": that keeps it, and finds the symbol of one in a namespace",
        name, symbol, names.empty() ? "no variable" : names, name);
  }
  if (result != kCudaSuccess) {
    return api.error(fmt::format("looking up the variable {} on device {}", name, device->ordinal),
                     result);
  }
  return Global{address, bytes};
}

}  // namespace cukiln
