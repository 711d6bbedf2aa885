// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/hasher.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// Raised whenever the canonical encoding, the virtual layout or what the worker adds changes.
inline constexpr std::uint32_t kKeyFormat = 2;

/// The virtual folders that a compile sees (see file_server.hpp).
inline constexpr const char* kSourceRoot = "/cukiln/src";
inline constexpr const char* kIncludeRoot = "/cukiln/inc";  // + "/0", "/1", …
inline constexpr const char* kToolkitRoot = "/cukiln/toolkit";
inline constexpr const char* kWorkRoot = "/cukiln/work";  // where the compiler seems to run

/// The compiler's identity: `nvrtc 13.0.88`, build included, and a digest of its libraries' bytes.
struct Toolchain {
  std::string version;  ///< `13.0.88`
  ContentHash content;  ///< of libnvrtc and libnvrtc-builtins
};

struct VirtualSource {
  VirtualSource(std::string virtual_path, SharedBytes bytes)
      : path(std::move(virtual_path)), text(std::move(bytes)), digest(hash_of(text)) {}
  /// `known` is the hash of `bytes`.
  VirtualSource(std::string virtual_path, SharedBytes bytes, const ContentHash& known)
      : path(std::move(virtual_path)), text(std::move(bytes)), digest(known) {}

  std::string path;  ///< virtual, `/cukiln/src/amax_gsa.cu`
  SharedBytes text;
  ContentHash digest;  ///< of the text
};

/// Everything in order: the arguments exactly as NVRTC gets them (target, standard, the defaults,
/// the virtual include paths), and the expressions whose lowered names are wanted (sorted, unique).
struct CompileOptions {
  std::vector<std::string> arguments;
  std::vector<std::string> name_expressions;
};

/// Everything known beforehand that can change the cubin, and nothing else. A new member does not
/// compile until `canonical()` names it.
struct CompileRequest {
  std::vector<VirtualSource>
      sources;  ///< several: one translation unit that includes them in order
  CompileOptions options;
  Target target;
  Toolchain toolchain;

  /// The canonical bytes, source texts as digest and length. Stored, and compared on load.
  std::string canonical() const;
  static RequestDigest digest_of(ByteView canonical) noexcept;

  /// The text and the virtual name that NVRTC is given: the source itself, or includes of several.
  VirtualSource translation_unit() const;
};

/// For `show` and `explain`: a canonical request taken apart again.
struct RequestFields {
  struct Source {
    std::string path;
    ContentHash digest;
    std::uint64_t size = 0;
  };
  std::uint32_t key_format = 0;
  std::vector<Source> sources;
  CompileOptions options;
  Target target;
  Toolchain toolchain;

  static Result<RequestFields> parse(ByteView canonical);
};

}  // namespace cukiln
