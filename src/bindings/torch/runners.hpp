// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "bindings/torch/cuda.hpp"
#include "bindings/torch/registry.hpp"
#include "bindings/torch/tensor.hpp"

#include <cukiln/torch.h>

namespace cukiln::torch {

/// Where and how a runner works; of one device.
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

  /// output bf16 [x.rows, out_features], dense.
  void run(const Bf16Matrix& x, std::uint16_t* output);

 private:
  struct Parts;
  Parts lay_out(std::int64_t tokens) const noexcept;
  void run_on_cpu(const Bf16Matrix& x, std::uint16_t* output) const;

  cukiln_torch_linear weights_;
};

class MoeRunner final : public DeviceRunner {
 public:
  MoeRunner(const Cuda* cuda, const cukiln_torch_moe& weights);
  MoeRunner* as_moe() noexcept override { return this; }
  Result<void> reserve(std::int64_t tokens) override;

  std::int64_t hidden() const noexcept { return weights_.hidden; }

  /// hidden states dense; ids and weights [tokens, topk], dense.
  void run(const std::uint16_t* hidden_states, std::int64_t tokens, std::int64_t topk,
           const std::int32_t* topk_ids, const float* topk_weights, std::uint16_t* output);

 private:
  nvfp4::MoeShape shape_of(std::int64_t tokens, std::int64_t topk) const noexcept;
  std::size_t scratch_bytes(std::int64_t tokens, std::int64_t topk) const noexcept;

  cukiln_torch_moe weights_;
};

/// Throws std::out_of_range for a number that is no runner's, std::runtime_error for the other
/// kind's.
LinearRunner& linear_runner(std::int64_t id);
MoeRunner& moe_runner(std::int64_t id);

}  // namespace cukiln::torch
