// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cukiln/result.hpp>

namespace cukiln::cli {

std::string human_bytes(std::uint64_t bytes);  ///< `0 B`, `12.3 KiB`, `1.50 GiB`
std::string human_ms(double milliseconds);     ///< `0.42 ms`, `61 ms`, `1.32 s`, `2 min 5 s`
std::string human_count(std::uint64_t count);  ///< `4,812`
std::string human_age(std::int64_t seconds);   ///< `now`, `3 min`, `5 h`, `12 d`
std::string human_time(std::int64_t unix_s);   ///< `2026-01-31 09:15:02`, local time
/// Returns `1 entry`, `2 entries`.
std::string counted(std::uint64_t count, std::string_view one, std::string_view many);

/// Parses `30d`, `12h`, `2w`, `90s`, `45m` into seconds. Errors: invalid_argument.
Result<std::int64_t> parse_age(std::string_view text);

}  // namespace cukiln::cli
