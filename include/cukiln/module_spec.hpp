// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <cukiln/export.hpp>
#include <cukiln/target.hpp>

namespace cukiln {
inline namespace v0 {

/// A source in a file.
struct SourceFile {
  std::string path;
};

/// A text in memory.
struct SourceText {
  std::string name;  ///< as a path; of a source, only its last component is used
  std::string text;
};

/// A text that is not copied, such as a literal: it must outlive every use of the source.
struct SourceLiteral {
  std::string name;  ///< as in SourceText
  std::string_view text;
  /// The BLAKE2b-256 of the text in 32 bytes, computed by the build, so that a lookup need not hash
  /// the text. It is trusted. Ignored if it has another length. Must live as long as the text.
  std::string_view digest = {};
};

/// A source or header of a module.
using Source = std::variant<SourceFile, SourceText, SourceLiteral>;

/// Returns a file's path, or a text's name.
inline const std::string& name_of(const Source& source) noexcept {
  const auto* const file = std::get_if<SourceFile>(&source);
  const auto* const text = std::get_if<SourceText>(&source);
  return file != nullptr   ? file->path
         : text != nullptr ? text->name
                           : std::get<SourceLiteral>(source).name;
}

/// Returns a text in memory; nothing for a file.
inline std::optional<std::string_view> text_of(const Source& source) noexcept {
  if (const auto* const text = std::get_if<SourceText>(&source)) return text->text;
  if (const auto* const text = std::get_if<SourceLiteral>(&source)) return text->text;
  return std::nullopt;
}

/// Whether the sources of a module are linked. `rdc`: each is compiled to relocatable machine code,
/// as by `nvcc -rdc=true`. `lto`: each is compiled to LTO-IR, and machine code is made of all of it
/// together, as by `nvcc -dlto`; the link takes longer, and calls between sources cost nothing.
enum class LinkMode { none, rdc, lto };

/// A module to compile: sources, options and targets. Several sources are compiled as one
/// translation unit, in order. Texts are bytes: any encoding, CRLF, no final newline needed.
///
/// With `link` each source is compiled by itself instead, with the same options, and all are linked
/// with the objects by nvJitLink, which has to be installed (nvidia-nvjitlink, or the toolkit).
/// Each compiled source is an entry of the store, so that an edit compiles what it changed and
/// links. A name expression is resolved by a source that mentions its last identifier, else by the
/// first that can; kernels and variables of objects are named by their symbols.
///
/// Order of options: `include`, `define`, `flags`, each in its own order, as on NVRTC's command
/// line: the last of `-D X` and `-U X` wins, and the first folder that has a header wins.
/// `-isystem` folders come after those of `-I`, as in nvcc. To get another order, write all options
/// in `flags`.
///
/// A relative `-include` is searched in `working_folder`, then in the folders of `-I`.
///
/// A named header is what NVRTC's own interface calls one: `#include <name>`, `#include "name"` and
/// `-include name` find it before any folder, if they spell its name as it is here. It lies in no
/// folder, so an include in quotes within it is searched by name, then in the folders of `-I`.
///
/// Limits: 64 MiB for each source and header, 256 MiB for each object, 512 MiB for all that is
/// linked.
struct ModuleSpec {
  // schema: ModuleSpec. Written by src/schema/generate.py
  std::string name;  ///< for logs and lookups; not part of the key
  std::vector<Source> sources;
  /// in memory, included as if they lay beside the sources; the name is relative to the first
  /// source's folder
  std::vector<Source> headers;
  std::vector<std::string> include;           ///< folders, searched in order (`-I`)
  std::map<std::string, std::string> define;  ///< `-D`, by name; an empty value defines it as 1
  std::vector<std::string> flags;  ///< NVRTC's, or nvcc's spellings (table: src/cli/README.md)
  /// kernels, and variables (`Module::global`): `extern "C"` names or name expressions, in any
  /// spelling: ` k<float,4>` and `&k<float, 4>` are one name; empty: every `extern "C"` kernel of
  /// the cubin
  std::vector<std::string> names;
  /// empty: from the flags (`-arch`, `-gencode`), else the visible devices', else sm_100a
  std::vector<Target> targets;
  /// the folder to which paths in `flags` (`-include`, `-I`) are relative; empty: the process's
  /// folder at the call. Not part of the key
  std::string working_folder;
  /// in memory, under the name by which they are included: see above; of each name one
  std::vector<Source> named_headers;
  /// serve `<cstdint>`, `<type_traits>`, … in versions for device code, where no folder of the
  /// search has them
  bool std_shims = true;
  LinkMode link = LinkMode::none;  ///< `none`: from the flags (`-rdc=true`, `-dc`, `-dlto`)
  /// files to link with the sources, in order: relocatable cubins, fatbins, host objects (`.o`) and
  /// libraries (`.a`) with device code, PTX; with LTO, LTO-IR too. Their bytes are part of the key
  std::vector<std::string> objects;
  // end of schema
};

}  // namespace v0
}  // namespace cukiln
