// SPDX-License-Identifier: Apache-2.0
#include "core/loader/miss.hpp"

#include <cstddef>

namespace cukiln {

namespace {

constexpr struct {
  std::uint64_t Stats::*counter;
  const char* text;
  const char* entry;
  const char* advice;
} kReasons[] = {
    // schema: miss. Written by src/schema/generate.py
    // clang-format off
    {&Stats::misses_new, "not in the store", "damaged", "cukiln preload MANIFEST before the start, or cukiln import BUNDLE"},
    {&Stats::misses_header_changed, "header changed: ", "damaged", "cukiln preload MANIFEST after a change; cukiln explain says what it is"},
    {&Stats::misses_header_appeared, "header appeared: ", "damaged", "cukiln preload MANIFEST after a change; cukiln explain says what it is"},
    {&Stats::misses_header_vanished, "header vanished: ", "damaged", "cukiln preload MANIFEST after a change; cukiln explain says what it is"},
    {&Stats::misses_header_changed, "header file identity changed: ", "damaged", "cukiln preload MANIFEST after a change; cukiln explain says what it is"},
    {&Stats::misses_damaged, "the stored entry was damaged", "damaged", "cukiln verify, and look at the disk"},
    {&Stats::misses_header_vanished, "there are no headers of CUDA here to check the stored entry's with, and the process that compiled it did not sign that they are its own", "of headers of CUDA that cannot be checked here", "install CUDA's headers where it starts"},
    {&Stats::misses_revoked, "the stored entry was signed by a key that was revoked", "signed by a revoked key", "cukiln import BUNDLE, one that a trusted key signed"},
    {&Stats::misses_revoked, "the stored entry was signed by a key that is not trusted for this module", "signed by a key that is not trusted for the module", "cukiln import BUNDLE, one that a trusted key signed"},
    {&Stats::misses_evicted, "the stored entry was evicted", "evicted or removed", "raise max_size, then cukiln preload MANIFEST"},
    // clang-format on
    // end of schema
};

}  // namespace

std::string Miss::text() const { return kReasons[static_cast<std::size_t>(why)].text + path; }

std::uint64_t Stats::*Miss::counter() const noexcept {
  return kReasons[static_cast<std::size_t>(why)].counter;
}

std::string_view Miss::advice_for(std::string_view reason) noexcept {
  for (const auto& each : kReasons) {
    if (reason.starts_with(each.text)) {
      return each.advice;
    }
  }
  return {};
}

const char* Miss::entry() const noexcept { return kReasons[static_cast<std::size_t>(why)].entry; }

}  // namespace cukiln
