// SPDX-License-Identifier: Apache-2.0
#include "core/base/nearest.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace cukiln {

namespace {
/// Every option has the dashes: they do not make two of them alike.
std::string_view without_dashes(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('-'), text.size()));
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const std::size_t size = std::min(a.size(), b.size());
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.begin() + size, b.begin()).first -
                                  a.begin());
}
}  // namespace

std::string nearest(const std::string& given, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t max_distance = std::max<std::size_t>(1, given.size() / 3);
  std::string begins_alike;
  std::size_t max_prefix = std::max<std::size_t>(2, given.size() * 2 / 3);
  for (const std::string& candidate : candidates) {
    const std::size_t prefix = common_prefix(without_dashes(given), without_dashes(candidate));
    if (prefix > max_prefix) {
      begins_alike = candidate;
      max_prefix = prefix;
    }
    std::vector<std::size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= given.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const std::size_t replace = diagonal + (given[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
      }
    }
    if (row.back() <= max_distance && (row.back() < 2 || prefix != 0)) {  // the next: nearer
      best = candidate;
      max_distance = row.back() - (row.back() > 0 ? 1 : 0);
    }
  }
  return best.empty() ? begins_alike : best;
}

}  // namespace cukiln
