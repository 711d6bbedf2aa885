#include "kernels/checks.hpp"
#include "kernels/shipped_kernel.hpp"

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {
namespace {

constexpr std::uint32_t kThreads = 512;
constexpr std::int64_t kSegmentElements = 1024;  // a warp's at a time
constexpr std::int64_t kWarps = kThreads / 32;
constexpr std::int64_t kMaxBlocks = 528;  // four for each of an H200's multiprocessors

}  // namespace

Result<AmaxGsa> AmaxGsa::create(KernelLoader& loader) {
  return guarded([&]() -> Result<AmaxGsa> {
    CUKILN_TRY(const Kernel kernel, kernels::shipped_kernel(loader, "amax_gsa", "amax_gsa"));
    AmaxGsa made;
    CUKILN_TRY(made.kernel_, decltype(made.kernel_)::from(kernel));
    return made;
  });
}

Result<void> AmaxGsa::launch(Stream stream, float* gsa, const std::uint16_t* input,
                             std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                             std::uint32_t* workspace) const noexcept {
  CUKILN_CHECK(kernels::check_shape(rows, columns));
  CUKILN_CHECK(kernels::check_pointer("gsa", gsa, 4));
  CUKILN_CHECK(kernels::check_pointer("workspace", workspace, 4));
  const bool empty = rows == 0 || columns == 0;
  if (!empty) {
    CUKILN_CHECK(kernels::check_pointer("input", input, 2));
  }
  const std::int64_t segments = row_stride == columns
                                    ? (rows * columns + kSegmentElements - 1) / kSegmentElements
                                    : rows * ((columns + kSegmentElements - 1) / kSegmentElements);
  if (segments > UINT32_MAX) {
    return kernels::refuse("[{}, {}] is {} pieces of {} elements; at most {} are expected", rows,
                           columns, segments, kSegmentElements, UINT32_MAX);
  }
  LaunchConfig config;
  config.grid.x = kernels::grid_of((segments + kWarps - 1) / kWarps, kMaxBlocks);
  config.block.x = kThreads;
  return kernel_.launch(stream, config, gsa, input, static_cast<std::uint32_t>(rows),
                        static_cast<std::uint32_t>(columns), row_stride, workspace);
}

}  // namespace cukiln::nvfp4
