// SPDX-License-Identifier: Apache-2.0
#include "core/base/nvtx.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

namespace cukiln {

namespace {

// The binary interface between NVTX 3 and a profiler's library. It never changes: NVTX is compiled
// into programs.

using NvtxFunction = void (*)();
using NvtxFunctionTable = NvtxFunction**;

/// The functions of one module of NVTX. Number 0 is none, and a null ends the table.
template <std::size_t count>
struct NvtxModule {
  std::array<NvtxFunction, count> functions{};
  std::array<NvtxFunction*, count + 1> table{};
  NvtxModule() {
    for (std::size_t i = 1; i < count; ++i) {
      table[i] = &functions[i];
    }
  }
};

constexpr std::size_t kDomainRangePushEx = 4;
constexpr std::size_t kDomainRangePop = 5;
constexpr std::size_t kDomainCreateA = 12;

/// All modules, since a library may attach to each: of the others it gets a table that is not used.
struct NvtxModules {
  NvtxModule<16> core;
  NvtxModule<9> cuda;
  NvtxModule<15> opencl;
  NvtxModule<7> cuda_runtime;
  NvtxModule<16> core2;  // domains
  NvtxModule<7> sync;
};

NvtxModules& modules() {
  static NvtxModules all;
  return all;
}

template <std::size_t count>
int hand_out(NvtxModule<count>& module, NvtxFunctionTable* table, unsigned* size) {
  if (table != nullptr) {
    *table = module.table.data();
  }
  if (size != nullptr) {
    *size = static_cast<unsigned>(count);
  }
  return 1;
}

extern "C" int cukiln_nvtx_module(int module, NvtxFunctionTable* table, unsigned* size) {
  NvtxModules& all = modules();
  switch (module) {
    case 1: return hand_out(all.core, table, size);
    case 2: return hand_out(all.cuda, table, size);
    case 3: return hand_out(all.opencl, table, size);
    case 4: return hand_out(all.cuda_runtime, table, size);
    case 5: return hand_out(all.core2, table, size);
    case 6: return hand_out(all.sync, table, size);
    default: return 0;
  }
}

extern "C" void cukiln_nvtx_set_injection_version(std::uint32_t /*version*/) {}

struct NvtxCallbacksTable {
  std::size_t bytes;
  int (*module)(int module, NvtxFunctionTable* table, unsigned* size);
};
struct NvtxVersionTable {
  std::size_t bytes;
  std::uint32_t version;
  std::uint32_t reserved;
  void (*set_injection_version)(std::uint32_t version);
};

constexpr std::uint32_t kNvtxVersion = 3;

extern "C" const void* cukiln_nvtx_export_table(std::uint32_t id) {
  static const NvtxCallbacksTable callbacks{sizeof callbacks, cukiln_nvtx_module};
  static const NvtxVersionTable versions{sizeof versions, kNvtxVersion, 0,
                                         cukiln_nvtx_set_injection_version};
  return id == 1 ? static_cast<const void*>(&callbacks) : id == 3 ? &versions : nullptr;
}

/// The attributes of a range: nvtxEventAttributes_t.
struct NvtxAttributes {
  std::uint16_t version = kNvtxVersion;
  std::uint16_t bytes = sizeof(NvtxAttributes);
  std::uint32_t category = 0;
  std::int32_t color_type = 0;
  std::uint32_t color = 0;
  std::int32_t payload_type = 0;
  std::int32_t reserved = 0;
  std::uint64_t payload = 0;
  std::int32_t message_type = 1;  // a text
  const char* message = nullptr;
};
static_assert(sizeof(NvtxAttributes) == 48);

template <class Function>
Function core2_function(std::size_t number) {
  return reinterpret_cast<Function>(modules().core2.functions[number]);
}

}  // namespace

const Nvtx* Nvtx::open(const std::string& path, const Logger& log) {
  enum : int { untried, busy, opened, failed };
  static std::atomic<int> state{untried};
  static Nvtx instance;
  if (path.empty()) {
    return nullptr;
  }
  // No lock: the library's own code may start threads and processes.
  int before = untried;
  if (!state.compare_exchange_strong(before, busy)) {
    return before == opened ? &instance : nullptr;
  }
  using Initialize = int (*)(const void* (*)(std::uint32_t));
  const char* problem = nullptr;
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  void* const initialize =
      library != nullptr ? ::dlsym(library, "InitializeInjectionNvtx2") : nullptr;
  if (initialize == nullptr) {
    problem = ::dlerror();
  } else if (reinterpret_cast<Initialize>(initialize)(cukiln_nvtx_export_table) == 0) {
    problem = "its InitializeInjectionNvtx2 failed";
  }
  if (problem != nullptr) {
    log.warn("there are no NVTX ranges: {} cannot be used: {}", path, problem);
    state.store(failed);
    return nullptr;
  }
  using CreateDomain = void* (*)(const char*);
  if (const auto create = core2_function<CreateDomain>(kDomainCreateA)) {
    instance.domain_ = create("cukiln");
  }
  state.store(opened);
  return &instance;
}

void Nvtx::push(const char* message) const noexcept {
  using Push = int (*)(void*, const NvtxAttributes*);
  if (const auto push = core2_function<Push>(kDomainRangePushEx)) {
    NvtxAttributes attributes;
    attributes.message = message;
    push(domain_, &attributes);
  }
}

void Nvtx::pop() const noexcept {
  using Pop = int (*)(void*);
  if (const auto pop = core2_function<Pop>(kDomainRangePop)) {
    pop(domain_);
  }
}

Nvtx::Range::Range(const Nvtx* nvtx, std::string_view what, std::string_view name) : nvtx_(nvtx) {
  if (nvtx_ != nullptr) {
    nvtx_->push(fmt::format("{}{}{}", what, name.empty() ? "" : " ", name).c_str());
  }
}

Nvtx::Range::~Range() {
  if (nvtx_ != nullptr) {
    nvtx_->pop();
  }
}

}  // namespace cukiln
