// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <cukiln/digest.hpp>
#include <cukiln/target.hpp>

namespace cukiln {
inline namespace v0 {

/// One field in which a request and the nearest stored entry differ. `was` is the entry's value,
/// `now` the request's; empty if it has none.
///
/// Fields: `source`, `target`, `compiler`, `flag`, `name expression`, `header changed`,
/// `header appeared`, `header vanished`, `header file identity changed` (two paths were one file
/// and are not any more, or the reverse), `header file identities changed` (the same between two
/// entries), `entry` (damaged, evicted, or signed by a revoked key). A module that uses the date of
/// the compile has the field `never stored` only; its `now` names the macro and the place. In
/// `cukiln explain` with a remote store, one of which no machine published anything has `not known`
/// only; its `now` says what to do.
struct Difference {
  // schema: Difference. Written by src/schema/generate.py
  std::string field;
  std::string was;  ///< the entry's; empty if it has none
  std::string now;  ///< the request's; empty if it has none
  // end of schema
};

/// The reason why a request hits or misses.
struct Explanation {
  // schema: Explanation. Written by src/schema/generate.py
  bool hit = false;
  std::optional<CacheKey> key;      ///< of the entry that is the hit
  std::optional<CacheKey> nearest;  ///< on a miss: the stored entry with the fewest differences
  std::vector<Difference> differences;
  Target target;  ///< of the request: the wanted one, or the family that is taken for it
  // end of schema
};

}  // namespace v0
}  // namespace cukiln
