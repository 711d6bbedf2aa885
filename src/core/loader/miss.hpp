// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cukiln/stats.hpp>

namespace cukiln {

/// The reason of a miss.
struct Miss {
  enum class Why {
    // schema: Why. Written by src/schema/generate.py
    not_stored,  ///< the store has nothing for the request: it is new, or everything was removed
    changed,
    appeared,
    vanished,
    identity_changed,  ///< it was the same file as another path and is not any more, or the reverse
    damaged,
    unvouched,     ///< CUDA's headers are not here, and nothing says that the entry's are genuine
    revoked,       ///< signed by a revoked key
    out_of_scope,  ///< signed by a key that is not trusted for the module
    evicted,       ///< recorded, and evicted or removed since
    // end of schema
  } why = Why::not_stored;
  std::string path;         ///< real path of the header; empty if there is none
  bool of_toolkit = false;  ///< the header is one of CUDA's
  bool of_cukiln = false;   ///< the header is a standard one for device code

  std::string text() const;                        ///< `header changed: include/tile.cuh`
  std::uint64_t Stats::*counter() const noexcept;  ///< of misses of this reason
  /// What to do about a miss whose `text()` is this, so that the next start hits; empty: another
  /// text.
  static std::string_view advice_for(std::string_view reason) noexcept;
  const char* entry() const noexcept;  ///< what an explanation says of it: `evicted or removed`
};

}  // namespace cukiln
