// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/context.hpp"
#include "core/base/bytes.hpp"
#include "core/key/compile_request.hpp"

#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln::cli {

/// The code of an entry, beside what the entry says itself. Where there is none, the page shows the
/// error.
struct EntryCode {
  struct Text {
    std::string path;  ///< in line tables
    Result<std::string> text;
  };
  std::vector<Text> sources;  ///< then headers
  Result<std::string> ptx, sass;
};

/// Returns an HTML document that shows an entry and loads nothing: `entry` is EntryPage::json.
/// Every text of it is data, which the page's script shows as text. The same arguments give the
/// same bytes.
std::string html_page(const Json& entry, Target target, ByteView cubin, const EntryCode& code);

}  // namespace cukiln::cli
