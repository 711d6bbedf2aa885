// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "key/compile_request.hpp"
#include "key/file_server.hpp"
#include "store/cubin_store.hpp"

#include <cukiln/module_spec.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// In the label of an entry's flags, before those that were given and had no effect.
inline constexpr const char* kDroppedMark = " [dropped: ";

/// A ModuleSpec for one target, made ready to be looked up or compiled: the request, and how the
/// virtual paths in it map to this host's files.
struct ModuleRequest {
  CompileRequest request;
  std::string canonical;  ///< of the request
  RequestDigest digest;   ///< of the canonical bytes
  std::string name;
  std::string source;                     ///< the first source's path as given
  std::vector<std::string> kernel_names;  ///< as asked for, in order
  std::vector<std::string> dropped_flags;
  std::vector<std::string> reported_flags;  ///< those of them that the user should hear about
  std::vector<VirtualRoot> roots;
  struct MemoryFile {
    std::string path;  ///< virtual
    SharedBytes text;
    std::optional<ContentHash> digest;  ///< where it is known
  };
  std::vector<MemoryFile> memory_files;
  struct SourceFile {
    std::string path;  ///< real
    FileStamp stamp;
    std::int64_t recorded_ns = 0;  ///< when it was opened
  };
  std::vector<SourceFile> source_files;  ///< of the sources, in order; no path: from memory
  EntryLabels labels;

  /// A fresh view of this host's files: one per look-up or compile.
  std::unique_ptr<FileServer> files(StatCache* stats) const;

  /// The same with the sources hashed anew, where a stamp has told a wrong digest; else nothing.
  /// Asked before a compile: what is stored under a digest must have it.
  std::optional<ModuleRequest> with_true_digests(StatCache& stats) const;
};

/// A path below a folder, this process's where none is given, unless it is absolute already; the
/// file need not exist.
std::string absolute_path(const std::string& path, const std::string& folder = {});

/// What relative paths in a spec's flags are relative to, absolute. Empty: it is this process's
/// folder, and that is gone.
std::string working_folder_of(const ModuleSpec& spec);

/// The targets a spec names itself: its own, else those in its flags. Errors: invalid_argument.
Result<std::vector<Target>> explicit_targets(const ModuleSpec& spec);

/// Texts in memory are borrowed: `spec` outlives the request. The digests of files come from
/// `stats` where their stamps are known; it may be null.
/// Errors: invalid_argument (flags, no source, too large), not_found (a source is not there), io.
Result<ModuleRequest> make_module_request(const ModuleSpec& spec, Target target,
                                          const Toolchain& toolchain,
                                          const std::vector<std::string>& toolkit_folders,
                                          StatCache* stats = nullptr);

}  // namespace cukiln
