// SPDX-License-Identifier: Apache-2.0
#include <cukiln/kernel_table.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/fork_gate.hpp"
#include "core/base/hasher.hpp"
#include "core/base/mutex.hpp"
#include "core/driver/kernel_state.hpp"
#include "core/key/name_expression.hpp"

namespace cukiln {
namespace {

static_assert(std::atomic<Kernel>::is_always_lock_free, "a lookup would take a lock");

struct Named {
  Named(std::string_view text, Kernel its) : name(text), kernel(its) {}
  const std::string name;
  mutable std::atomic<Kernel> kernel;  // changes while other threads look the name up
};

// The hash is beside the pointer, so that a probe that does not match reads nothing else.
struct Slot {
  std::atomic<const Named*> entry{nullptr};  // set last: its release publishes the hash
  std::atomic<std::uint64_t> hash{0};
};

// A hash table of names with open addressing. At most half full, so that every probe ends.
struct Index {
  explicit Index(std::size_t capacity) : mask(capacity - 1), slots(new Slot[capacity]) {}
  std::size_t capacity() const noexcept { return mask + 1; }

  const Named* find(std::string_view name, std::uint64_t hash) const noexcept {
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Named* entry = slots[i].entry.load(std::memory_order_acquire);
      if (entry == nullptr) {
        return nullptr;
      }
      if (slots[i].hash.load(std::memory_order_relaxed) == hash && entry->name == name) {
        return entry;
      }
    }
  }

  void insert(const Named* entry, std::uint64_t hash) noexcept {
    std::size_t i = hash & mask;
    while (slots[i].entry.load(std::memory_order_relaxed) != nullptr) {
      i = (i + 1) & mask;
    }
    slots[i].hash.store(hash, std::memory_order_relaxed);
    slots[i].entry.store(entry, std::memory_order_release);
  }

  const std::size_t mask;
  const std::unique_ptr<Slot[]> slots;
};

// Characters without which a name has one spelling only.
constexpr std::string_view kOtherSpelling = " ,&<>\t\n";

/// Looks up a name that is not in the canonical spelling: `module/k<float,4>@sm_90a`. Null, too, if
/// there is no memory for that.
const Named* find_other_spelling(const Index& index, std::string_view name) noexcept {
  try {
    const std::size_t target = name.rfind("@sm_");
    const std::string_view suffix =
        target != std::string_view::npos ? name.substr(target) : std::string_view();
    name.remove_suffix(suffix.size());
    // A module's name, and an expression, may have slashes.
    for (std::size_t begin = 0;; ++begin) {
      std::string spelt(name.substr(0, begin));
      spelt += canonical_name(name.substr(begin));
      spelt += suffix;
      if (const Named* const found = index.find(spelt, hash64(spelt))) {
        return found;
      }
      begin = name.find('/', begin);
      if (begin == std::string_view::npos) {
        return nullptr;
      }
    }
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

constexpr std::size_t kFirstArray = 64;
constexpr std::size_t kFirstIndex = 256;  // a power of two

}  // namespace

struct KernelTable::Impl {
  // An array grows by publishing a larger copy. A reader that still has the smaller one sees an
  // earlier state of the table.
  struct Deleter {
    void operator()(Array* array) const noexcept { ::operator delete(array); }
  };
  using ArrayOwner = std::unique_ptr<Array, Deleter>;
  static_assert(std::is_trivially_destructible_v<std::atomic<Kernel>>);
  static_assert(sizeof(Array) % alignof(std::atomic<Kernel>) == 0);

  static ArrayOwner make_array(std::size_t capacity) {
    void* memory = ::operator new(sizeof(Array) + capacity * sizeof(std::atomic<Kernel>));
    ArrayOwner made(new (memory) Array{capacity});
    for (std::size_t i = 0; i < capacity; ++i) {
      new (made->kernels() + i) std::atomic<Kernel>(Kernel());
    }
    return made;
  }

  // Read by lookups.
  std::atomic<const Index*> index{nullptr};
  std::atomic<std::size_t> size{0};

  // Used by writers, in a cache line that lookups do not read. Nothing is freed before the table,
  // because a reader may still use an old copy. All copies take less than twice the newest.
  alignas(64) Mutex mutex;
  std::vector<ArrayOwner> arrays CUKILN_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Index>> indices CUKILN_GUARDED_BY(mutex);
  std::deque<Named> names CUKILN_GUARDED_BY(mutex);

  void grow_array() CUKILN_REQUIRES(mutex) {
    Array* old = arrays.back().get();
    auto larger = make_array(old->capacity * 2);
    for (std::size_t i = 0; i < old->capacity; ++i) {
      larger->kernels()[i].store(old->kernels()[i].load(std::memory_order_relaxed),
                                 std::memory_order_relaxed);
    }
    arrays.push_back(std::move(larger));
  }

  void grow_index() CUKILN_REQUIRES(mutex) {
    const Index* old = indices.back().get();
    auto larger = std::make_unique<Index>(old->capacity() * 2);
    for (std::size_t i = 0; i < old->capacity(); ++i) {
      if (const Named* entry = old->slots[i].entry.load(std::memory_order_relaxed)) {
        larger->insert(entry, old->slots[i].hash.load(std::memory_order_relaxed));
      }
    }
    indices.push_back(std::move(larger));
    index.store(indices.back().get(), std::memory_order_release);
  }
};

KernelTable::KernelTable() : impl_(std::make_unique<Impl>()) {
  impl_->arrays.push_back(Impl::make_array(kFirstArray));
  impl_->indices.push_back(std::make_unique<Index>(kFirstIndex));
  array_.store(impl_->arrays.back().get(), std::memory_order_release);
  impl_->index.store(impl_->indices.back().get(), std::memory_order_release);
}

KernelTable::~KernelTable() = default;

Kernel KernelTable::find(std::string_view name) const noexcept {
  const Index* index = impl_->index.load(std::memory_order_acquire);
  const Named* entry = index->find(name, hash64(name));
  if (entry == nullptr && name.find_first_of(kOtherSpelling) != std::string_view::npos) {
    entry = find_other_spelling(*index, name);
  }
  return entry != nullptr ? entry->kernel.load(std::memory_order_acquire) : Kernel();
}

std::size_t KernelTable::size() const noexcept {
  return impl_->size.load(std::memory_order_acquire);
}

std::size_t KernelTable::add(Kernel kernel) {
  const ForkSafeLock lock(impl_->mutex);
  const std::size_t id = impl_->size.load(std::memory_order_relaxed);
  if (id == impl_->arrays.back()->capacity) {
    impl_->grow_array();
    array_.store(impl_->arrays.back().get(), std::memory_order_release);
  }
  impl_->arrays.back()->kernels()[id].store(kernel, std::memory_order_release);
  impl_->size.store(id + 1, std::memory_order_release);
  return id;
}

void KernelTable::set_name(std::string_view name, Kernel kernel) {
  const std::uint64_t hash = hash64(name);
  const ForkSafeLock lock(impl_->mutex);
  if (const Named* known = impl_->indices.back()->find(name, hash)) {
    known->kernel.store(kernel, std::memory_order_release);
    return;
  }
  if ((impl_->names.size() + 1) * 2 > impl_->indices.back()->capacity()) {
    impl_->grow_index();
  }
  const Named& entry = impl_->names.emplace_back(name, kernel);
  impl_->indices.back()->insert(&entry, hash);
}

void KernelTable::remove(const std::vector<Kernel>& kernels) {
  using detail::KernelAccess;
  const auto clear = [&](std::atomic<Kernel>& place) {
    const Kernel known = place.load(std::memory_order_relaxed);
    if (known && std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& removed) {
          return KernelAccess::state(removed) == KernelAccess::state(known);
        })) {
      place.store(Kernel(), std::memory_order_release);
    }
  };
  const ForkSafeLock lock(impl_->mutex);
  Array& array = *impl_->arrays.back();
  for (std::size_t id = 0; id < array.capacity; ++id) {
    clear(array.kernels()[id]);
  }
  for (const Named& named : impl_->names) {
    clear(named.kernel);
  }
}

}  // namespace cukiln
