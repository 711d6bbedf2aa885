// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/bytes.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// A member of a tar archive (ustar) as images have them: a folder or a regular file of root's,
/// readable by all, without a time.
struct TarMember {
  std::string name;  ///< relative, at most 99 bytes; of a folder with a slash at the end
  std::uint64_t bytes = 0;
  bool is_folder() const noexcept { return name.ends_with('/'); }
};

inline constexpr std::size_t kTarBlock = 512;
inline constexpr std::uint64_t kMaxTarMember = (1ull << 33) - 1;

/// The header of a member. Its content follows, filled up with zeros to whole blocks; two blocks of
/// zeros end the archive.
std::string tar_header(const TarMember& member);
/// The zeros that fill up a content of `bytes` bytes.
std::string tar_padding(std::uint64_t bytes);
/// The member of a header of kTarBlock bytes. Nothing if it is not one that `tar_header` makes.
std::optional<TarMember> parse_tar_header(ByteView header);

}  // namespace cukiln
