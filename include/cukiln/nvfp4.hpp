// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/manifest.hpp>
#include <cukiln/result.hpp>

/// NVFP4 quantisation of bf16 matrices, and products of them: libcukiln_nvfp4, `cukiln::nvfp4` in
/// CMake, `cukiln_nvfp4` in pkg-config. Formulas, layouts and the NaN rule:
/// `kernels_src/README.md`.
///
/// Common to every class here. `create` compiles or finds the kernel, or takes what `preload` made
/// ready, and is not for the hot path. `launch` queues one kernel on `stream` in the calling
/// thread's current context and returns; it takes no lock, allocates nothing unless it fails, works
/// inside a graph capture, and may be called from any thread at once. Handles are copied freely and
/// live as long as their KernelLoader. Pointers are device pointers; bf16 values are their 16 bits.
/// Strides count elements. Errors of `launch`: invalid_argument, with the given and the expected
/// value; driver. Source: TransformerEngine's NVFP4 recipe, exact formula.
namespace cukiln::nvfp4 {
inline namespace v0 {

/// The kernels that come with cukiln, those of <cukiln/sampling.hpp> too, their sources inside this
/// library. Ids stay: a module that is added comes last.
CUKILN_API Manifest manifest();

/// `loader.preload(manifest(), …)`.
CUKILN_API Result<PreloadReport> preload_all(KernelLoader& loader,
                                             const PreloadOptions& options = {},
                                             const Progress& progress = {});

/// Bytes of the packed E2M1 codes of [rows, columns]: two codes a byte, low nibble = even column.
constexpr std::size_t codes_bytes(std::int64_t rows, std::int64_t columns) noexcept {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) / 2;
}

/// Bytes of the UE4M3 block scales of [rows, columns]: atoms of 128 rows by 4 blocks of 16 columns.
constexpr std::size_t scales_bytes(std::int64_t rows, std::int64_t columns) noexcept {
  return (static_cast<std::size_t>(rows) + 127) / 128 *
         ((static_cast<std::size_t>(columns) + 63) / 64) * 512;
}

/// Where the scale byte of row `row`, columns 16 · `block` to 16 · `block` + 15 lies.
constexpr std::size_t scale_offset(std::size_t row, std::size_t block,
                                   std::size_t columns) noexcept {
  return (row / 128 * ((columns + 63) / 64) + block / 4) * 512 + row % 32 * 16 + row / 32 % 4 * 4 +
         block % 4;
}

/// The global scale of a matrix: gsa = {2688 / amax, amax / 2688}, both 1 when amax is 0.
///
/// A weight is quantised once with its own scale, with nothing to wait for in between; gsa stays
/// with its codes and block scales, the product needs it:
///
///     amax.launch(stream, gsa, weight, rows, columns, workspace);
///     quantize.launch(stream, codes, scales, weight, gsa, rows, columns);
///
/// Shapes: input bf16 [rows, columns], any stride and alignment; gsa two floats.
/// Workspace: `kWorkspaceBytes`, zeroed once; every launch leaves it zero. One a stream: launches
/// that share one and overlap may never end.
/// NaN: any NaN makes gsa NaN; an infinity without a NaN makes it {1, 1}.
class CUKILN_API AmaxGsa {
 public:
  static constexpr std::size_t kWorkspaceBytes = 4224;  ///< a word for each thread block

  /// Errors: those of `KernelLoader::get`.
  static Result<AmaxGsa> create(KernelLoader& loader);

  Result<void> launch(Stream stream, float* gsa, const std::uint16_t* input, std::int64_t rows,
                      std::int64_t columns, std::int64_t row_stride,
                      std::uint32_t* workspace) const noexcept;
  /// Rows without gaps.
  Result<void> launch(Stream stream, float* gsa, const std::uint16_t* input, std::int64_t rows,
                      std::int64_t columns, std::uint32_t* workspace) const noexcept {
    return launch(stream, gsa, input, rows, columns, columns, workspace);
  }
  /// The same, and row_amax [rows]: max |x| of each row; NaN where the row has one, 0 where it is
  /// empty.
  Result<void> launch_by_row(Stream stream, float* gsa, float* row_amax, const std::uint16_t* input,
                             std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                             std::uint32_t* workspace) const noexcept;

 private:
  TypedKernel<float*, const std::uint16_t*, std::uint32_t, std::uint32_t, std::int64_t,
              std::uint32_t*>
      kernel_;
  TypedKernel<float*, float*, const std::uint16_t*, std::uint32_t, std::uint32_t, std::int64_t,
              std::uint32_t*>
      by_row_;
};

/// How a block's scale byte and its codes follow from the global scale.
enum class Formula {
  exact,  ///< TransformerEngine's: correctly rounded divisions
  fast,   ///< vLLM's: the hardware's approximate reciprocals, for the same bytes as its kernels
};

/// bf16 → codes and block scales, with the global scale that is in a device buffer.
///
/// Shapes: input bf16 [rows, columns]; codes `codes_bytes`, scales `scales_bytes`, both dense,
/// every byte written. gsa two floats {encode, decode}, as `AmaxGsa` writes them. Alignment: rows
/// of input 16 bytes (so row_stride is a multiple of 8), codes 8, gsa 4. Limits: columns a multiple
/// of 16. NaN: a block with a NaN, or every block when gsa is NaN, gets the scale NaN and codes 0.
class CUKILN_API Quantize {
 public:
  /// Errors: those of `KernelLoader::get`.
  static Result<Quantize> create(KernelLoader& loader, Formula formula = Formula::exact);

  Result<void> launch(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                      const std::uint16_t* input, const float* gsa, std::int64_t rows,
                      std::int64_t columns, std::int64_t row_stride) const noexcept;
  /// Rows without gaps.
  Result<void> launch(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                      const std::uint16_t* input, const float* gsa, std::int64_t rows,
                      std::int64_t columns) const noexcept {
    return launch(stream, codes, scales, input, gsa, rows, columns, columns);
  }

 private:
  TypedKernel<std::uint8_t*, std::uint8_t*, const std::uint16_t*, const float*, std::uint32_t,
              std::uint32_t, std::int64_t>
      kernel_;
};

/// The same with a global scale that the host knows: `encode_scale` = 2688 / amax, positive and
/// finite.
class CUKILN_API QuantizeStatic {
 public:
  /// Errors: those of `KernelLoader::get`.
  static Result<QuantizeStatic> create(KernelLoader& loader);

  Result<void> launch(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                      const std::uint16_t* input, float encode_scale, std::int64_t rows,
                      std::int64_t columns, std::int64_t row_stride) const noexcept;
  /// Rows without gaps.
  Result<void> launch(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                      const std::uint16_t* input, float encode_scale, std::int64_t rows,
                      std::int64_t columns) const noexcept {
    return launch(stream, codes, scales, input, encode_scale, rows, columns, columns);
  }

 private:
  TypedKernel<std::uint8_t*, std::uint8_t*, const std::uint16_t*, float, std::uint32_t,
              std::uint32_t, std::int64_t>
      kernel_;
};

/// How gate and up lie in a row of 2 · columns. The numbers are the kernel's.
enum class GateUpLayout : std::uint32_t {
  halves = 0,  ///< all of gate, then all of up
  pairs = 1,   ///< gate and up alternate, gate first
};

/// g = min(gate, limit), u = clamp(up, −limit, limit), y = g · sigmoid(alpha · g) · (u + beta), in
/// float, rounded to bf16 once. The defaults are plain SwiGLU; {7, 1.702, 1} is gpt-oss, {10, 1, 0}
/// DeepSeek.
struct SwiGlu {
  float limit = __builtin_huge_valf();  ///< > 0
  float alpha = 1.0f;
  float beta = 0.0f;
};

/// A gate and an up matrix, in one input, → codes and block scales.
///
/// Shapes: input bf16 [rows, 2 · columns], `columns` of each matrix. `launch` quantises
/// [gate | up], 2 · columns wide; `launch_swiglu` quantises y, columns wide. gsa is the scale of
/// what is quantised. The rest as in `Quantize`.
class CUKILN_API DeinterleaveQuantize {
 public:
  /// Errors: those of `KernelLoader::get`.
  static Result<DeinterleaveQuantize> create(KernelLoader& loader,
                                             Formula formula = Formula::exact);

  Result<void> launch(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                      const std::uint16_t* input, const float* gsa, std::int64_t rows,
                      std::int64_t columns, std::int64_t row_stride,
                      GateUpLayout layout) const noexcept;
  Result<void> launch_swiglu(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                             const std::uint16_t* input, const float* gsa, std::int64_t rows,
                             std::int64_t columns, std::int64_t row_stride, GateUpLayout layout,
                             const SwiGlu& activation) const noexcept;

 private:
  using Plain = TypedKernel<std::uint8_t*, std::uint8_t*, const std::uint16_t*, const float*,
                            std::uint32_t, std::uint32_t, std::int64_t>;
  Plain halves_;
  Plain pairs_;
  TypedKernel<std::uint8_t*, std::uint8_t*, const std::uint16_t*, const float*, std::uint32_t,
              std::uint32_t, std::int64_t, std::uint32_t, float, float, float>
      swiglu_;
};

/// The global scale of y = SwiGLU(gate, up), of the very values that
/// `DeinterleaveQuantize::launch_swiglu` quantises from the same input: after it, on the same
/// stream, an activation is quantised with a scale of its own, and y is written nowhere.
///
/// Shapes and alignment as in `DeinterleaveQuantize`; gsa, workspace and NaN as in `AmaxGsa`.
class CUKILN_API SwiGluAmaxGsa {
 public:
  /// Errors: those of `KernelLoader::get`.
  static Result<SwiGluAmaxGsa> create(KernelLoader& loader);

  Result<void> launch(Stream stream, float* gsa, const std::uint16_t* input, std::int64_t rows,
                      std::int64_t columns, std::int64_t row_stride, GateUpLayout layout,
                      const SwiGlu& activation, std::uint32_t* workspace) const noexcept;

 private:
  TypedKernel<float*, const std::uint16_t*, std::uint32_t, std::uint32_t, std::int64_t,
              std::uint32_t, float, float, float, std::uint32_t*>
      kernel_;
};

/// A quantised matrix in device memory: what `Quantize` wrote, and its global scale.
struct Matrix {
  const std::uint8_t* codes = nullptr;   ///< `codes_bytes`, 16-byte aligned
  const std::uint8_t* scales = nullptr;  ///< `scales_bytes`, 16-byte aligned
  const float* gsa = nullptr;            ///< {encode, decode}
};

struct GemmOptions {
  /// B was complete before the kernel that precedes this one in the stream began, as weights are:
  /// while that one ends, this one may fetch B. Everything else waits.
  bool constant_b = false;
  /// Which of the `Gemm::tactics(m, n, k)` ways to make the product: for a host that tunes its own
  /// shapes. -1: the one that was measured to be the fastest, or else should be. Ways that split K
  /// differently may round differently.
  int tactic = -1;
};

namespace detail {
struct GemmArchitecture;  // the kernels of one architecture, and how they are launched
}

/// D = alpha · A · Bᵀ + bias: A [m, k], B [n, k] quantised, D bf16 [m, n] dense, bias bf16 [n] or
/// null. alpha is the product of the two decode scales, read on the device. Products are exact,
/// sums in float, one rounding; the same inputs give the same bytes.
///
/// Limits: k a multiple of 32, n of 8; any m, of which 0 launches nothing. Alignment: D and bias 16
/// bytes. NaN: a NaN scale makes the row of its A, or the column of its B, NaN.
/// Workspace: `workspace_bytes`, 16-byte aligned, zeroed once; every launch leaves it ready for the
/// next. One a stream. `launch` queues at most two kernels; it synchronises nothing and can be
/// captured.
class CUKILN_API Gemm {
 public:
  /// For the architecture of the first visible device. Errors: those of `KernelLoader::get`;
  /// incompatible (a device below 9.0).
  static Result<Gemm> create(KernelLoader& loader);

  /// What `launch` needs for this shape, and no less for any smaller m. May be 0.
  std::size_t workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept;

  /// The number of ways this device has for a shape, see `GemmOptions::tactic`.
  int tactics(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept;

  Result<void> launch(Stream stream, std::uint16_t* output, const Matrix& a, const Matrix& b,
                      const std::uint16_t* bias, std::int64_t m, std::int64_t n, std::int64_t k,
                      void* workspace, const GemmOptions& options = {}) const noexcept;

 private:
  static constexpr std::size_t kMaxKernels = 24;
  const detail::GemmArchitecture* architecture_ = nullptr;
  std::uint32_t multiprocessors_ = 0;
  Kernel kernels_[kMaxKernels];
};

/// Groups of rows, each multiplied by a matrix of its own, in one launch: what a mixture of experts
/// does with its tokens once they are sorted.
///
///     output[i] = alpha · A[i] · B[e]ᵀ + bias[e], where e = experts[i / 128]
///
/// Shapes: A [rows, k], B [experts · n, k], one expert's after the other, output bf16 [rows, n],
/// bias bf16 [experts, n] or null. `row_experts` int32 [ceil(rows / 128)], on the device: where it
/// is negative, the 128 rows are neither computed nor written. alpha is the product of the decode
/// scales: b.gsa has {encode, decode} for each expert; a.gsa too if `a_scale_per_expert`, else
/// once. Limits: n a multiple of 128, k of 32. Devices of capability 10.0 and 10.3. Rounding, NaN,
/// alignment and asynchrony as in `Gemm`; there is no workspace.
class CUKILN_API GroupedGemm {
 public:
  struct Shape {
    std::int64_t rows = 0;  ///< 0 launches nothing
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t experts = 0;
    bool a_scale_per_expert = false;
  };

  /// Errors: those of `KernelLoader::get`; incompatible (another first visible device).
  static Result<GroupedGemm> create(KernelLoader& loader);

  /// 100 for compute capability 10.0.
  static constexpr bool runs_on(int capability) noexcept {
    return capability == 100 || capability == 103;
  }

  Result<void> launch(Stream stream, std::uint16_t* output, const Matrix& a, const Matrix& b,
                      const std::uint16_t* bias, const std::int32_t* row_experts,
                      const Shape& shape) const noexcept;

 private:
  std::uint32_t multiprocessors_ = 0;
  Kernel kernels_[2];  // tiles of 128 and of 256 columns
};

}  // namespace v0
}  // namespace cukiln::nvfp4
