// SPDX-License-Identifier: Apache-2.0
#include "kernels/nvfp4/quantize_checks.hpp"
#include "kernels/shipped_kernel.hpp"

namespace cukiln::nvfp4 {
namespace {

constexpr std::uint32_t kThreads = 512;
constexpr std::int64_t kMaxBlocks = 2 * kMultiprocessors;  // what a device holds
static_assert(kMaxBlocks * 4 <= AmaxGsa::kWorkspaceBytes, "a thread block has no word");

}  // namespace

Result<SwiGluAmaxGsa> SwiGluAmaxGsa::create(KernelLoader& loader) {
  return guarded([&]() -> Result<SwiGluAmaxGsa> {
    CUKILN_TRY(const Kernel kernel,
               kernels::shipped_kernel(loader, "swiglu_amax_gsa", "swiglu_amax_gsa"));
    SwiGluAmaxGsa made;
    CUKILN_TRY(made.kernel_, decltype(made.kernel_)::from(kernel));
    return made;
  });
}

Result<void> SwiGluAmaxGsa::launch(Stream stream, float* gsa, const std::uint16_t* input,
                                   std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                                   GateUpLayout layout, const SwiGlu& activation,
                                   std::uint32_t* workspace) const noexcept {
  CUKILN_CHECK(check_columns(columns));
  CUKILN_CHECK(kernels::check_shape(rows, 2 * columns));
  CUKILN_CHECK(check_swiglu(activation));
  CUKILN_CHECK(kernels::check_pointer("gsa", gsa, 4));
  CUKILN_CHECK(kernels::check_pointer("workspace", workspace, 4));
  const std::int64_t blocks = rows * (columns / 16);
  if (blocks > 0) {
    CUKILN_CHECK(kernels::check_pointer("input", input, 16));
    CUKILN_CHECK(check_row_stride(row_stride));
  }
  if (blocks > INT32_MAX) {
    return kernels::refuse("[{}, {}] has {} blocks of 16; fewer than 2147483648 are expected", rows,
                           columns, blocks);
  }
  LaunchConfig config;
  config.grid.x = kernels::grid_of((blocks + kThreads - 1) / kThreads, kMaxBlocks);
  config.block.x = kThreads;
  config.programmatic_launch = true;  // the kernel waits for what it reads
  return kernel_.launch(stream, config, gsa, input, static_cast<std::uint32_t>(rows),
                        static_cast<std::uint32_t>(columns), row_stride,
                        static_cast<std::uint32_t>(layout), activation.limit, activation.alpha,
                        activation.beta, workspace);
}

}  // namespace cukiln::nvfp4
