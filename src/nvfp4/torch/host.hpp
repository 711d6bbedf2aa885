// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "nvfp4/torch/cuda.hpp"
#include "nvfp4/torch/registry.hpp"
#include "nvfp4/torch/shim.hpp"

namespace cukiln::torch {

/// What the ops share. PyTorch calls them as plain functions with nothing but their arguments, so
/// there is one of these a process: made by cukiln_torch_register, and never before.
struct Host {
  Shim shim;
  Registry registry;
  std::atomic<const Cuda*> cuda{nullptr};  ///< set once, by cukiln_torch_set_loader

  /// What CUDA tensors need. Throws where no loader was set.
  const Cuda& require_cuda() const;
};

/// Null before cukiln_torch_register.
Host* find_host() noexcept;

/// For ops, which exist only after registration.
inline Host& host() noexcept { return *find_host(); }

}  // namespace cukiln::torch
