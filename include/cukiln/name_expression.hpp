// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <cukiln/export.hpp>

namespace cukiln {
inline namespace v0 {

/// Returns the canonical spelling of a name expression, which keys, lists and lookups have:
/// `&ns::k< float,4 >` is `ns::k<float, 4>`. One blank follows a comma, separates two words, and
/// precedes a `const` or `volatile` behind `*`, `&`, `>`, `)` or `]`; elsewhere a blank stays only
/// where the tokens around it would become another one. A leading `&` of a plain name is left out.
/// A plain name is the address of what it names; in parentheses it is an expression like any other.
/// Text within quotes is unchanged, and so is an expression with a comment, a backslash outside
/// quotes or a raw string. `old_closers`: `> >` and `< ::` stay, which C++03 reads otherwise if
/// they are joined.
CUKILN_API std::string canonical_name(std::string_view expression, bool old_closers = false);

}  // namespace v0
}  // namespace cukiln
