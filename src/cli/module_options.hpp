// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <cukiln/manifest.hpp>
#include <cukiln/module_spec.hpp>
#include <cukiln/result.hpp>

namespace cukiln::cli {

/// What `compile` and `explain` take to describe modules.
class ModuleOptions {
 public:
  void add_to(CLI::App& app);

  /// One module for each source. Errors: invalid_argument (a flag, a target, a macro), not_found (a
  /// source that is not there).
  Result<std::vector<ModuleSpec>> modules(const std::vector<std::string>& sources) const;

  /// For a manifest, which says the rest itself. Errors: invalid_argument: a target, or another
  /// option than --arch.
  Result<std::vector<Target>> targets_alone() const;

 private:
  /// An option that is another spelling of a flag.
  struct FlagOption {
    const CLI::Option* option = nullptr;
    std::string prefix;  ///< of each value, to make the flag
  };
  std::vector<std::string> flags() const;

  const CLI::App* app_ = nullptr;
  std::vector<FlagOption> flag_options_;
  std::vector<std::string> arch_;
  std::vector<std::string> names_;
  std::vector<std::string> include_, define_, standard_, flags_;  // read through `flag_options_`
};

/// Errors: not_found, naming a source that is no file.
Result<void> check_source(const Source& source);

/// Whether an argument is a manifest, by its name: sources end otherwise.
bool is_manifest(const std::string& path) noexcept;

/// A manifest whose sources are there, for `targets` instead of its own when there are any.
Result<Manifest> load_manifest(const std::string& path, const std::vector<Target>& targets);

/// The options that choose targets, for commands without the others.
void add_arch_option(CLI::App& app, std::vector<std::string>& arch);
Result<std::vector<Target>> parse_targets(const std::vector<std::string>& texts);

/// Errors: invalid_argument, unless it is a number from 1 to 1024. Empty: 0.
Result<unsigned> parse_jobs(const std::string& text);

/// Whether a command takes NVRTC's and nvcc's flags as they are.
bool takes_compiler_flags(const CLI::App& command);

/// Turns what `command` does not know itself into `--flag`s, when it takes compiler flags: `-O3`,
/// `-Xptxas -v`, `-gencode=…` work as they do with nvcc. `from`: where the command's arguments
/// begin.
void expand_compiler_flags(const CLI::App& app, const CLI::App& command, std::size_t from,
                           std::vector<std::string>& arguments);

}  // namespace cukiln::cli
