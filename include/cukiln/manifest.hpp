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

/// A list of modules to make ready before the hot path. JSON, format 1; the schema is
/// `cache/manifests/manifest.schema.json`. A kernel's id is its index in the loaded manifest:
/// modules in order, in each its names in order.
class CUKILN_API Manifest {
 public:
  /// Paths inside are relative to the manifest's folder.
  /// Errors: not_found, io; invalid_argument with the JSON path that is wrong.
  static Result<Manifest> load(const std::string& path);
  static Result<Manifest> parse(std::string_view json, const std::string& folder);

  /// The same for a manifest whose sources are no files, as those inside a program: `source_of`
  /// gives the one of a path as it is written there. Folders stay as they are written.
  using SourceOf = std::function<Result<Source>(const std::string& path)>;
  static Result<Manifest> parse(std::string_view json, const SourceOf& source_of);

  Manifest() = default;
  explicit Manifest(std::vector<ModuleSpec> modules) : modules_(std::move(modules)) {}

  void add(ModuleSpec module) { modules_.push_back(std::move(module)); }
  const std::vector<ModuleSpec>& modules() const& noexcept { return modules_; }
  std::vector<ModuleSpec> modules() && noexcept { return std::move(modules_); }

  /// The same list for other targets.
  Manifest for_targets(const std::vector<Target>& targets) const&;
  Manifest for_targets(const std::vector<Target>& targets) &&;

 private:
  std::vector<ModuleSpec> modules_;
};

}  // namespace v0
}  // namespace cukiln
