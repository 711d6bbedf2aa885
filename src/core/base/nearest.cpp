// SPDX-License-Identifier: Apache-2.0
#include "core/base/nearest.hpp"

#include <algorithm>
#include <numeric>

namespace cukiln {

std::string nearest(const std::string& given, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t max_distance = std::max<std::size_t>(1, given.size() / 3);
  for (const std::string& candidate : candidates) {
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
    if (row.back() <= max_distance) {  // the next one must be nearer
      best = candidate;
      max_distance = row.back() - (row.back() > 0 ? 1 : 0);
    }
  }
  return best;
}

}  // namespace cukiln
