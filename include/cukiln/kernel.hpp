// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <cukiln/export.hpp>
#include <cukiln/result.hpp>

struct CUstream_st;  // the driver's and the runtime's stream are this very type
struct CUkern_st;

namespace cukiln {
inline namespace v0 {

using Stream = CUstream_st*;  ///< `CUstream` or `cudaStream_t`; null is the default stream

struct Dim3 {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

/// The configuration of a launch.
struct LaunchConfig {
  // schema: LaunchConfig. Written by src/schema/generate.py
  Dim3 grid;                       ///< in blocks, with clusters too
  Dim3 block;                      ///< in threads
  std::uint32_t shared_bytes = 0;  ///< dynamic shared memory; above 48 KiB see `reserve_shared`
  /// in blocks; all zero: no cluster attribute. More than 8 in a cluster is not portable: set
  /// CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED on `Kernel::native` first
  Dim3 cluster{0, 0, 0};
  /// programmatic dependent launch: may start before its predecessor ends; the kernel must call
  /// griddepcontrol. Drivers before 12.3, which cannot capture that, wait
  bool programmatic_launch = false;
  bool cooperative = false;  ///< all blocks resident together: grid-wide barriers work
  /// several blocks of a cluster may share an SM, so that more clusters are resident; else they are
  /// spread
  bool balance_clusters = false;
  // end of schema
};

/// The resources that a kernel uses, or may use, on one device.
struct KernelAttributes {
  // schema: KernelAttributes. Written by src/schema/generate.py
  std::uint32_t registers = 0;             ///< per thread
  std::uint32_t max_block_threads = 0;     ///< with these registers; a launch above it fails
  std::uint32_t static_shared_bytes = 0;   ///< per block
  std::uint32_t dynamic_shared_bytes = 0;  ///< per block, the present limit: see `reserve_shared`
  std::uint32_t constant_bytes = 0;        ///< of the kernel's own constants
  std::uint32_t local_bytes = 0;           ///< stack frame per thread
  // end of schema
};

namespace detail {
struct KernelState;  // owned by the loader; only a watch changes it, atomically
struct KernelAccess;
}  // namespace detail

/// A handle to a loaded kernel: one pointer, cheap to copy.
///
/// Threads: every member may be called concurrently.
/// Lifetime: valid while the KernelLoader that returned it exists and its module is not unloaded.
/// Hot path: a `launch` that succeeds takes no lock, allocates nothing and makes no system call of
/// its own.
/// Asynchrony: `launch` returns when the launch is queued. It works inside stream capture, and runs
/// in the calling thread's current CUDA context.
class CUKILN_API Kernel {
 public:
  Kernel() noexcept = default;
  explicit Kernel(const detail::KernelState* state) noexcept : state_(state) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }
  std::string_view name() const noexcept;
  /// The driver's handle (a `CUkernel`, which the launch functions also take as a `CUfunction`). A
  /// watch may replace it.
  CUkern_st* native() const noexcept;

  /// The number of parameters, and the size of one in bytes (0 if there is no such parameter).
  /// Drivers before CUDA 12.4 do not report them: then the number is 0 and nothing is checked.
  std::size_t parameter_count() const noexcept;
  std::size_t parameter_bytes(std::size_t index) const noexcept;

  /// Raises the limit of dynamic shared memory to `shared_bytes` per block on every device that
  /// the kernel is loaded on. Not for the hot path. Errors: driver (the device has less).
  Result<void> reserve_shared(std::uint32_t shared_bytes) const;

  /// Returns the resources that the kernel uses on device `ordinal`. Not for the hot path.
  /// Errors: invalid_argument (not loaded on that device), driver.
  Result<KernelAttributes> attributes(int ordinal) const;

  /// Returns how many blocks of `block_threads` threads with `shared_bytes` of dynamic shared
  /// memory fit on one SM of device `ordinal` together; 0: not even one. Not for the hot path.
  /// Errors: invalid_argument (not loaded there; a number of threads that no block has), driver.
  Result<std::uint32_t> max_blocks_per_sm(int ordinal, std::uint32_t block_threads,
                                          std::uint32_t shared_bytes = 0) const;

  /// Compares the number and sizes of arguments with the kernel's parameters. `sizes` are in bytes
  /// and may be null if `count` is 0. Succeeds if the driver does not report parameters.
  /// Errors: invalid_argument, naming the first argument that differs with both sizes.
  Result<void> check_parameters(const std::size_t* sizes, std::size_t count) const;

  /// Queues a launch without checking types: `arguments[i]` points to argument i, for each of the
  /// `parameter_count()` parameters. Errors: invalid_argument (an empty handle), driver.
  Result<void> launch(Stream stream, const LaunchConfig& config,
                      void* const* arguments) const noexcept;

 private:
  friend struct detail::KernelAccess;
  const detail::KernelState* state_ = nullptr;
};

/// A handle to a kernel whose argument types were checked when the handle was created.
///
///     auto scale = TypedKernel<float*, float, int>::create(kernel);   // Result
///     scale->launch(stream, {grid, block}, data, 2.0f, n);
template <class... Args>
class TypedKernel {
  static_assert((std::is_trivially_copyable_v<Args> && ...),
                "kernel arguments are copied as bytes: every one must be trivially copyable");

 public:
  TypedKernel() noexcept = default;

  /// Checks the arguments' number and sizes. Errors: as `Kernel::check_parameters`.
  static Result<TypedKernel> create(Kernel kernel) {
    const std::size_t sizes[sizeof...(Args) + 1] = {
        sizeof(Args)..., 0};  // NOLINT(bugprone-sizeof-expression): a pointer's own size is meant
    if (auto ok = kernel.check_parameters(sizes, sizeof...(Args)); !ok) {
      return std::move(ok).error();
    }
    TypedKernel typed;
    typed.kernel_ = kernel;
    return typed;
  }

  Kernel untyped() const noexcept { return kernel_; }

  Result<void> launch(Stream stream, const LaunchConfig& config, Args... args) const noexcept {
    void* pointers[sizeof...(Args) + 1] = {const_cast<void*>(static_cast<const void*>(&args))...,
                                           nullptr};
    return kernel_.launch(stream, config, pointers);
  }

 private:
  Kernel kernel_;
};

}  // namespace v0
}  // namespace cukiln
