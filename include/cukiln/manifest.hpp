// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cukiln/export.hpp>
#include <cukiln/module_spec.hpp>
#include <cukiln/result.hpp>

namespace cukiln {
inline namespace v0 {

/// A list of modules to preload. The file format is JSON, format 1, with the schema
/// `cache/manifests/manifest.schema.json`. A kernel's id is its index in the manifest: modules in
/// order, within each its names in order.
class CUKILN_API Manifest {
 public:
  /// Reads a file. Relative paths in it are relative to the file's folder.
  /// Errors: not_found, io; invalid_argument, naming the JSON path that is wrong.
  static Result<Manifest> load(const std::string& path);
  /// Parses a text. Relative paths in it are relative to `folder`. Errors: invalid_argument.
  static Result<Manifest> parse(std::string_view json, const std::string& folder);

  /// Parses the manifest of a program that embeds its sources: `source_of` returns the source for a
  /// path of the manifest. Folders are taken as written. Errors: invalid_argument; `source_of`'s.
  using SourceOf = std::function<Result<Source>(const std::string& path)>;
  static Result<Manifest> parse(std::string_view json, const SourceOf& source_of);

  Manifest() = default;
  explicit Manifest(std::vector<ModuleSpec> modules) : modules_(std::move(modules)) {}

  void add(ModuleSpec module) { modules_.push_back(std::move(module)); }
  const std::vector<ModuleSpec>& modules() const& noexcept { return modules_; }
  std::vector<ModuleSpec> modules() && noexcept { return std::move(modules_); }

  /// Returns a copy whose modules have these targets.
  Manifest for_targets(const std::vector<Target>& targets) const&;
  Manifest for_targets(const std::vector<Target>& targets) &&;

 private:
  std::vector<ModuleSpec> modules_;
};

}  // namespace v0
}  // namespace cukiln
