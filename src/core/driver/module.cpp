// SPDX-License-Identifier: Apache-2.0
#include "core/driver/module.hpp"

#include <algorithm>

#include "core/base/result.hpp"
#include "core/driver/image.hpp"
#include "core/driver/loaded_module_impl.hpp"
#include "core/driver/parallel.hpp"

namespace cukiln {
namespace {

using detail::KernelState;

// The first driver version that can capture a programmatic dependent launch into a graph.
constexpr int kProgrammaticInGraphs = 12030;

// Sets this thread's relaxed capture mode, in which a load neither fails because another thread
// captures, nor invalidates that capture.
class RelaxedCaptureMode {
 public:
  explicit RelaxedCaptureMode(const DriverApi& api) noexcept : api_(api) {
    changed_ = api_.call.cuThreadExchangeStreamCaptureMode(&mode_) == kCudaSuccess;
  }
  ~RelaxedCaptureMode() {
    if (changed_) {
      api_.call.cuThreadExchangeStreamCaptureMode(&mode_);
    }
  }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  const DriverApi& api_;
  int mode_ = kCaptureModeRelaxed;
  bool changed_ = false;
};

std::string describe_device(const DriverApi& api, const DeviceContexts::Entry& entry) {
  char name[256] = {};
  int major = 0;
  int minor = 0;
  api.call.cuDeviceGetName(name, sizeof name, entry.device);
  api.call.cuDeviceGetAttribute(&major, kDeviceCapabilityMajor, entry.device);
  api.call.cuDeviceGetAttribute(&minor, kDeviceCapabilityMinor, entry.device);
  return fmt::format("device {} ({}, sm_{}{})", entry.ordinal, name, major, minor);
}

// Returns the major version of the compiler's release; 0 if the image does not state it.
int compiler_major(ByteView image) {
  int major = 0;
  for (const char digit : image_compiler_release(image)) {
    if (digit == '.') {
      break;
    }
    major = major * 10 + (digit - '0');
  }
  return major;
}

Error too_new(const DriverApi& api, ByteView image, CUresult result) {
  const std::string release = image_compiler_release(image);
  return make_error(ErrorCode::incompatible,
                    "the driver is for CUDA {} and rejects an image of CUDA {}: {}; update the "
                    "driver, or compile with an NVRTC that is no newer than the driver",
                    api.version_text(), release.empty() ? "(unknown version)" : release,
                    api.describe(result));
}

Error load_error(const DriverApi& api, ByteView image, const DeviceContexts::Entry& entry,
                 const std::string& what, CUresult result) {
  switch (result) {
    case kCudaNoBinaryForGpu:
      return make_error(ErrorCode::incompatible,
                        "{}: the image is for sm_{} and cannot run on {}: {}; compile it for that "
                        "device's own target",
                        what, image_capability(image), describe_device(api, entry),
                        api.describe(result));
    case kCudaUnsupportedPtxVersion:
    case kCudaInvalidPtx: return too_new(api, image, result);
    case kCudaInvalidImage:
      // An older driver reports an image of a newer compiler as if it were damaged.
      if (compiler_major(image) > api.version / 1000) {
        return too_new(api, image, result);
      }
      return make_error(ErrorCode::corrupt, "{}: the image of {} bytes is damaged: {}", what,
                        image.size(), api.describe(result));
    default: return api.error(what, result);
  }
}

// Reads the sizes of a kernel's parameters. False if the driver has no function for it
// (before 12.4).
Result<bool> read_parameters(const DriverApi& api, KernelState& state) {
  if (api.call.cuKernelGetParamInfo == nullptr) {
    return false;
  }
  for (std::size_t index = 0;; ++index) {
    std::size_t offset = 0;
    std::size_t size = 0;
    const CUresult result = api.call.cuKernelGetParamInfo(state.own, index, &offset, &size);
    if (result == kCudaInvalidValue) {  // one past the last
      return true;
    }
    if (result != kCudaSuccess) {
      return api.error(fmt::format("cuKernelGetParamInfo({}, {})", state.name, index), result);
    }
    state.parameter_bytes.push_back(size);
  }
}

// Loads a kernel's code into the current context. With lazy loading, getting the function does not
// load it; cuFuncLoad does, and before 12.4 reading an attribute was the documented way.
CUresult load_code(const DriverApi& api, CUkernel kernel) {
  CUfunction function = nullptr;
  const CUresult result = api.call.cuKernelGetFunction(&function, kernel);
  if (result != kCudaSuccess) {
    return result;
  }
  if (api.call.cuFuncLoad != nullptr) {
    return api.call.cuFuncLoad(function);
  }
  int registers = 0;
  return api.call.cuFuncGetAttribute(&registers, kKernelNumRegisters, function);
}

Error capturing_error(const char* which) {
  return make_error(
      ErrorCode::invalid_argument,
      "{} is being captured, and loading kernels now would invalidate the capture: preload "
      "before the capture begins, or end it first",
      which);
}

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

LoadedModule::Impl::~Impl() {
  if (library != nullptr) {
    const RelaxedCaptureMode relaxed(*api);
    api->call.cuLibraryUnload(library);
  }
}

Result<void> LoadedModule::Impl::check_captures(Stream capture_guard) const {
  CUKILN_CHECK(check_not_capturing(*api, capture_guard));
  for (const DeviceContexts::Entry& entry : devices->entries()) {
    const CurrentContext current(*api, entry.context);
    if (current.result() != kCudaSuccess) {
      return api->error(fmt::format("using the context of device {}", entry.ordinal),
                        current.result());
    }
    CUKILN_CHECK(check_not_capturing(*api, nullptr));
  }
  return {};
}

Result<void> LoadedModule::Impl::open(ByteView image, const std::vector<KernelName>& names) {
  const DeviceContexts::Entry& first = devices->entries().front();
  const CurrentContext current(*api, first.context);
  if (const CUresult result = api->call.cuLibraryLoadData(&library, image.data(), nullptr, nullptr,
                                                          0, nullptr, nullptr, 0);
      result != kCudaSuccess) {
    library = nullptr;
    return load_error(*api, image, first, "cuLibraryLoadData", result);
  }
  running = library;
  for (const KernelName& name : names) {
    KernelState& state = states.emplace_back();
    const CUresult result = api->call.cuLibraryGetKernel(&state.own, library, name.symbol.c_str());
    if (result == kCudaNotFound) {
      return make_error(ErrorCode::not_found, "the image has no kernel {} (symbol {})", name.name,
                        name.symbol);
    }
    if (result != kCudaSuccess) {
      return load_error(*api, image, first, "looking up kernel " + name.name, result);
    }
    state.kernel.store(state.own, std::memory_order_relaxed);
    state.launch = api->call.cuLaunchKernel;
    state.launch_ex = api->call.cuLaunchKernelEx;
    state.starts_early = api->version >= kProgrammaticInGraphs;
    state.api = api.get();
    state.devices = devices.get();
    state.name = name.name;
    CUKILN_TRY(state.parameters_known, read_parameters(*api, state));
  }
  return {};
}

Result<void> LoadedModule::Impl::load_everywhere(ByteView image) const {
  const auto& entries = devices->entries();
  return in_parallel(entries.size(), [&](std::size_t index) -> Result<void> {
    const DeviceContexts::Entry& entry = entries[index];
    const RelaxedCaptureMode relaxed(*api);
    const CurrentContext current(*api, entry.context);
    if (current.result() != kCudaSuccess) {
      return api->error(fmt::format("using the context of device {}", entry.ordinal),
                        current.result());
    }
    for (const KernelState& state : states) {
      if (const CUresult result = load_code(*api, state.own); result != kCudaSuccess) {
        return load_error(*api, image, entry,
                          fmt::format("loading {} on device {}", state.name, entry.ordinal),
                          result);
      }
    }
    return {};
  });
}
LoadedModule::LoadedModule() : impl_(std::make_unique<Impl>()) {}
LoadedModule::~LoadedModule() = default;

Result<std::shared_ptr<LoadedModule>> LoadedModule::load(
    std::shared_ptr<const DriverApi> api, ByteView image, const std::vector<KernelName>& kernels,
    std::shared_ptr<const DeviceContexts> devices, Stream capture_guard) {
  CUKILN_CHECK(check_bounds(image));
  std::shared_ptr<LoadedModule> module(new LoadedModule());
  Impl& impl = *module->impl_;
  impl.api = std::move(api);
  impl.devices = std::move(devices);
  CUKILN_CHECK(impl.check_captures(capture_guard));
  {
    const RelaxedCaptureMode relaxed(*impl.api);
    CUKILN_CHECK(impl.open(image, kernels));
  }
  CUKILN_CHECK(impl.load_everywhere(image));
  module->kernels_.reserve(impl.states.size());
  for (const KernelState& state : impl.states) {
    module->kernels_.emplace_back(&state);
  }
  return module;
}

Result<std::shared_ptr<LoadedModule>> LoadedModule::load(std::shared_ptr<const DriverApi> api,
                                                         ByteView image,
                                                         const std::vector<KernelName>& kernels,
                                                         const std::vector<int>& devices,
                                                         Stream capture_guard) {
  CUKILN_TRY(auto contexts, DeviceContexts::open(api, devices));
  return load(std::move(api), image, kernels, std::move(contexts), capture_guard);
}

const std::shared_ptr<const DeviceContexts>& LoadedModule::devices() const noexcept {
  return impl_->devices;
}

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
      api.call.cuLibraryGetGlobal(&address, &bytes, impl_->running, symbol.c_str());
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
  impl_->gave_address = true;
  return Global{address, bytes};
}

Result<void> check_not_capturing(const DriverApi& api, Stream capture_guard) {
  int status = kCaptureNone;
  if (capture_guard != nullptr) {
    const CUresult result = api.call.cuStreamIsCapturing(capture_guard, &status);
    if (result == kCudaStreamCaptureImplicit ||
        (result == kCudaSuccess && status != kCaptureNone)) {
      return capturing_error("the capture_guard stream");
    }
    if (result != kCudaSuccess) {
      return api.error("cuStreamIsCapturing(capture_guard)", result);
    }
  }
  const CUresult result = api.call.cuStreamIsCapturing(legacy_stream(), &status);
  if (result == kCudaStreamCaptureImplicit || (result == kCudaSuccess && status != kCaptureNone)) {
    return capturing_error("a stream that synchronises with the legacy default stream");
  }
  // Without a current context there is no legacy stream to capture.
  if (result != kCudaSuccess && result != kCudaInvalidContext) {
    return api.error("cuStreamIsCapturing(legacy stream)", result);
  }
  return {};
}

}  // namespace cukiln
