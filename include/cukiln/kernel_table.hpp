// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>

namespace cukiln {
inline namespace v0 {

/// Every kernel that is ready.
///
/// Threads: look-ups are lock-free and allocate nothing, from any number of threads, while others
/// add. What a look-up returned stays valid as long as the table, or until its module is unloaded.
class CUKILN_API KernelTable {
 public:
  KernelTable();
  ~KernelTable();
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;

  /// By id (its index in the preloaded manifests, in the order of preloading). Empty handle: none.
  Kernel at(std::size_t id) const noexcept {
    Array* const array = array_.load(std::memory_order_acquire);
    return id < array->capacity ? array->kernels()[id].load(std::memory_order_acquire) : Kernel();
  }

  /// By name: `kernel`, when one module has it; `module/kernel`; each also with `@sm_90a` appended
  /// for one target among several. Empty handle: none.
  Kernel find(std::string_view name) const noexcept;

  std::size_t size() const noexcept;

  /// For the loader: adds a kernel under its next id; gives a name to a kernel, a new one or one
  /// that another kernel had.
  std::size_t add(Kernel kernel);
  void set_name(std::string_view name, Kernel kernel);
  /// For the loader, before an unload: look-ups that gave one of these kernels give none.
  void remove(const std::vector<Kernel>& kernels);

 private:
  // Kernels by id, right behind their count: a look-up follows no pointer more than it must. It is
  // here because it takes less time than a call of it would.
  struct Array {
    std::size_t capacity;
    std::atomic<Kernel>* kernels() noexcept {
      return reinterpret_cast<std::atomic<Kernel>*>(this + 1);
    }
  };
  struct Impl;

  std::atomic<Array*> array_{nullptr};
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace cukiln
