// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln {

/// Calls a sink of the host, for a message or an event. What it throws is dropped with what it was
/// called for, lack of memory included: the operation that reports goes on.
template <class Call>
void call_host(Call&& call) noexcept {
  try {
    call();
  } catch (...) {  // NOLINT(bugprone-empty-catch): see above
  }
}

}  // namespace cukiln
