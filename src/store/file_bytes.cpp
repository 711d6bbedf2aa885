// SPDX-License-Identifier: Apache-2.0
#include "store/file_bytes.hpp"

#include <sys/stat.h>

#include <string>

#include "base/file.hpp"

namespace cukiln {

namespace {

std::uint64_t size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

}  // namespace

std::uint64_t file_bytes(StoreSession& session) {
  const auto name = session.generation_name();
  if (!name) {
    return 0;
  }
  const std::string database = join_path(session.directory().path(*name), "store.db");
  return size_of(database) + size_of(database + "-wal");
}

}  // namespace cukiln
