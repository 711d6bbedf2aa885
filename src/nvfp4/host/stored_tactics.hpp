// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/host/gemm_architecture.hpp"

#include <cukiln/device.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4::detail {

inline constexpr std::string_view kTacticsKind = "cukiln.tactics";

/// The tactics that a store has for one family of kernels on one card. Constant once made.
struct StoredTactics {
  std::string key;  ///< of the blob
  std::vector<TunedGemm> rows;
  std::uint32_t num_sms = 0;

  GemmTable table() const noexcept { return {rows.data(), rows.size(), num_sms}; }
};

/// Returns what the store of a loader has, as fixed_blob does. What cannot be used is logged and
/// ignored. `family` (`nvfp4_gemm`) tells apart kernels that compute the same shapes.
Result<std::shared_ptr<const StoredTactics>> load_stored_tactics(
    KernelLoader& loader, const DeviceInfo& device, std::string_view family,
    const GemmArchitecture& architecture);

/// The key of a table: format, family, card, and a digest of the sources of the modules that the
/// architecture's kernels are in.
std::string tactics_key(const DeviceInfo& device, std::string_view family,
                        const GemmArchitecture& architecture);

/// The bytes of the blob: a line for each row, below one that names the columns.
std::string tactics_text(const std::vector<MeasuredGemm>& rows);
/// Errors: invalid_argument, with the line.
Result<std::vector<MeasuredGemm>> parse_tactics(std::string_view text);

/// Checks that rows are in ascending order of n, k, m, and that each names a tactic that the
/// architecture has for every number of tokens that the row serves. Errors: invalid_argument, with
/// the row.
Result<std::vector<TunedGemm>> resolve_tactics(const std::vector<MeasuredGemm>& rows,
                                               const GemmArchitecture& architecture,
                                               std::uint32_t num_sms);

}  // namespace cukiln::nvfp4::detail
