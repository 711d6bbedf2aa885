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

/// The options of `compile` and `explain` that describe modules.
class ModuleOptions {
 public:
  void add_to(CLI::App& app);

  /// Returns a module for each source; one of all of them if they are linked. Errors:
  /// invalid_argument (a flag, a target, a macro), not_found (a missing source).
  Result<std::vector<ModuleSpec>> modules(const std::vector<std::string>& sources) const;

  /// Returns the modules of a manifest, which has all but the options --arch and --no-std-shims.
  /// Errors: invalid_argument, for an unknown target or another option; those of load_manifest.
  Result<std::vector<ModuleSpec>> modules_of_manifest(const std::string& path) const;

 private:
  /// An option that stands for a compiler flag.
  struct FlagOption {
    const CLI::Option* option = nullptr;
    std::string prefix;  ///< before a value it makes the flag
  };
  std::vector<std::string> flags() const;

  const CLI::App* app_ = nullptr;
  std::vector<FlagOption> flag_options_;
  std::vector<std::string> arch_;
  std::vector<std::string> names_;
  std::string link_;
  std::vector<std::string> objects_;
  bool no_std_shims_ = false;
  std::vector<std::string> include_, define_, standard_, flags_;  // see `flag_options_`
};

/// Checks that a source exists and is a file. Errors: not_found.
Result<void> check_source(const Source& source);

/// Returns whether a path names a manifest: it ends in `.json`.
bool is_manifest(const std::string& path) noexcept;

/// Loads a manifest and checks its sources. `targets`, if not empty, replace those of the manifest.
/// Errors: those of Manifest::load and check_source.
Result<Manifest> load_manifest(const std::string& path, const std::vector<Target>& targets);

/// Adds --no-std-shims to a command.
void add_std_shims_option(CLI::App& app, bool& no_std_shims);
/// Returns the modules, without the standard headers for device code if `no_std_shims`.
std::vector<ModuleSpec> with_std_shims_option(std::vector<ModuleSpec> modules, bool no_std_shims);
/// Adds --arch to a command that `does` something for a target.
void add_arch_option(CLI::App& app, std::vector<std::string>& arch, const char* does = "compile");
/// Errors: invalid_argument.
Result<std::vector<Target>> parse_targets(const std::vector<std::string>& texts);

/// Parses `rdc` or `lto`; an empty text is `none`. Errors: invalid_argument.
Result<LinkMode> parse_link_mode(const std::string& text);

/// Parses a number from 1 to 1024; an empty text is 0, the default. Errors: invalid_argument.
Result<unsigned> parse_jobs(const std::string& text);

/// Returns whether a command accepts flags of NVRTC and nvcc as they are.
bool takes_compiler_flags(const CLI::App& command);

/// If `command` accepts compiler flags, turns each one among the arguments into a `--flag`, so that
/// `-O3`, `-Xptxas -v` and `-gencode=…` work as in nvcc. `from` is the index of the command's first
/// argument.
void expand_compiler_flags(const CLI::App& app, const CLI::App& command, std::size_t from,
                           std::vector<std::string>& arguments);

}  // namespace cukiln::cli
