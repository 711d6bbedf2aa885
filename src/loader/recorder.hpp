// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "base/hasher.hpp"
#include "base/logger.hpp"
#include "base/mutex.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/module_spec.hpp>

namespace cukiln {

/// Writes down what a host asks for, one line of JSON each, for `cukiln record` to make a manifest
/// of. The host never notices: what cannot be written is said once, in the log.
/// Threads: safe. Processes: lines of several do not mix.
class Recorder {
 public:
  /// `path`: a file that is there already; empty: nothing is recorded.
  Recorder(std::string path, Logger log) : path_(std::move(path)), log_(std::move(log)) {}

  /// Each module and target once.
  void note(const ModuleSpec& spec, Target target);

 private:
  std::string append(const std::string& line);

  const std::string path_;
  const Logger log_;
  Mutex mutex_;
  std::set<ContentHash> known_;
  bool failed_ = false;
};

}  // namespace cukiln
