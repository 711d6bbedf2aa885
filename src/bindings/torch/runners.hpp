// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "bindings/torch/cuda.hpp"
#include "bindings/torch/registry.hpp"
#include "bindings/torch/tensor.hpp"

#include <cukiln/torch.h>

namespace cukiln::torch {

/// A runner of one device, with its scratch memory.
class DeviceRunner : public Runner {
 public:
  /// `cuda` is null for the CPU.
  DeviceRunner(const Cuda* cuda, int device);

  /// Refuses tensors of another device.
  void check_device(const Tensor& tensor, const char* name) const;

 protected:
  const Cuda* cuda_;
  int device_;
  std::optional<Scratch> scratch_;  // on CUDA
};

class LinearRunner final : public DeviceRunner {
 public:
  LinearRunner(const Cuda* cuda, const cukiln_torch_linear& weights);
  LinearRunner* as_linear() noexcept override { return this; }
  Result<void> reserve(std::int64_t tokens) override;

  std::int64_t in_features() const noexcept { return weights_.in_features; }
  std::int64_t out_features() const noexcept { return weights_.out_features; }

  /// `output`: bf16 [x.rows, out_features], dense.
  void run(const MatrixView& x, const MutableMatrixView& output);

 private:
  struct ScratchLayout;
  ScratchLayout lay_out(const DeviceLaunchers& launchers, std::int64_t tokens) const noexcept;
  void run_on_cpu(const MatrixView& x, const MutableMatrixView& output) const;
  nvfp4::QuantizedMatrix weight() const noexcept;
  VectorView bias() const noexcept;

  cukiln_torch_linear weights_;
};

class MoeRunner final : public DeviceRunner {
 public:
  MoeRunner(const Cuda* cuda, const cukiln_torch_moe& weights);
  MoeRunner* as_moe() noexcept override { return this; }
  Result<void> reserve(std::int64_t tokens) override;

  std::int64_t hidden() const noexcept { return weights_.hidden; }

  /// `input` without its scale. All dense.
  void run(nvfp4::MoeInput input, const MutableMatrixView& output);

 private:
  std::size_t scratch_bytes(const DeviceLaunchers& launchers, std::int64_t tokens,
                            std::int64_t topk) const noexcept;

  cukiln_torch_moe weights_;
  nvfp4::MoeLayer layer_;
};

/// Throws std::out_of_range if no runner has this id, std::runtime_error if it is of the other
/// kind.
LinearRunner& linear_runner(std::int64_t id);
MoeRunner& moe_runner(std::int64_t id);

}  // namespace cukiln::torch
