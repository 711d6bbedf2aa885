#pragma once

#include <memory>
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
  std::vector<VirtualRoot> roots;
  std::vector<std::pair<std::string, SharedBytes>> memory_files;  ///< virtual path → text
  EntryLabels labels;

  /// A fresh view of this host's files: one per look-up or compile.
  std::unique_ptr<FileServer> files(StatCache* stats) const;
};

/// A path below this process's folder, unless it is absolute already; the file need not exist.
std::string absolute_path(const std::string& path);

/// The targets a spec names itself: its own, else those in its flags. Errors: invalid_argument.
Result<std::vector<Target>> explicit_targets(const ModuleSpec& spec);

/// Texts in memory are borrowed: `spec` outlives the request.
/// Errors: invalid_argument (flags, no source, too large), not_found (a source is not there), io.
Result<ModuleRequest> make_module_request(const ModuleSpec& spec, Target target,
                                          const Toolchain& toolchain,
                                          const std::vector<std::string>& toolkit_folders);

}  // namespace cukiln
