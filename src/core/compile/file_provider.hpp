// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/key/dependency_set.hpp"
#include "core/wire/messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Serves files to a worker during one compile, and records the dependency set.
class FileProvider {
 public:
  virtual ~FileProvider() = default;

  /// Returns an encoded wire::Answers whose first answer is for `path`. An error ends the compile:
  /// the process that has the files has ended.
  virtual Result<std::string> reply(const std::string& path) = 0;

  /// Returns the dependency set: every path that NVRTC accessed, except the sources, which are part
  /// of the request.
  virtual Result<DependencySet> take_dependencies(const wire::Compiled& compiled) = 0;

  /// Returns a sentence about the first accessed file that could not be read; empty if there is
  /// none.
  virtual const std::string& refused() const noexcept = 0;
};

}  // namespace cukiln
