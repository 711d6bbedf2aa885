// SPDX-License-Identifier: Apache-2.0
// TMA: boxes of tensors to shared memory and back.
#include <cstring>

#include "emulator/async_copy.hpp"
#include "emulator/cta.hpp"

namespace cukiln::emulator {
namespace {

Map map_of(const TensorMap* map) {
  Map copy;
  std::memcpy(&copy, map, sizeof copy);
  return copy;
}

// Calls visit(shared offset, address or null beyond the tensor) for each 16 bytes of a box's rows.
template <class Visit>
u32 for_each_16_bytes(const Map& map, const std::array<u32, 3>& at, u32 shared,
                      const Visit& visit) {
  const u32 row_bytes = map.box[0] * map.element_bytes;
  if ((shared & kOffsetMask) % (map.swizzle_bytes != 0 ? 1024 : 128) != 0) {
    fault("TMA: shared address %08x is not aligned", shared);
  }
  if (map.swizzle_bytes != 0 && row_bytes > map.swizzle_bytes) {
    fault("TMA: a box row of %u bytes is wider than the swizzle", row_bytes);
  }
  u32 offset = shared & kOffsetMask;
  for (u32 z = 0; z < map.box[2]; ++z) {
    for (u32 y = 0; y < map.box[1]; ++y) {
      for (u32 x = 0; x < row_bytes; x += 16, offset += 16) {
        const u64 column = u64{at[0]} * map.element_bytes + x;
        const u64 columns = map.size[0] * map.element_bytes;
        const bool inside = column < columns && at[1] + y < map.size[1] &&
                            (map.rank < 3 || at[2] + z < map.size[2]);
        u8* const data = map.data + (at[1] + y) * map.stride[0] + column +
                         (map.rank < 3 ? 0 : (at[2] + z) * map.stride[1]);
        visit(map.swizzle_bytes != 0 ? swizzled(offset) : offset, inside ? data : nullptr,
              inside ? static_cast<u32>(min<u64>(16, columns - column)) : 0);
      }
    }
  }
  return map.box[0] * map.box[1] * map.box[2] * map.element_bytes;
}

void perform(const Store& store) {
  Cta& cta = *self->cta;
  for_each_16_bytes(store.map, store.at, store.source, [&](u32 offset, u8* data, u32 valid) {
    if (data != nullptr) {
      std::memcpy(data, shared_bytes(cta, offset, 16, "TMA store"), valid);
    }
  });
}

// One destination of a load, which completes by itself.
void load_to(Cta& cta, u32 destination, const TensorMap* tensor, u32 rank, const u32 (&at)[3],
             Mbarrier& done) {
  const Map map = map_of(tensor);
  if (map.rank != rank) {
    fault("TMA: a map of rank %u is used with %u coordinates", map.rank, rank);
  }
  const std::array<u32, 3> box = {at[0], at[1], at[2]};
  if (!self->waited) {
    cta.cluster->early_loads.fetch_add(1, std::memory_order_relaxed);
  }
  self->cta->cluster->tma->issue([map, box, destination, &done, &cta] {
    expect_no_loads(cta, destination & kOffsetMask,
                    map.box[0] * map.box[1] * map.box[2] * map.element_bytes, "TMA load");
    const u32 bytes =
        for_each_16_bytes(map, box, destination, [&](u32 offset, u8* data, u32 valid) {
          u8* const to = shared_bytes(cta, offset, 16, "TMA load");
          std::memset(to, 0, 16);
          if (data != nullptr) {
            std::memcpy(to, data, valid);
          }
        });
    update(done, 0, -static_cast<std::int32_t>(bytes));
  });
}

void expect_of_this_pair(u32 ctas, u32 address) {
  if (cta_of(address).rank / ctas != self->cta->rank / ctas) {
    fault("TMA: cta_group::%u of rank %u has the barrier %08x", ctas, self->cta->rank, address);
  }
}

}  // namespace

void load(u32 ctas, u32 destination, const TensorMap* tensor, u32 rank, const u32 (&at)[3],
          u32 barrier) {
  expect_of_this_pair(ctas, barrier);
  load_to(cta_of(destination), destination, tensor, rank, at,
          async_mbarrier_at(barrier, ctas == 2));
}

void load_multicast(u32 destination, const TensorMap* tensor, u32 rank, const u32 (&at)[3],
                    u32 barrier, u32 mask) {
  const auto& ctas = self->cta->cluster->ctas;
  if (mask == 0 || mask >> ctas.size() != 0) {
    fault("TMA: multicast to the CTAs %#x of a cluster of %zu", mask, ctas.size());
  }
  expect_of_this_pair(2, barrier);
  const u32 parity = cta_of(barrier).rank % 2;
  for (const auto& cta : ctas) {
    if ((mask >> cta->rank & 1) != 0) {
      const u32 at_rank = (cta->rank & ~1u) | parity;
      Mbarrier& done = async_mbarrier_at((barrier & kOffsetMask) | at_rank << kRankShift, true);
      load_to(*cta, destination, tensor, rank, at, done);
    }
  }
}

void store(const TensorMap* tensor, const u32 (&at)[3], u32 source) {
  if (!self->waited) {
    fault("TMA store: before griddepcontrol_wait");
  }
  Cta& cta = *self->cta;
  const u32 warp = self->index / 32 * 32;
  for (u32 lane = warp; lane < warp + 32; ++lane) {
    if (!cta.threads[lane].writes_fenced) {
      fault("TMA store: thread %u has not made its writes visible", lane);
    }
  }
  self->group.push_back({map_of(tensor), {at[0], at[1], at[2]}, source});
}

void expect_no_loads(Cta& cta, u32 offset, u32 bytes, const char* what) {
  if (!cta.has_loads.load(std::memory_order_relaxed)) {
    return;
  }
  const std::lock_guard lock(cta.loads_mutex);
  for (u32 i = 0; i < cta.all.expected; ++i) {
    for (const SharedLoad& load : cta.threads[i].loads) {
      if (load.begin < offset + bytes && offset < load.end) {
        fault(
            "%s: thread %u may still read +%u: no async_proxy_fence has followed its load in time",
            what, i, load.begin);
      }
    }
  }
}

void note_load(const void* from, u32 bytes) {
  const u32 begin = shared_address(from) & kOffsetMask;
  shared_bytes(*self->cta, begin, bytes, "load");
  self->cta->has_loads.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(self->cta->loads_mutex);
  self->loads.push_back({begin, begin + bytes});
}

void store_wait(u32 pending) {
  while (self->groups.size() > pending) {
    for (const Store& store : self->groups.front()) {
      perform(store);
    }
    self->groups.erase(self->groups.begin());
  }
}

}  // namespace cukiln::emulator

namespace cukiln {

using namespace emulator;

void tma_store_commit() {
  const u32 warp = self->index / 32 * 32;
  for (u32 lane = warp; lane < warp + 32; ++lane) {
    self->cta->threads[lane].writes_fenced = false;
  }
  self->groups.push_back(std::move(self->group));
  self->group.clear();
}

void async_proxy_fence() {
  self->writes_fenced = true;
  if (!self->loads.empty()) {
    const std::lock_guard lock(self->cta->loads_mutex);
    std::erase_if(self->loads, [](const SharedLoad& load) { return !load.released; });
  }
}

void bulk_copy(u32 to, const void* from, u32 bytes, u32 barrier) {
  if (to % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0 || bytes % 16 != 0) {
    fault("bulk copy: %u bytes to %08x", bytes, to);
  }
  Cta& cta = cta_of(to);
  if (!self->waited) {
    cta.cluster->early_loads.fetch_add(1, std::memory_order_relaxed);
  }
  Mbarrier& done = async_mbarrier_at(barrier, false);
  cta.cluster->tma->issue([&cta, to, from, bytes, &done] {
    const u32 offset = to & kOffsetMask;
    expect_no_loads(cta, offset, bytes, "bulk copy");
    std::memcpy(shared_bytes(cta, offset, bytes, "bulk copy"), from, bytes);
    update(done, 0, -static_cast<std::int32_t>(bytes));
  });
}

}  // namespace cukiln
