// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "nvfp4/torch/shim.hpp"

#include <cukiln/nvfp4/tensor_view.hpp>
#include <cukiln/result.hpp>

namespace cukiln::torch {

/// What an op throws, and every PyTorch turns into the same exceptions of Python:
/// std::runtime_error into RuntimeError, as for its own ops, and std::out_of_range into IndexError.
/// (std::invalid_argument was a ValueError until an eager call stopped going through pybind11.)
[[noreturn]] void raise(const Error& error);

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<const Args&...> format, const Args&... args) {
  throw std::runtime_error(fmt::format(format, args...));
}

inline void require(Result<void>&& result) {
  if (!result) {
    raise(result.error());
  }
}

/// Returns the value; throws the error.
template <class T>
const T& require(const Result<T>& result) {
  if (!result) {
    raise(result.error());
  }
  return *result;
}
template <class T>
T require(Result<T>&& result) {
  if (!result) {
    raise(result.error());
  }
  return *std::move(result);
}

/// A tensor that is owned here.
class Tensor {
 public:
  Tensor(const Shim& shim, TensorHandle handle) noexcept;
  Tensor(Tensor&& other) noexcept
      : shim_(other.shim_), handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  Tensor& operator=(Tensor&&) = delete;
  ~Tensor();

  std::int64_t dim() const noexcept;
  std::int64_t size(std::int64_t dimension) const noexcept;
  std::int64_t stride(std::int64_t dimension) const noexcept;
  std::int32_t dtype() const noexcept;
  bool is_cuda() const noexcept;
  int device() const noexcept;  ///< CUDA ordinal; -1: the CPU

  template <class T>
  T* data() const noexcept {
    void* pointer = nullptr;
    shim_->aoti_torch_get_data_ptr(handle_, &pointer);
    return static_cast<T*>(pointer);
  }

  /// Returns a tensor of the same memory with other sizes and strides.
  Tensor view(std::initializer_list<std::int64_t> sizes,
              std::initializer_list<std::int64_t> strides) const;
  void copy_from(const Tensor& other) const;  ///< in the order of PyTorch's current stream
  void zero() const;                          ///< likewise

  /// Releases the handle to PyTorch, as a result of an op.
  StableValue release() noexcept {
    return reinterpret_cast<StableValue>(std::exchange(handle_, nullptr));
  }

  /// `[3, 64] uint8 on cuda:0`, for messages.
  std::string describe() const;
  std::string shape() const;  ///< `[3, 64]`
  const Shim& shim() const noexcept { return *shim_; }

 private:
  const Shim* shim_;
  TensorHandle handle_;
};

/// A new tensor on the device of another, dense, uninitialised.
Tensor empty_like(const Tensor& device_of, std::int32_t dtype,
                  std::initializer_list<std::int64_t> sizes);

/// Uninitialised bytes on a CUDA device, for kernels on PyTorch's current stream there. PyTorch's
/// allocator lends them next to whatever is allocated on that stream; in a capture, to what is
/// allocated in the same graph.
Tensor scratch(const Shim& shim, int device, std::size_t bytes);

/// The arguments of an op, in the order of its schema. They are taken from the stack one by one;
/// take them all before anything may throw, or they leak.
class Arguments {
 public:
  Arguments(const Shim& shim, const StableValue* stack) noexcept : shim_(shim), next_(stack) {}

  Tensor tensor() noexcept { return {shim_, reinterpret_cast<TensorHandle>(*next_++)}; }
  std::optional<Tensor> optional_tensor() noexcept;
  std::int64_t integer() noexcept { return static_cast<std::int64_t>(*next_++); }
  double number() noexcept;
  bool flag() noexcept { return (*next_++ & 0xFF) != 0; }

 private:
  const Shim& shim_;
  const StableValue* next_;
};

/// Checks of one argument; `name` is the schema's.
void require_dtype(const Tensor& tensor, const char* name, std::int32_t dtype,
                   const char* dtype_name);
/// On the device of `other`.
void require_device(const Tensor& tensor, const char* name, const Tensor& other);
/// Requires this shape, without gaps.
void require_dense(const Tensor& tensor, const char* name,
                   std::initializer_list<std::int64_t> sizes);

/// A bf16 matrix with contiguous rows; there may be gaps between them.
MatrixView require_bf16_matrix(const Tensor& tensor, const char* name);
/// Rows that lie on 16 bytes, because they are read in vectors. Check the number of columns first:
/// where it is wrong, the advice of this error would not help.
void require_aligned_rows(const MatrixView& matrix, const Tensor& tensor, const char* name);

}  // namespace cukiln::torch
