// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/key/compile_request.hpp"
#include "core/key/file_server.hpp"
#include "core/store/cubin_store.hpp"

#include <cukiln/module_spec.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// In the label of an entry's flags, precedes the flags that had no effect.
inline constexpr const char* kDroppedMark = " [dropped: ";

/// A ModuleSpec for one target, ready to be looked up or compiled: the request, and the mapping of
/// its virtual paths to this host's files.
struct ModuleRequest {
  const ModuleSpec* spec =
      nullptr;  ///< what it was made from; null: a program of NVRTC's interface
  CompileRequest request;
  std::string canonical;  ///< of the request
  RequestDigest digest;   ///< of the canonical bytes
  std::string name;
  std::string source;                     ///< the first source's path as given
  std::vector<std::string> kernel_names;  ///< in the canonical spelling, as requested in order
  std::vector<std::string> dropped_flags;
  std::vector<std::string> reported_flags;  ///< those of them that are reported to the user
  std::vector<VirtualRoot> roots;
  struct MemoryFile {
    std::string path;  ///< virtual
    SharedBytes text;
    std::optional<ContentHash> digest;  ///< if it is known
  };
  std::vector<MemoryFile> memory_files;
  struct SourceFile {
    std::string path;  ///< real
    FileStamp stamp;
    std::int64_t recorded_ns = 0;  ///< when it was opened
  };
  std::vector<SourceFile> source_files;  ///< of the sources, in order; an empty path: in memory
  EntryLabels labels;

  /// Makes CUDA's headers count as recorded (VirtualRoot): for a machine with neither NVRTC nor
  /// headers of CUDA. The user's own files are checked as ever.
  void trust_recorded_toolkit();
  /// Whether a hit of this set relies on that.
  bool trusts_recorded_toolkit(const DependencySet& set) const;

  /// Creates a view of this host's files for one lookup or compile.
  std::unique_ptr<FileServer> files(StatCache* stats) const;

  /// Hashes the sources, and returns a corrected request if a stamp gave a wrong digest; else
  /// nothing. Called before a compile: a result must be stored under its true digest.
  std::optional<ModuleRequest> with_true_digests(StatCache& stats) const;
};

/// Makes a path absolute, relative to `folder` or, if that is empty, to the process's folder. The
/// file need not exist.
std::string absolute_path(const std::string& path, const std::string& folder = {});

/// Returns a spec's names in the canonical spelling (key/name_expression.hpp). `standard` is that
/// of its flags.
std::vector<std::string> canonical_names(const std::vector<std::string>& names,
                                         const std::string& standard);

/// Returns the root of CUDA's headers, behind which the standard headers for device code are
/// searched if `std_shims`.
VirtualRoot toolkit_root(std::vector<std::string> folders, bool std_shims);

/// Returns the absolute folder to which paths in a spec's flags are relative. Empty if it is the
/// process's folder and that does not exist any more.
std::string working_folder_of(const ModuleSpec& spec);

/// Returns how a spec's sources are linked: as it says, or as its flags do. Errors:
/// invalid_argument; not_found (this build cannot link).
Result<LinkMode> link_mode_of(const ModuleSpec& spec);

/// Returns the targets of a spec, or those in its flags; empty if it has none. Errors:
/// invalid_argument.
Result<std::vector<Target>> explicit_targets(const ModuleSpec& spec);

/// Creates the request of a spec for a target. Texts in memory are borrowed, so `spec` must outlive
/// it. Digests of files come from `stats`, which may be null, if it knows their stamps. `linker` is
/// that of a spec that links, else not used.
/// Errors: invalid_argument (flags, no source, too large, objects without a link), not_found (a
/// source or an object is not there), io.
Result<ModuleRequest> make_module_request(const ModuleSpec& spec, Target target,
                                          const Toolchain& toolchain,
                                          const std::vector<std::string>& toolkit_folders,
                                          StatCache* stats = nullptr, const Toolchain& linker = {});

/// Returns the request of one source of a request that links, with those name expressions that it
/// is to resolve. It has the whole module's name, roots and files in memory.
ModuleRequest part_of(const ModuleRequest& whole, std::size_t index,
                      std::vector<std::string> names);

}  // namespace cukiln
