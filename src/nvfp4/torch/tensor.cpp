// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/tensor.hpp"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/base/portable.hpp"

namespace cukiln::torch {

namespace {

std::string text_of(const std::int64_t* sizes, std::size_t count) {
  return fmt::format("[{}]", fmt::join(sizes, sizes + count, ", "));
}

}  // namespace

void raise(const Error& error) {
  const std::string message =
      error.log().empty() ? error.message() : error.message() + "\n" + error.log();
  throw std::runtime_error(message);
}

Tensor::Tensor(const Shim& shim, TensorHandle handle) noexcept : shim_(&shim), handle_(handle) {}

Tensor::~Tensor() {
  if (handle_ != nullptr) {
    shim_->aoti_torch_delete_tensor_object(handle_);
  }
}

std::int64_t Tensor::dim() const noexcept {
  std::int64_t out = 0;
  shim_->aoti_torch_get_dim(handle_, &out);
  return out;
}

std::int64_t Tensor::size(std::int64_t dimension) const noexcept {
  std::int64_t* sizes = nullptr;
  shim_->aoti_torch_get_sizes(handle_, &sizes);
  return sizes[dimension];
}

std::int64_t Tensor::stride(std::int64_t dimension) const noexcept {
  std::int64_t* strides = nullptr;
  shim_->aoti_torch_get_strides(handle_, &strides);
  return strides[dimension];
}

std::int32_t Tensor::dtype() const noexcept {
  std::int32_t out = 0;
  shim_->aoti_torch_get_dtype(handle_, &out);
  return out;
}

bool Tensor::is_cuda() const noexcept {
  std::int32_t type = 0;
  shim_->aoti_torch_get_device_type(handle_, &type);
  return type == shim_->cuda;
}

int Tensor::device() const noexcept {
  std::int32_t index = -1;
  if (is_cuda()) {
    shim_->aoti_torch_get_device_index(handle_, &index);
  }
  return index;
}

Tensor Tensor::view(std::initializer_list<std::int64_t> sizes,
                    std::initializer_list<std::int64_t> strides) const {
  TensorHandle out = nullptr;
  if (shim_->aoti_torch__reinterpret_tensor(handle_, static_cast<std::int64_t>(sizes.size()),
                                            sizes.begin(), strides.begin(), 0, &out) != 0) {
    throw std::runtime_error(fmt::format("PyTorch gave no view of {}", describe()));
  }
  return {*shim_, out};
}

void Tensor::copy_from(const Tensor& other) const {
  if (shim_->aoti_torch_copy_(handle_, other.handle_, 1) != 0) {
    throw std::runtime_error(
        fmt::format("PyTorch could not copy {} to {}", other.describe(), describe()));
  }
}

void Tensor::zero() const {
  if (shim_->aoti_torch_zero_(handle_) != 0) {
    throw std::runtime_error(fmt::format("PyTorch could not zero {}", describe()));
  }
}

std::string Tensor::shape() const {
  std::int64_t* sizes = nullptr;
  shim_->aoti_torch_get_sizes(handle_, &sizes);
  return text_of(sizes, static_cast<std::size_t>(dim()));
}

std::string Tensor::describe() const {
  const std::pair<std::int32_t, const char*> names[] = {
      {shim_->bfloat16, "bfloat16"}, {shim_->float16, "float16"},
      {shim_->float32, "float32"},   {shim_->float64, "float64"},
      {shim_->uint8, "uint8"},       {shim_->int8, "int8"},
      {shim_->int16, "int16"},       {shim_->int32, "int32"},
      {shim_->int64, "int64"},       {shim_->float8_e4m3fn, "float8_e4m3fn"},
      {shim_->boolean, "bool"}};
  const char* type = "of another dtype";
  for (const auto& [number, name] : names) {
    type = number == dtype() ? name : type;
  }
  return fmt::format("{} {} on {}", shape(), type,
                     is_cuda() ? fmt::format("cuda:{}", device()) : "cpu");
}

namespace {

/// `device` as Tensor::device.
Tensor new_tensor(const Shim& shim, int device, std::int32_t dtype,
                  std::initializer_list<std::int64_t> sizes) {
  constexpr std::size_t kMaxDimensions = 4;
  std::int64_t strides[kMaxDimensions];
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(sizes.begin()[i], 1);
  }
  const bool cuda = device >= 0;
  TensorHandle out = nullptr;
  if (shim.aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.begin(), strides,
                                    dtype, cuda ? shim.cuda : shim.cpu, cuda ? device : 0,
                                    &out) != 0) {
    throw std::runtime_error(fmt::format("PyTorch could not allocate a tensor {} on {}",
                                         text_of(sizes.begin(), sizes.size()),
                                         cuda ? "CUDA" : "the CPU"));
  }
  return {shim, out};
}

}  // namespace

Tensor empty_like(const Tensor& device_of, std::int32_t dtype,
                  std::initializer_list<std::int64_t> sizes) {
  return new_tensor(device_of.shim(), device_of.device(), dtype, sizes);
}

Tensor scratch(const Shim& shim, int device, std::size_t bytes) {
  return new_tensor(shim, device, shim.uint8, {static_cast<std::int64_t>(bytes)});
}

std::optional<Tensor> Arguments::optional_tensor() noexcept {
  auto* const value = reinterpret_cast<StableValue*>(*next_++);
  if (value == nullptr) {
    return std::nullopt;
  }
  Tensor tensor(shim_, reinterpret_cast<TensorHandle>(*value));
  delete value;  // libtorch's new; ours to free
  return tensor;
}

double Arguments::number() noexcept { return bit_cast<double>(*next_++); }

void require_dtype(const Tensor& tensor, const char* name, std::int32_t dtype,
                   const char* dtype_name) {
  if (tensor.dtype() != dtype) {
    refuse("{} is {}; expected {}: convert it with .to(torch.{})", name, tensor.describe(),
           dtype_name, dtype_name);
  }
}

void require_device(const Tensor& tensor, const char* name, const Tensor& other) {
  if (tensor.device() != other.device()) {
    refuse("{} is {}, and the first argument {}: all arguments must be on one device", name,
           tensor.describe(), other.describe());
  }
}

void require_dense(const Tensor& tensor, const char* name,
                   std::initializer_list<std::int64_t> sizes) {
  const auto count = static_cast<std::int64_t>(sizes.size());
  bool equal = tensor.dim() == count;
  bool dense = true;
  std::int64_t stride = 1;
  for (std::int64_t i = count; equal && i-- > 0;) {
    const std::int64_t size = sizes.begin()[i];
    equal = tensor.size(i) == size;
    dense = dense && (size <= 1 || tensor.stride(i) == stride);
    stride *= size;
  }
  if (!equal) {
    refuse("{} is {}; expected the shape {}", name, tensor.describe(),
           text_of(sizes.begin(), sizes.size()));
  }
  if (!dense && stride != 0) {
    refuse("{}, {}, is not contiguous; pass {}.contiguous()", name, tensor.describe(), name);
  }
}

MatrixView require_bf16_matrix(const Tensor& tensor, const char* name) {
  require_dtype(tensor, name, tensor.shim().bfloat16, "bfloat16");
  if (tensor.dim() != 2) {
    refuse("{} is {}; expected a matrix [rows, columns]: flatten it with .flatten(0, -2)", name,
           tensor.describe());
  }
  const MatrixView matrix(DataType::bf16, tensor.data<const void>(), tensor.size(0), tensor.size(1),
                          tensor.size(0) <= 1 ? tensor.size(1) : tensor.stride(0));
  if (matrix.columns > 1 && matrix.rows != 0 && tensor.stride(1) != 1) {
    refuse("{}, {} with strides ({}, {}), has no contiguous rows; pass {}.contiguous()", name,
           tensor.describe(), tensor.stride(0), tensor.stride(1), name);
  }
  return matrix;
}

void require_aligned_rows(const MatrixView& matrix, const Tensor& tensor, const char* name) {
  const bool aligned =
      matrix.row_stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0;
  if (matrix.rows * matrix.columns != 0 && !aligned) {
    refuse("{}, {}, has rows that do not lie on 16 bytes; pass {}.clone()", name, tensor.describe(),
           name);
  }
}

}  // namespace cukiln::torch
