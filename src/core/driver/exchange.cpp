// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/driver/loaded_module_impl.hpp"

namespace cukiln {
namespace {

using detail::KernelState;

// A block's shared memory, static and dynamic, that a kernel may use before a limit is set.
constexpr int kDefaultShared = 48 << 10;

// What only a host can set on a function: reserve_shared the first, cuKernelSetAttribute all. A
// cluster's size is none of them: a driver does not tell the source's __cluster_dims__ from a
// host's.
constexpr int kSettable[] = {kKernelMaxDynamicShared, kKernelSharedCarveout,
                             kKernelNonPortableCluster, kKernelClusterScheduling};

/// False if the value is the default of a kernel with that much static shared memory.
bool is_set(const DriverApi& api, CUkernel function, CUdevice device, int dynamic_bytes) {
  int static_bytes = 0;
  return api.call.cuKernelGetAttribute(&static_bytes, kKernelStaticShared, function, device) ==
             kCudaSuccess &&
         static_bytes + dynamic_bytes > kDefaultShared;
}

/// Sets on `next` what was set on the function of now.
Result<void> carry_over(const KernelState& state, CUkernel next) {
  const DriverFunctions& call = state.api->call;
  auto* const now = state.current();
  for (const DeviceContexts::Entry& entry : state.devices->entries()) {
    for (const int attribute : kSettable) {
      int was = 0;
      int is = 0;
      if (call.cuKernelGetAttribute(&was, attribute, now, entry.device) != kCudaSuccess ||
          call.cuKernelGetAttribute(&is, attribute, next, entry.device) != kCudaSuccess ||
          was == is) {
        continue;  // an older driver does not know it, or there is nothing to do
      }
      if (attribute == kKernelMaxDynamicShared &&
          !(was > is && is_set(*state.api, now, entry.device, was))) {
        continue;
      }
      if (const CUresult result = call.cuKernelSetAttribute(attribute, was, next, entry.device);
          result != kCudaSuccess) {
        return state.api->error(
            fmt::format("setting attribute {} of the new {} to {} on device {}, as it was set on "
                        "the old one",
                        attribute, state.name, was, entry.ordinal),
            result);
      }
    }
  }
  return {};
}

}  // namespace

Result<void> LoadedModule::exchange(const LoadedModule& next) {
  if (impl_->gave_address) {
    return make_error(ErrorCode::incompatible,
                      "this process has the address of a variable of the module, whose value the "
                      "new module would not have; start it again");
  }
  std::vector<std::pair<KernelState*, CUkernel>> functions;
  for (KernelState& state : impl_->states) {
    const auto& others = next.impl_->states;
    const auto other = std::find_if(others.begin(), others.end(),
                                    [&](const KernelState& one) { return one.name == state.name; });
    if (other == others.end()) {
      return make_error(ErrorCode::incompatible,
                        "the kernel {} is gone, and this process may launch it; expected the "
                        "kernels that there were",
                        state.name);
    }
    if (!state.parameters_known) {
      return make_error(ErrorCode::incompatible,
                        "the driver is for CUDA {} and does not report the parameters of {}; "
                        "expected one for 12.4 or later",
                        state.api->version_text(), state.name);
    }
    if (other->parameter_bytes != state.parameter_bytes) {
      return make_error(ErrorCode::incompatible,
                        "{} has parameters of {} bytes now; expected {} bytes as before, which is "
                        "what this process launches it with",
                        state.name, fmt::join(other->parameter_bytes, ", "),
                        fmt::join(state.parameter_bytes, ", "));
    }
    CUKILN_CHECK(carry_over(state, other->own));
    functions.emplace_back(&state, other->own);
  }
  for (const auto& [state, function] : functions) {
    const ForkSafeLock lock(state->reserve_mutex);
    static_cast<void>(carry_over(*state, function));  // again: reserve_shared may have run since
    state->kernel.store(function, std::memory_order_release);
  }
  impl_->running = next.impl_->library;
  return {};
}

}  // namespace cukiln
