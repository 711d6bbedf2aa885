// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "cli/context.hpp"

namespace cukiln::cli {

/// A manifest made of recorded requests (loader/recorder.hpp). It has each module once with all its
/// targets, and paths relative to itself. Sources in memory become files in a folder beside it.
class RecordedManifest {
 public:
  explicit RecordedManifest(const std::string& path);

  /// Adds a recorded line. Skips a line that is truncated or not a request. Errors: io.
  Result<void> add(const std::string& line);
  Result<void> write() const;

  std::size_t modules() const noexcept { return modules_.size(); }
  /// Returns the number of lines that a manifest cannot express.
  std::size_t skipped() const noexcept { return skipped_; }

 private:
  std::string relative(const std::string& path) const;
  std::string unique_name(const std::string& name);
  Result<Json> sources_of(const Json& recorded) const;
  Result<Json> write_texts(const Json& recorded) const;

  const std::filesystem::path path_;
  const std::filesystem::path folder_;
  const std::filesystem::path texts_;
  std::map<std::string, std::size_t> known_;
  std::set<std::string> names_;
  Json modules_ = Json::array();
  std::size_t skipped_ = 0;
};

}  // namespace cukiln::cli
