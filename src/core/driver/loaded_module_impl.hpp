// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "core/driver/kernel_state.hpp"
#include "core/driver/module.hpp"

namespace cukiln {

/// What a loaded module owns, and the steps of loading it (module.cpp).
struct LoadedModule::Impl {
  std::shared_ptr<const DriverApi> api;
  std::shared_ptr<const DeviceContexts> devices;
  CUlibrary library = nullptr;
  std::atomic<CUlibrary> running{nullptr};  ///< the library whose functions the kernels run now
  std::atomic<bool> gave_address{false};    ///< a host has the address of a variable
  std::deque<detail::KernelState> states;

  ~Impl();
  Result<void> check_captures(Stream capture_guard) const;
  Result<void> open(ByteView image, const std::vector<KernelName>& names);
  Result<void> load_everywhere(ByteView image) const;
};

}  // namespace cukiln
