// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "core/base/hasher.hpp"
#include "core/base/logger.hpp"
#include "core/base/mutex.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/module_spec.hpp>

namespace cukiln {

/// Appends requests to a file, a line of JSON each, from which `cukiln record` makes a manifest. A
/// failed write is logged once and never fails the request.
/// Threads: safe. Processes: each line is appended by one write, so lines do not mix.
class Recorder {
 public:
  /// `path` is an existing file; empty: nothing is recorded.
  Recorder(std::string path, Logger log) : path_(std::move(path)), log_(std::move(log)) {}

  /// Records a module for a target, once.
  void note(const ModuleSpec& spec, Target target);

 private:
  std::string append(const std::string& line);

  const std::string path_;
  const Logger log_;
  Mutex mutex_;
  std::set<ContentHash> known_ CUKILN_GUARDED_BY(mutex_);
  bool failed_ CUKILN_GUARDED_BY(mutex_) = false;
};

}  // namespace cukiln
