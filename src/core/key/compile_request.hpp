// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/base/hasher.hpp"
#include "core/key/output_kind.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// The virtual folders that NVRTC sees. FileServer maps them to real ones.
inline constexpr const char* kSourceRoot = "/cukiln/src";
inline constexpr const char* kIncludeRoot = "/cukiln/inc";  // + "/0", "/1", …
inline constexpr const char* kToolkitRoot = "/cukiln/toolkit";
inline constexpr const char* kWorkRoot = "/cukiln/work";   // the compiler's working directory
inline constexpr const char* kObjectRoot = "/cukiln/obj";  // + "/0", "/1", …; of a link's objects

/// The standard headers for device code that are part of this library (`key/std_headers.hpp`), in
/// the place of a real folder: as the last one behind kToolkitRoot they are found after the
/// toolkit's own, and no search folder, thus no key, is new.
inline constexpr const char* kStdFolder = "/cukiln/std";

/// The compiler's identity. The digest tells apart two builds that report the same version.
struct Toolchain {
  std::string version;  ///< with the build number: `13.0.88`
  ContentHash content;  ///< digest of libnvrtc and libnvrtc-builtins
};

/// A source text and the virtual path under which NVRTC sees it.
struct VirtualSource {
  VirtualSource(std::string virtual_path, SharedBytes bytes)
      : path(std::move(virtual_path)), text(std::move(bytes)), digest(hash_of(text)) {}
  /// For a text whose digest the caller has already computed.
  VirtualSource(std::string virtual_path, SharedBytes bytes, const ContentHash& known)
      : path(std::move(virtual_path)), text(std::move(bytes)), digest(known) {}

  std::string path;  ///< virtual, `/cukiln/src/amax_gsa.cu`
  SharedBytes text;
  ContentHash digest;  ///< digest of `text`
};

struct CompileOptions {
  /// Exactly as passed to NVRTC, in order: target, standard, defaults, virtual include paths.
  std::vector<std::string> arguments;
  /// Name expressions whose lowered names are wanted; of a module in the canonical spelling
  /// (name_expression.hpp), sorted and unique.
  std::vector<std::string> name_expressions;
};

/// What only a request of NVRTC's own interface has (`src/addons/nvrtc`). Such a compile is the
/// caller's to the letter: real names in place of virtual ones, no argument added, the log as it
/// is.
struct NvrtcProgram {
  OutputKind output = OutputKind::cubin;
  std::string working_folder;  ///< real; relative names are relative to it
};

/// The arguments of NVRTC with which a source becomes a part of a link: LTO-IR, or a cubin whose
/// references may be to other parts.
inline constexpr std::string_view kLtoArgument = "--dlink-time-opt";
inline constexpr std::string_view kRdcArgument = "--relocatable-device-code=true";

/// What only a request that links has. Each source is then a part: compiled by itself with the
/// request's arguments, and linked with the others and the objects. The parts are entries of their
/// own; what they depend on is the dependency set of this one, so that a lookup needs no part.
struct LinkStep {
  std::vector<std::string> options;    ///< of nvJitLink, in order
  std::vector<VirtualSource> objects;  ///< images from files, in order; paths below kObjectRoot
  Toolchain linker;  ///< version of nvJitLink, `13.0`, and the digest of its library
};

/// Everything known before the compile that can change the cubin, and nothing else. A new member
/// does not compile until `canonical()` names it.
///
/// Not part of the key, because it cannot change the cubin: real paths (NVRTC sees virtual ones),
/// file times and inodes (StatCache), the module's name and other labels (EntryLabels), host-only
/// flags (`TranslatedFlags::dropped`), timeouts, limits and the store's location.
struct CompileRequest {
  /// Several sources form one translation unit that includes them in order, unless they are linked.
  std::vector<VirtualSource> sources;
  CompileOptions options;
  Target target;
  Toolchain toolchain;
  std::optional<NvrtcProgram> program = {};
  /// Given to NVRTC as texts. A path is the name by which the header is included, literally. Those
  /// of a program are in its order, those of a module sorted.
  std::vector<VirtualSource> headers = {};
  std::optional<LinkStep> link = {};  ///< never beside `program`

  /// What the compile returns: a cubin, of a part of a link with LTO its LTO-IR, of a program what
  /// that asks for.
  OutputKind output() const;

  /// The canonical encoding, which is hashed, stored, and compared when an entry is loaded. Source
  /// texts are in it as digest and length.
  std::string canonical() const;
  /// Returns the encoding under which the store has NVRTC's refusal of this program.
  std::string failure_canonical() const;
  static RequestDigest digest_of(ByteView canonical) noexcept;

  /// The name expressions as NVRTC gets them: those of a module as addresses
  /// (name_expression.hpp), those of a program as given.
  std::vector<std::string> nvrtc_expressions() const;

  /// The program text and name given to NVRTC: the only source, or a generated file that includes
  /// all of them.
  VirtualSource translation_unit() const;
};

/// A decoded canonical request, for `show` and `explain`.
struct RequestFields {
  struct Source {
    std::string path;
    ContentHash digest;
    std::uint64_t size = 0;
  };
  std::vector<Source> sources;
  CompileOptions options;
  Target target;
  Toolchain toolchain;
  std::optional<NvrtcProgram> program;
  std::vector<Source> headers;
  struct Link {
    std::vector<std::string> options;
    std::vector<Source> objects;
    Toolchain linker;
  };
  std::optional<Link> link;

  /// As CompileRequest::output.
  OutputKind output() const;

  /// Errors: corrupt.
  static Result<RequestFields> parse(ByteView canonical);
};

/// What the entry of a canonical request holds. Decodes no more than it must; `cubin` if it cannot.
OutputKind output_of_request(ByteView canonical);

}  // namespace cukiln
