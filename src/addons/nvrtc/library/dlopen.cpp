// SPDX-License-Identifier: Apache-2.0
// A host that opens the peer itself, as cuda.bindings does by absolute path, takes the functions
// from the handle. So dlopen is defined here too: for a peer it opens that, remembers it as the
// real one, and returns this library. All other calls are those of the next library that defines
// it, libc in the end, made with the host's return address, since dlopen searches the folders of
// the library that calls it.

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "addons/nvrtc/library/real_library.hpp"

#define CUKILN_EXPORTED extern "C" __attribute__((visibility("default")))

namespace cukiln::binding {

namespace {

using OpenLibrary = void* (*)(const char*, int) noexcept;  // else its call is no jump

OpenLibrary libc_dlopen() noexcept {
  static const auto real = reinterpret_cast<OpenLibrary>(::dlsym(RTLD_NEXT, "dlopen"));
  return real;
}

void* const kFoundEarly = reinterpret_cast<void*>(libc_dlopen());  // before there are threads

const char* string_of(const link_map& map, ElfW(Sxword) tag) noexcept {
  const char* strings = nullptr;
  const char* value = nullptr;
  for (const ElfW(Dyn)* entry = map.l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) {
      strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    }
  }
  for (const ElfW(Dyn)* entry = map.l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == tag && strings != nullptr) {
      value = strings + entry->d_un.d_val;
    }
  }
  return value;
}

/// Opens `file` in one of the folders, `$ORIGIN/../lib:/opt/lib`, of the library with this path.
void* open_in(const char* folders, const char* library, const char* file, int mode) {
  const char* const slash = std::strrchr(library, '/');
  const int origin_length = slash != nullptr ? static_cast<int>(slash - library) : 0;
  while (folders != nullptr && *folders != '\0') {
    const std::size_t length = std::strcspn(folders, ":");
    char path[PATH_MAX];
    int written = 0;
    for (const char* const origin : {"$ORIGIN", "${ORIGIN}"}) {
      const std::size_t prefix = std::strlen(origin);
      if (length >= prefix && std::strncmp(folders, origin, prefix) == 0) {
        written = std::snprintf(path, sizeof path, "%.*s%.*s/%s", origin_length, library,
                                static_cast<int>(length - prefix), folders + prefix, file);
      }
    }
    if (written == 0) {
      written =
          std::snprintf(path, sizeof path, "%.*s/%s", static_cast<int>(length), folders, file);
    }
    if (written > 0 && written < static_cast<int>(sizeof path)) {
      if (void* const handle = libc_dlopen()(path, mode)) {
        return handle;
      }
    }
    folders += length + (folders[length] == ':' ? 1 : 0);
  }
  return nullptr;
}

/// Opens a peer as libc would for the library that `caller` is in. Null if it cannot, or if that
/// library is cukiln's.
void* open_peer(const char* file, int mode, void* caller) {
  Dl_info info{};
  link_map* map = nullptr;
  if (::dladdr1(caller, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0) {
    const char* const slash =
        info.dli_fname != nullptr ? std::strrchr(info.dli_fname, '/') : nullptr;
    if (slash != nullptr && std::strncmp(slash, "/libcukiln", 10) == 0) {
      return nullptr;
    }
    if (map != nullptr && std::strchr(file, '/') == nullptr) {
      char program[PATH_MAX] = {};  // whose name in the map is empty
      const bool is_program = *map->l_name == '\0';
      if (is_program && ::readlink("/proc/self/exe", program, sizeof program - 1) < 0) {
        program[0] = '\0';
      }
      const char* const library = is_program ? program : map->l_name;
      for (const ElfW(Sxword) tag : {DT_RUNPATH, DT_RPATH}) {
        if (void* const handle = open_in(string_of(*map, tag), library, file, mode)) {
          return handle;
        }
      }
    }
  }
  return libc_dlopen()(file, mode);
}

/// This library, as its handle. Null if the peer cannot be replaced: another one is already, or
/// this one is too new.
void* replacement_for(void* peer) {
  Dl_info own{};
  if (!kPeer.is_known(peer) || !set_real(peer) ||
      ::dladdr(reinterpret_cast<void*>(&replacement_for), &own) == 0) {
    return nullptr;
  }
  return libc_dlopen()(own.dli_fname, RTLD_NOW);
}

}  // namespace

void* open_library(const char* file, int mode) { return libc_dlopen()(file, mode); }

}  // namespace cukiln::binding

// Optimised always: the last call must be a jump, which leaves the caller's return address in
// place.
#ifdef __clang__
#define CUKILN_OPTIMISED  // not by Clang, which has no such attribute: build with -O2
#else
#define CUKILN_OPTIMISED __attribute__((optimize("O2")))
#endif
CUKILN_EXPORTED CUKILN_OPTIMISED void* dlopen(const char* file, int mode) noexcept {
  using namespace cukiln::binding;
  if (file != nullptr && is_peer(file)) {
    if (void* const handle = open_peer(file, mode, __builtin_return_address(0))) {
      void* const replacement = replacement_for(handle);
      return replacement != nullptr ? replacement : handle;
    }
  }
  return libc_dlopen()(file, mode);
}
