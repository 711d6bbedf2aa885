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

/// The loaded kernels, by id and by name.
///
/// Threads: every member may be called concurrently. Lookups are lock-free, also while another
/// thread adds kernels, and allocate nothing, unless a name is not in the canonical spelling.
/// Lifetime: a kernel that a lookup returned stays valid as long as the table, or until its module
/// is unloaded.
class CUKILN_API KernelTable {
 public:
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;

  /// Looks up by id, the kernel's index in the preloaded manifests in the order of preloading.
  /// Returns an empty handle if there is none.
  Kernel at(std::size_t id) const noexcept {
    Array* const array = array_.load(std::memory_order_acquire);
    return id < array->capacity ? array->kernels()[id].load(std::memory_order_acquire) : Kernel();
  }

  /// Looks up by name: `kernel` (of the first module that has it) or `module/kernel`. Of several
  /// targets, `@sm_90a` at the end of either chooses one. A name expression may be spelt in any
  /// way; the canonical spelling (`k<float, 4>`, as `Kernel::name` has it) is found fastest.
  /// Returns an empty handle if there is none.
  Kernel find(std::string_view name) const noexcept;

  std::size_t size() const noexcept;

 protected:  // the loader's
  KernelTable();
  ~KernelTable();
  /// Adds a kernel under the next id, which it returns.
  std::size_t add(Kernel kernel);
  /// Gives a kernel a name, which another kernel may have had before.
  void set_name(std::string_view name, Kernel kernel);
  /// Empties the ids and names of kernels that are about to be unloaded.
  void remove(const std::vector<Kernel>& kernels);

 private:
  // The count, directly followed by the kernels in memory, so that a lookup follows one pointer.
  // Defined here so that `at` is inlined: a call would cost more than the lookup.
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
