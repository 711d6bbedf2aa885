// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// A new file, to which an application's processes append. Removed in the end.
class ReportFile {
 public:
  /// Creates `start` with six characters behind it. Errors: io.
  static Result<ReportFile> make(std::string start);

  ReportFile(ReportFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ReportFile& operator=(ReportFile&&) = delete;
  ~ReportFile();
  /// Absolute.
  const std::string& path() const noexcept { return path_; }

  /// Calls `line` for each line, without its end, until it returns an error, which is returned.
  /// Errors: also those of read_file; the file has at most 1 GiB.
  Result<void> for_each_line(const std::function<Result<void>(std::string_view)>& line) const;

 private:
  explicit ReportFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// Returns a variable that an application would inherit; empty if it is not set.
std::string inherited_variable(std::string_view name);

/// Runs an application with some environment variables set and waits for it. Its output is not
/// changed, except that `output_to_stderr` keeps stdout for the JSON document. Ctrl-C ends the
/// application only, and the signals by which a process is ended or notified are passed on to it.
/// Returns the exit code, or 128 + the signal that ended the application. Errors: not_found.
Result<int> run_application(std::vector<std::string> command,
                            const std::vector<std::pair<std::string, std::string>>& variables,
                            bool output_to_stderr);

}  // namespace cukiln::cli
