// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <cukiln/export.hpp>
#include <cukiln/target.hpp>

namespace cukiln {
inline namespace v0 {

/// One source of a module: a file on disk, or text in memory.
struct Source {
  std::string path;  ///< real path; for text in memory only its last component is used
  std::string text;  ///< the text, when `in_memory`
  bool in_memory = false;
  std::string_view constant;  ///< or this, when it is there as long as the program: not copied
  /// BLAKE2b-256 of `constant`, 32 bytes, where the build made it: then a lookup does not hash the
  /// text, and believes this. Any other length: it is hashed. Lives as long as `constant`.
  std::string_view constant_digest;

  std::string_view content() const noexcept { return constant.data() != nullptr ? constant : text; }

  static Source file(std::string path) { return {std::move(path), {}, false, {}, {}}; }
  static Source memory(std::string name, std::string text) {
    return {std::move(name), std::move(text), true, {}, {}};
  }
  static Source literal(std::string name, std::string_view text, std::string_view digest = {}) {
    return {std::move(name), {}, true, text, digest};
  }
};

/// What a caller asks to have compiled: one module, for one or more targets. Bytes are bytes: any
/// encoding, CRLF, no final newline.
///
/// Several sources are compiled as one translation unit, in order.
///
/// Order: `-D`, `-U`, `-I` and `-include` act as on NVRTC's command line, where the last of `-D X`
/// and `-U X` wins and the first folder that has a header wins. That line is `include`, `define`,
/// `flags`, each in its own order (`-isystem` after every `-I`, as with nvcc); whoever needs
/// another order writes all of it in `flags`.
///
/// A relative `-include` is looked for in `working_folder` and then in the folders of `-I`; an
/// absolute one is read where it is.
///
/// Limits: a source of at most 64 MiB.
struct ModuleSpec {
  std::string name;  ///< for people, logs and look-ups; not part of the key
  std::vector<Source> sources;
  std::vector<Source> headers;       ///< in memory, found as if they lay beside the sources;
                                     ///< `path` is relative to the sources' folder
  std::vector<std::string> include;  ///< folders, searched in order (`-I`)
  std::map<std::string, std::string> define;  ///< `-D`, by name; an empty value defines it as 1
  std::vector<std::string> flags;  ///< NVRTC's, or nvcc's spellings (table: src/cli/README.md)
  std::vector<std::string> names;  ///< kernels: `extern "C"` names or name expressions;
                                   ///< empty: every `extern "C"` kernel of the cubin
  std::vector<Target> targets;     ///< empty: from the flags (`-arch`, `-gencode`), else
                                   ///< the visible devices', else sm_100a
  std::string working_folder;  ///< what relative paths in `flags` (`-include`, `-I`) are relative
                               ///< to; empty: this process's folder at the call. Not part of the
                               ///< key
};

}  // namespace v0
}  // namespace cukiln
