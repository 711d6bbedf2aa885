// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nvfp4/torch/cuda.hpp"
#include "nvfp4/torch/registry.hpp"
#include "nvfp4/torch/scratch_layout.hpp"
#include "nvfp4/torch/tensor.hpp"

#include <cukiln/nvfp4/torch.h>

namespace cukiln::torch {

/// A runner of one device. Nothing of it is written by a call, so that it may be called on any
/// streams and captured in any graphs: scratch is of the call.
class DeviceRunner : public Runner {
 public:
  /// `cuda` is null for the CPU.
  DeviceRunner(const Cuda* cuda, int device);

  /// Refuses tensors of another device.
  void check_device(const Tensor& tensor, const char* name) const;

  /// Has PyTorch's allocator get and keep the scratch of so many tokens or fewer, for the current
  /// stream.
  Result<void> reserve(std::int64_t tokens) final;

 protected:
  /// That a call of so many tokens, or of fewer, takes.
  virtual std::size_t most_scratch(const DeviceLaunchers& launchers,
                                   std::int64_t tokens) const noexcept = 0;

  const Cuda* cuda_;
  int device_;
};

class LinearRunner final : public DeviceRunner {
 public:
  LinearRunner(const Cuda* cuda, const cukiln_torch_linear& weights);
  LinearRunner* as_linear() noexcept override { return this; }

  std::int64_t in_features() const noexcept { return weights_.in_features; }
  std::int64_t out_features() const noexcept { return weights_.out_features; }

  /// `output`: bf16 [x.rows, out_features], dense.
  void run(const MatrixView& x, const MutableMatrixView& output) const;

 private:
  LinearScratch lay_out(const DeviceLaunchers& launchers, std::int64_t tokens) const noexcept;
  std::size_t most_scratch(const DeviceLaunchers& launchers,
                           std::int64_t tokens) const noexcept override;
  void run_on_cpu(const MatrixView& x, const MutableMatrixView& output) const;
  nvfp4::QuantizedMatrix weight() const noexcept;
  VectorView bias() const noexcept;

  cukiln_torch_linear weights_;
};

class MoeRunner final : public DeviceRunner {
 public:
  MoeRunner(const Cuda* cuda, const cukiln_torch_moe& weights);
  MoeRunner* as_moe() noexcept override { return this; }

  std::int64_t hidden() const noexcept { return weights_.hidden; }

  /// `input` without its scale. All dense.
  void run(nvfp4::MoeInput input, const MutableMatrixView& output) const;

 private:
  std::size_t most_scratch(const DeviceLaunchers& launchers,
                           std::int64_t tokens) const noexcept override;

  cukiln_torch_moe weights_;
  nvfp4::MoeLayer layer_;
};

/// The shipped modules that a runner of such weights needs for 1 to `max_tokens` tokens.
nvfp4::ModuleNames modules_of(const cukiln_torch_linear& weights, int capability);
nvfp4::ModuleNames modules_of(const cukiln_torch_moe& weights, int capability);

/// Throws std::out_of_range if no runner has this id, or it has not this fingerprint (0: any), and
/// std::runtime_error if it is of the other kind.
LinearRunner& linear_runner(std::int64_t id, std::int64_t fingerprint);
MoeRunner& moe_runner(std::int64_t id, std::int64_t fingerprint);

}  // namespace cukiln::torch
