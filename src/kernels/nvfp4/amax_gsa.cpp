// SPDX-License-Identifier: Apache-2.0
#include "kernels/checks.hpp"
#include "kernels/shipped_kernel.hpp"

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {
namespace {

constexpr std::uint32_t kThreads = 512;
constexpr std::int64_t kSegmentElements = 1024;  // a warp's at a time
constexpr std::int64_t kWarps = kThreads / 32;
constexpr std::int64_t kMaxBlocks = AmaxGsa::kWorkspaceBytes / 4;

Result<void> check_amax(const float* gsa, const std::uint16_t* input, std::int64_t rows,
                        std::int64_t columns, const std::uint32_t* workspace) noexcept {
  CUKILN_CHECK(kernels::check_shape(rows, columns));
  CUKILN_CHECK(kernels::check_pointer("gsa", gsa, 4));
  CUKILN_CHECK(kernels::check_pointer("workspace", workspace, 4));
  if (rows > 0 && columns > 0) {
    CUKILN_CHECK(kernels::check_pointer("input", input, 2));
  }
  return {};
}

/// For that many pieces of work, of a warp each.
LaunchConfig amax_config(std::int64_t pieces) noexcept {
  LaunchConfig config;
  config.grid.x = kernels::grid_of((pieces + kWarps - 1) / kWarps, kMaxBlocks);
  config.block.x = kThreads;
  config.programmatic_launch = true;  // the kernels wait for what they read
  return config;
}

}  // namespace

Result<AmaxGsa> AmaxGsa::create(KernelLoader& loader) {
  return guarded([&]() -> Result<AmaxGsa> {
    CUKILN_TRY(const Kernel kernel, kernels::shipped_kernel(loader, "amax_gsa", "amax_gsa"));
    CUKILN_TRY(const Kernel by_row, kernels::shipped_kernel(loader, "amax_gsa", "amax_gsa_by_row"));
    AmaxGsa made;
    CUKILN_TRY(made.kernel_, decltype(made.kernel_)::from(kernel));
    CUKILN_TRY(made.by_row_, decltype(made.by_row_)::from(by_row));
    return made;
  });
}

Result<void> AmaxGsa::launch(Stream stream, float* gsa, const std::uint16_t* input,
                             std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                             std::uint32_t* workspace) const noexcept {
  CUKILN_CHECK(check_amax(gsa, input, rows, columns, workspace));
  const std::int64_t segments = row_stride == columns
                                    ? (rows * columns + kSegmentElements - 1) / kSegmentElements
                                    : rows * ((columns + kSegmentElements - 1) / kSegmentElements);
  if (segments > INT32_MAX) {
    return kernels::refuse("[{}, {}] is {} pieces of {} elements; at most {} are expected", rows,
                           columns, segments, kSegmentElements, INT32_MAX);
  }
  return kernel_.launch(stream, amax_config(segments), gsa, input, static_cast<std::uint32_t>(rows),
                        static_cast<std::uint32_t>(columns), row_stride, workspace);
}

Result<void> AmaxGsa::launch_by_row(Stream stream, float* gsa, float* row_amax,
                                    const std::uint16_t* input, std::int64_t rows,
                                    std::int64_t columns, std::int64_t row_stride,
                                    std::uint32_t* workspace) const noexcept {
  CUKILN_CHECK(check_amax(gsa, input, rows, columns, workspace));
  if (rows > 0) {
    CUKILN_CHECK(kernels::check_pointer("row_amax", row_amax, 4));
  }
  return by_row_.launch(stream, amax_config(rows), gsa, row_amax, input,
                        static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns),
                        row_stride, workspace);
}

}  // namespace cukiln::nvfp4
