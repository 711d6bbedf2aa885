// SPDX-License-Identifier: Apache-2.0
// libc's getcwd, interposed for libnvrtc (see interpose.cpp). During a compile it returns the
// working directory of its owner's choice: NVRTC 13.5 makes relative paths absolute with it, 12.9
// and 13.0 search it for a relative -include, and all write it into cubins with -G.

#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/worker/interpose.hpp"
#include "core/worker/served_files.hpp"

namespace cukiln::worker {
namespace {

char* working_folder(char* out, std::size_t size) {
  static const auto real =
      reinterpret_cast<char* (*)(char*, std::size_t)>(::dlsym(RTLD_NEXT, "getcwd"));
  if (!ServedFiles::instance().observing()) {
    return real(out, size);
  }
  const char* const folder = ServedFiles::instance().working_folder().c_str();
  if (out == nullptr) {
    return ::strdup(folder);
  }
  if (size <= std::strlen(folder)) {
    errno = size == 0 ? EINVAL : ERANGE;
    return nullptr;
  }
  return std::strcpy(out, folder);
}

}  // namespace

CUKILN_DEFINE(char*, "getcwd", getcwd, (char* out, std::size_t size)) {
  return working_folder(out, size);
}
CUKILN_DEFINE(char*, "__getcwd_chk", getcwd_chk, (char* out, std::size_t size, std::size_t)) {
  return working_folder(out, size);
}
CUKILN_DEFINE(char*, "get_current_dir_name", get_current_dir_name, ()) {
  return working_folder(nullptr, 0);
}

}  // namespace cukiln::worker
