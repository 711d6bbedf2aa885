// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/entries.hpp"
#include "core/key/compile_request.hpp"

namespace cukiln::cli {

/// The page that `show` prints about an entry. Keeps references to the summary and the entry, which
/// must outlive it.
class EntryPage {
 public:
  /// Takes the history from `summary`. Errors: corrupt, if the stored request cannot be decoded.
  static Result<EntryPage> make(const EntrySummary& summary, const StoreEntry& entry);

  Json json() const;
  std::string text(const Terminal& terminal) const;

 private:
  EntryPage(const EntrySummary& summary, const StoreEntry& entry, RequestFields fields)
      : summary_(summary), entry_(entry), fields_(std::move(fields)) {}

  std::string inputs(const Terminal& terminal) const;
  std::string dependencies(const Terminal& terminal) const;
  std::string kernels(const Terminal& terminal) const;
  std::string variables(const Terminal& terminal) const;
  std::string history(const Terminal& terminal) const;

  const EntrySummary& summary_;
  const StoreEntry& entry_;
  RequestFields fields_;
};

}  // namespace cukiln::cli
