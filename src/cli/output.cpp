// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

Result<void> check_output(const std::string& path, bool may_be_folder) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode) && !may_be_folder) {
      return make_error(ErrorCode::invalid_argument,
                        "cannot write {}: it is a folder; name a file in it", path);
    }
    return ::access(path.c_str(), W_OK) == 0
               ? Result<void>()
               : make_error(ErrorCode::io, "cannot write {}: {}", path, errno_text(errno));
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return make_error(ErrorCode::invalid_argument,
                      "cannot write {}: there is no folder {}; make it, or name another file", path,
                      folder);
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    return make_error(ErrorCode::io, "cannot write {}: {}", path, errno_text(errno));
  }
  return {};
}

Exit exit_of_output(const Error& error) noexcept {
  return error.code() == ErrorCode::invalid_argument ? Exit::usage : Exit::environment;
}

}  // namespace cukiln::cli
