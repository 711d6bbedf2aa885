// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/library/own_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>

namespace cukiln::binding {

namespace {

/// A library that has a peer of its own. Never removed: its addresses stay as they are while the
/// handle is open.
struct Own {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const Api* api = nullptr;
  Own* next = nullptr;
};
std::atomic<Own*> g_owns = nullptr;
std::atomic<unsigned long long> g_seen = 0;  // libraries that were ever loaded, at the last look

std::uint32_t gnu_hash(const char* name) noexcept {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) {
    hash = hash * 33 + static_cast<unsigned char>(*name);
  }
  return hash;
}

/// The tables by which the dynamic linker finds a symbol.
struct Symbols {
  const std::uint32_t* hashes = nullptr;  ///< DT_GNU_HASH
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;

  bool define(const char* name) const noexcept {
    if (hashes == nullptr || symbols == nullptr || names == nullptr) {
      return false;
    }
    const std::uint32_t bucket_count = hashes[0];
    const std::uint32_t first = hashes[1];
    const std::uint32_t bloom_words = hashes[2];
    const auto* const bloom = reinterpret_cast<const ElfW(Addr)*>(hashes + 4);
    const auto* const buckets = reinterpret_cast<const std::uint32_t*>(bloom + bloom_words);
    const std::uint32_t* const chains = buckets + bucket_count;
    if (bucket_count == 0) {
      return false;
    }
    const std::uint32_t hash = gnu_hash(name);
    for (std::uint32_t at = buckets[hash % bucket_count]; at >= first && at != 0; ++at) {
      const std::uint32_t found = chains[at - first];
      if ((found | 1) == (hash | 1) && std::strcmp(names + symbols[at].st_name, name) == 0) {
        return symbols[at].st_shndx != SHN_UNDEF;
      }
      if ((found & 1) != 0) {
        return false;
      }
    }
    return false;
  }
};

Symbols symbols_of(const dl_phdr_info& info) noexcept {
  Symbols symbols;
  const ElfW(Dyn)* entry = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) {
      entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    }
  }
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    const void* const table = reinterpret_cast<const void*>(entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_GNU_HASH: symbols.hashes = static_cast<const std::uint32_t*>(table); break;
      case DT_SYMTAB: symbols.symbols = static_cast<const ElfW(Sym)*>(table); break;
      case DT_STRTAB: symbols.names = static_cast<const char*>(table); break;
      default: break;
    }
  }
  return symbols;
}

/// False for the peer itself, whatever the end of its name, and for this library, of which a
/// process may have two.
bool may_have_own(const char* path) noexcept {
  const char* const slash = path != nullptr ? std::strrchr(path, '/') : nullptr;
  const std::size_t stem = std::strcspn(kPeer.stem, ".");
  return slash != nullptr && std::strncmp(slash + 1, kPeer.stem, stem) != 0 &&
         std::strncmp(slash, "/libcukiln", 10) != 0;
}

/// The library with an address, if it is one of those.
struct Search {
  std::uintptr_t address = 0;
  const char* path = nullptr;  ///< found
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

int find_own(dl_phdr_info* info, std::size_t /*size*/, void* out) {
  auto& search = *static_cast<Search*>(out);
  std::uintptr_t begin = UINTPTR_MAX;
  std::uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD) {
      const std::uintptr_t from = info->dlpi_addr + part.p_vaddr;
      begin = from < begin ? from : begin;
      end = from + part.p_memsz > end ? from + part.p_memsz : end;
    }
  }
  if (search.address < begin || search.address >= end) {
    return 0;
  }
  if (may_have_own(info->dlpi_name) && symbols_of(*info).define(kPeer.function)) {
    search.path = info->dlpi_name;
    search.begin = begin;
    search.end = end;
  }
  return 1;
}

int find_any(dl_phdr_info* info, std::size_t /*size*/, void* found) {
  *static_cast<bool*>(found) =
      may_have_own(info->dlpi_name) && symbols_of(*info).define(kPeer.function);
  return *static_cast<bool*>(found) ? 1 : 0;
}

int count_loaded(dl_phdr_info* info, std::size_t /*size*/, void* count) {
  *static_cast<unsigned long long*>(count) = info->dlpi_adds;
  return 1;
}

/// Whether a library of the process has a peer of its own. Most processes have none, and then a
/// call costs no search for its caller's library.
bool any_has_own() {
  static std::atomic<bool> any = false;
  unsigned long long loaded = 0;
  ::dl_iterate_phdr(count_loaded, &loaded);
  if (!any && g_seen != loaded) {
    bool found = false;
    ::dl_iterate_phdr(find_any, &found);
    any = found;
    g_seen = loaded;
  }
  return any;
}

}  // namespace

const Api* own_library_of(const void* caller) {
  if (!any_has_own()) {
    return nullptr;
  }
  Search search{reinterpret_cast<std::uintptr_t>(caller)};
  for (const Own* own = g_owns; own != nullptr; own = own->next) {
    if (search.address >= own->begin && search.address < own->end) {
      return own->api;
    }
  }
  ::dl_iterate_phdr(find_own, &search);
  void* const handle =
      search.path != nullptr ? open_library(search.path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  auto* const own = handle != nullptr ? new (std::nothrow) Own : nullptr;
  if (own == nullptr) {
    return nullptr;
  }
  own->begin = search.begin;
  own->end = search.end;
  own->api = make_own_api(handle);
  own->next = g_owns;
  while (!g_owns.compare_exchange_weak(own->next, own)) {
  }
  report_unreached(kPeer.own, search.path);
  return own->api;
}

bool has_own_library() noexcept { return g_owns != nullptr; }

const Api* own_library_of_process() {
  const void* const next = ::dlsym(RTLD_NEXT, kPeer.function);
  return next != nullptr ? own_library_of(next) : nullptr;
}

}  // namespace cukiln::binding
