// SPDX-License-Identifier: Apache-2.0
#include <cukiln/kernel.hpp>

#include <algorithm>
#include <utility>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/driver/kernel_state.hpp"

namespace cukiln {
namespace {

using detail::KernelState;

constexpr std::uint32_t kMaxBlockThreads = 1024;  // on every architecture

Error empty_handle() {
  return make_error(ErrorCode::invalid_argument,
                    "the kernel handle is empty: the lookup that returned it found no kernel");
}

// Finds the device among those on which a kernel is loaded. Errors: invalid_argument.
Result<const DeviceContexts::Entry*> loaded_on(const KernelState& state, int ordinal) {
  const auto& entries = state.devices->entries();
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const auto& entry) { return entry.ordinal == ordinal; });
  if (at == entries.end()) {
    return make_error(ErrorCode::invalid_argument,
                      "{} is not loaded on device {}: it is loaded on {} other devices", state.name,
                      ordinal, entries.size());
  }
  return &*at;
}

// The limits of a kernel's shared memory on a device, in bytes for each block.
struct SharedLimits {
  int device = 0;         // the device's opt-in limit
  int static_bytes = 0;   // the kernel's static shared memory
  int dynamic_bytes = 0;  // the dynamic shared memory allowed at present
  int max_dynamic() const { return device - static_bytes; }
};

CUresult shared_limits(const KernelState& state, CUdevice device, SharedLimits& limits) {
  const DriverFunctions& call = state.api->call;
  CUresult result =
      call.cuDeviceGetAttribute(&limits.device, kDeviceMaxSharedPerBlockOptin, device);
  if (result == kCudaSuccess) {
    result = call.cuKernelGetAttribute(&limits.static_bytes, kKernelStaticShared, state.current(),
                                       device);
  }
  if (result == kCudaSuccess) {
    result = call.cuKernelGetAttribute(&limits.dynamic_bytes, kKernelMaxDynamicShared,
                                       state.current(), device);
  }
  return result;
}

// Names the limits of the kernel on the current device that a configuration exceeds; empty if it
// exceeds none.
std::string limits_exceeded(const KernelState& state, const LaunchConfig& config) {
  const DriverFunctions& call = state.api->call;
  std::string text;
  CUdevice device = 0;
  int threads = 0;
  SharedLimits shared;
  if (call.cuCtxGetDevice(&device) != kCudaSuccess) {
    return text;
  }
  const std::uint64_t given =
      std::uint64_t{config.block.x} * config.block.y * std::uint64_t{config.block.z};
  if (call.cuKernelGetAttribute(&threads, kKernelMaxThreadsPerBlock, state.current(), device) ==
          kCudaSuccess &&
      given > static_cast<std::uint64_t>(threads)) {
    text +=
        fmt::format("; the block has {} threads, this kernel allows at most {}", given, threads);
  }
  if (shared_limits(state, device, shared) == kCudaSuccess &&
      config.shared_bytes > static_cast<std::uint32_t>(std::max(shared.dynamic_bytes, 0))) {
    text += fmt::format(
        "; {} bytes of dynamic shared memory are allowed now, reserve_shared() allows up to {}",
        shared.dynamic_bytes, shared.max_dynamic());
  }
  return text;
}

Error launch_error(const KernelState& state, const LaunchConfig& config, CUresult result) {
  Error error = state.api->error(
      fmt::format("launching {} (grid {}x{}x{}, block {}x{}x{}, {} bytes of dynamic shared memory)",
                  state.name, config.grid.x, config.grid.y, config.grid.z, config.block.x,
                  config.block.y, config.block.z, config.shared_bytes),
      result);
  const std::string exceeded = limits_exceeded(state, config);
  return exceeded.empty() ? error : Error(error.code(), error.message() + exceeded);
}

CUresult launch_with_attributes(const KernelState& state, Stream stream, const LaunchConfig& config,
                                void** arguments) noexcept {
  LaunchAttribute attributes[4] = {};
  unsigned count = 0;
  if ((config.cluster.x | config.cluster.y | config.cluster.z) != 0) {
    attributes[count].id = kLaunchClusterDimension;
    attributes[count++].value.cluster = {config.cluster.x, config.cluster.y, config.cluster.z};
  }
  if (config.balance_clusters) {
    attributes[count].id = kLaunchClusterScheduling;
    attributes[count++].value.cluster_scheduling = kClusterLoadBalancing;
  }
  if (config.programmatic_launch && state.starts_early) {
    attributes[count].id = kLaunchProgrammaticSerialization;
    attributes[count++].value.flag = 1;
  }
  if (config.cooperative) {
    attributes[count].id = kLaunchCooperative;
    attributes[count++].value.flag = 1;
  }
  const LaunchConfiguration configuration{
      config.grid.x,  config.grid.y,       config.grid.z, config.block.x, config.block.y,
      config.block.z, config.shared_bytes, stream,        attributes,     count};
  return state.launch_ex(&configuration, reinterpret_cast<CUfunction>(state.current()), arguments,
                         nullptr);
}

bool needs_attributes(const LaunchConfig& config) noexcept {
  return (config.cluster.x | config.cluster.y | config.cluster.z) != 0 ||
         config.programmatic_launch || config.cooperative || config.balance_clusters;
}

}  // namespace

std::string_view Kernel::name() const noexcept {
  return state_ != nullptr ? std::string_view(state_->name) : std::string_view();
}

CUkern_st* Kernel::native() const noexcept {
  return state_ != nullptr ? state_->current() : nullptr;
}

std::size_t Kernel::parameter_count() const noexcept {
  return state_ != nullptr ? state_->parameter_bytes.size() : 0;
}

std::size_t Kernel::parameter_bytes(std::size_t index) const noexcept {
  return index < parameter_count() ? state_->parameter_bytes[index] : 0;
}

Result<void> Kernel::reserve_shared(std::uint32_t shared_bytes) const {
  return guarded([&]() -> Result<void> {
    if (state_ == nullptr) {
      return empty_handle();
    }
    const ForkSafeLock lock(state_->reserve_mutex);
    for (const DeviceContexts::Entry& entry : state_->devices->entries()) {
      SharedLimits limits;
      CUresult result = shared_limits(*state_, entry.device, limits);
      if (result == kCudaSuccess &&
          shared_bytes > static_cast<std::uint32_t>(std::max(limits.max_dynamic(), 0))) {
        return make_error(
            ErrorCode::driver,
            "cannot reserve {} bytes of dynamic shared memory for {}: device {} has {} for a "
            "block, of which the kernel's static shared memory takes {}; expected at most {}",
            shared_bytes, state_->name, entry.ordinal, limits.device, limits.static_bytes,
            limits.max_dynamic());
      }
      // Never lowered: another caller may have reserved more for the same kernel.
      if (result == kCudaSuccess &&
          shared_bytes > static_cast<std::uint32_t>(limits.dynamic_bytes)) {
        result = state_->api->call.cuKernelSetAttribute(kKernelMaxDynamicShared,
                                                        static_cast<int>(shared_bytes),
                                                        state_->current(), entry.device);
      }
      if (result != kCudaSuccess) {
        return state_->api->error(
            fmt::format("reserving {} bytes of shared memory for {} on device {}", shared_bytes,
                        state_->name, entry.ordinal),
            result);
      }
    }
    return {};
  });
}

Result<KernelAttributes> Kernel::attributes(int ordinal) const {
  return guarded([&]() -> Result<KernelAttributes> {
    if (state_ == nullptr) {
      return empty_handle();
    }
    CUKILN_TRY(const DeviceContexts::Entry* const on, loaded_on(*state_, ordinal));
    KernelAttributes out;
    const std::pair<int, std::uint32_t*> wanted[] = {
        {kKernelNumRegisters, &out.registers},
        {kKernelMaxThreadsPerBlock, &out.max_block_threads},
        {kKernelStaticShared, &out.static_shared_bytes},
        {kKernelMaxDynamicShared, &out.dynamic_shared_bytes},
        {kKernelConstantBytes, &out.constant_bytes},
        {kKernelLocalBytes, &out.local_bytes}};
    for (const auto& [attribute, to] : wanted) {
      int value = 0;
      const CUresult result =
          state_->api->call.cuKernelGetAttribute(&value, attribute, state_->current(), on->device);
      if (result != kCudaSuccess) {
        return state_->api->error(fmt::format("reading attribute {} of {} on device {}", attribute,
                                              state_->name, ordinal),
                                  result);
      }
      *to = static_cast<std::uint32_t>(std::max(value, 0));
    }
    return out;
  });
}

Result<std::uint32_t> Kernel::max_blocks_per_sm(int ordinal, std::uint32_t block_threads,
                                                std::uint32_t shared_bytes) const {
  return guarded([&]() -> Result<std::uint32_t> {
    if (state_ == nullptr) {
      return empty_handle();
    }
    if (block_threads == 0 || block_threads > kMaxBlockThreads) {
      return make_error(ErrorCode::invalid_argument,
                        "a block of {} threads was given for {}, expected 1 to {}", block_threads,
                        state_->name, kMaxBlockThreads);
    }
    CUKILN_TRY(const DeviceContexts::Entry* const on, loaded_on(*state_, ordinal));
    const CurrentContext current(*state_->api, on->context);
    int blocks = 0;
    CUresult result = current.result();
    if (result == kCudaSuccess) {
      result = state_->api->call.cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &blocks, reinterpret_cast<CUfunction>(state_->current()), static_cast<int>(block_threads),
          shared_bytes);
    }
    if (result != kCudaSuccess) {
      return state_->api->error(
          fmt::format("computing the occupancy of {} on device {} with blocks of {} threads and {} "
                      "bytes of shared memory",
                      state_->name, ordinal, block_threads, shared_bytes),
          result);
    }
    return static_cast<std::uint32_t>(std::max(blocks, 0));
  });
}

Result<void> Kernel::check_parameters(const std::size_t* sizes, std::size_t count) const {
  return guarded([&]() -> Result<void> {
    if (state_ == nullptr) {
      return empty_handle();
    }
    if (!state_->parameters_known) {
      return {};
    }
    const auto& expected = state_->parameter_bytes;
    for (std::size_t i = 0; i < std::min(count, expected.size()); ++i) {
      if (sizes[i] != expected[i]) {
        return make_error(ErrorCode::invalid_argument,
                          "argument {} (from 0) of {}: {} bytes were given, the kernel's parameter "
                          "has {}",
                          i, state_->name, sizes[i], expected[i]);
      }
    }
    if (count != expected.size()) {
      return make_error(ErrorCode::invalid_argument,
                        "{} arguments were given for {}, the kernel has {} parameters", count,
                        state_->name, expected.size());
    }
    return {};
  });
}

Result<void> Kernel::launch(Stream stream, const LaunchConfig& config,
                            void* const* arguments) const noexcept {
  if (state_ == nullptr) [[unlikely]] {
    return guarded([]() -> Result<void> { return empty_handle(); });
  }
  auto** const values = const_cast<void**>(arguments);  // the driver does not write them
  const CUresult result =
      needs_attributes(config)
          ? launch_with_attributes(*state_, stream, config, values)
          : state_->launch(reinterpret_cast<CUfunction>(state_->current()), config.grid.x,
                           config.grid.y, config.grid.z, config.block.x, config.block.y,
                           config.block.z, config.shared_bytes, stream, values, nullptr);
  if (result != kCudaSuccess) [[unlikely]] {
    return guarded([&]() -> Result<void> { return launch_error(*state_, config, result); });
  }
  return {};
}

}  // namespace cukiln
