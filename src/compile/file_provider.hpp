// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "key/dependency_set.hpp"
#include "wire/messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Answers a worker's questions about files during one compile, and knows afterwards what NVRTC
/// looked at.
class FileProvider {
 public:
  virtual ~FileProvider() = default;

  /// An encoded wire::Answers, the one for `path` first. An error ends the compile: whoever has the
  /// files has gone.
  virtual Result<std::string> reply(const std::string& path) = 0;

  /// Everything that was looked at, without the sources, which the request has.
  virtual Result<DependencySet> take_dependencies(const wire::Compiled& compiled) = 0;

  /// What could not be read, as a sentence; empty: nothing.
  virtual const std::string& refused() const noexcept = 0;
};

}  // namespace cukiln
