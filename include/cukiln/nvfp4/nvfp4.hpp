// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/manifest.hpp>
#include <cukiln/nvfp4/tensor_view.hpp>
#include <cukiln/result.hpp>
#include <cukiln/store.hpp>

/// NVFP4 quantisation of bf16 matrices, and their GEMMs: libcukiln_nvfp4, `cukiln::nvfp4` in CMake,
/// `cukiln_nvfp4` in pkg-config. Formulas, layouts and the NaN rule: `kernels_src/README.md`.
///
///     auto compute_scale = nvfp4::ComputeGlobalScale::create(loader, device);
///     auto quantize = nvfp4::Quantize::create(loader, device);
///     auto gemm = nvfp4::Gemm::create(loader, device);
///     nvfp4::MutableQuantizedMatrix w = {data, scales, global_scale, n, k};
///     compute_scale->launch(stream, global_scale, weight, workspace);
///     quantize->launch(stream, w, weight);
///     gemm->launch(stream, output, x, w, workspace);
///
/// Rules for every launcher, which `create` makes and `launch` runs:
///
/// * `create(loader, device)` takes the kernels that `preload` made ready, or compiles and loads
///   them. `device` is an ordinal of `KernelLoader::devices()`. It has no default: cubin, tiles and
///   grids depend on it, and only the caller knows where it will launch. Not for the hot path.
///   Errors: those of `KernelLoader::get`; invalid_argument (no such device, or the kernels were
///   loaded on others only); incompatible (the device cannot run the kernel).
/// * `launch` queues kernels on `stream` and returns. It takes no lock, allocates nothing unless it
///   fails, and can be captured in a graph. The calling thread's current context must be one of
///   `device`; every launch checks that (one `cuCtxGetDevice`, which reads a thread-local), because
///   a pointer of another device would only fail later, as an illegal access.
///   Errors: invalid_argument, with the given and the expected value; driver.
/// * Shapes of operands must agree, and are checked. Pointers are device pointers; nothing checks
///   that the memory behind them is large enough. bf16 values are their 16 bits.
/// * Launchers are handles: copied freely, valid as long as their KernelLoader, used by any number
///   of threads concurrently. One that was not created is empty: `launch` refuses, sizes are 0.
namespace cukiln::nvfp4 {
inline namespace v0 {

/// The kernels that come with cukiln, those of <cukiln/nvfp4/sampling.hpp> too, their sources
/// inside this library. Ids stay: a module that is added comes last.
CUKILN_API Manifest manifest();

/// The text of a source or header that comes with cukiln, by its file's name or its path
/// (`sampling/sampler.cu`), or of their manifest, `shipped.json`. Null: there is none.
CUKILN_API std::string_view shipped_text(std::string_view file) noexcept;

/// Names of modules of `manifest()`, literals: all whose kernels launches for 1 to so many tokens
/// may use, on any card of a compute capability (90), with any tactics that a store keeps. After
/// they are preloaded and the loader is sealed, a launch for more tokens may be an error, `sealed`.
using ModuleNames = std::set<std::string_view>;

/// `loader.preload(manifest(), …)`.
CUKILN_API Result<PreloadReport> preload_all(KernelLoader& loader,
                                             const PreloadOptions& options = {},
                                             const Progress& progress = {});

/// Bytes of the packed E2M1 data of [rows, columns]: two values a byte, low nibble = even column.
constexpr std::size_t data_bytes(std::int64_t rows, std::int64_t columns) noexcept {
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

/// The largest block scale, 448, times the largest element, 6: the value that a global scale maps
/// amax to, unless a smaller divisor is given.
inline constexpr float kMaxDivisor = 2688.0f;
/// From here on decode = amax / divisor is finite for every finite amax.
inline constexpr float kMinDivisor = 1.0f;

/// The scale of a whole matrix: encode = divisor / amax, decode = amax / divisor; both 1 when amax
/// is 0. Lies in device memory, 4-byte aligned, except where a function takes it by value.
struct GlobalScale {
  float encode = 1.0f;
  float decode = 1.0f;
};

/// A quantised matrix [rows, columns] in device memory, as `Quantize` writes it.
struct QuantizedMatrix {
  const std::uint8_t* data = nullptr;         ///< packed, `data_bytes`
  const std::uint8_t* scales = nullptr;       ///< of blocks of 16 columns, `scales_bytes`
  const GlobalScale* global_scale = nullptr;  ///< of the matrix
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< in values, of which a byte of `data` holds two
};

/// A quantised matrix that a launch writes: data and block scales, every byte of them. The global
/// scale is read, and must be known by then.
struct MutableQuantizedMatrix {
  std::uint8_t* data = nullptr;
  std::uint8_t* scales = nullptr;
  const GlobalScale* global_scale = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  constexpr operator QuantizedMatrix() const noexcept {  // NOLINT: a conversion
    return {data, scales, global_scale, rows, columns};
  }
};

/// Device memory of the caller's that a launch uses while it runs. One for each stream: concurrent
/// launches must not share it.
struct Workspace {
  void* data = nullptr;
  std::size_t size_bytes = 0;
};

/// Computes the global scale of a matrix. The shipped kernel is `amax_gsa`.
///
/// Shapes: input bf16 [rows, columns], any row stride and alignment.
/// Workspace: `workspace_bytes()`, 4-byte aligned, zeroed once; every launch leaves it zero.
/// Concurrent launches that share one may compute a wrong scale, or fail with
/// CUDA_ERROR_LAUNCH_FAILED after some ten seconds.
/// NaN: any NaN makes the scale NaN; an infinity without a NaN makes it {1, 1}.
/// Source: TransformerEngine's NVFP4 recipe, exact formula.
class CUKILN_API ComputeGlobalScale {
 public:
  static Result<ComputeGlobalScale> create(KernelLoader& loader, int device);

  /// Bytes of workspace for any shape; 0 for an empty launcher.
  std::size_t workspace_bytes() const noexcept;

  Result<void> launch(Stream stream, GlobalScale* scale, const MatrixView& input,
                      const Workspace& workspace) const noexcept;
  /// `divisor`: the value that amax is mapped to, kMinDivisor to kMaxDivisor. A smaller one than
  /// kMaxDivisor leaves room above the block scale of amax: 256 · 6 for "four over six".
  Result<void> launch(Stream stream, GlobalScale* scale, const MatrixView& input,
                      const Workspace& workspace, float divisor) const noexcept;

  /// Also writes row_amax, f32 [rows]: max |x| of each row; NaN where the row has one, 0 where it
  /// is empty.
  Result<void> launch_by_row(Stream stream, GlobalScale* scale, const MutableVectorView& row_amax,
                             const MatrixView& input, const Workspace& workspace) const noexcept;
  Result<void> launch_by_row(Stream stream, GlobalScale* scale, const MutableVectorView& row_amax,
                             const MatrixView& input, const Workspace& workspace,
                             float divisor) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// How a block's scale byte and its packed data follow from the global scale.
enum class Formula {
  exact,  ///< TransformerEngine's: correctly rounded divisions
  fast,   ///< vLLM's: the hardware's approximate reciprocals, for the same bytes as its kernels
};

/// Quantises a bf16 matrix with a global scale that is in device memory.
///
/// Shapes: input bf16 [rows, columns], any row stride; output of the same shape, dense.
/// Alignment: rows of the input 16 bytes (so its row stride is a multiple of 8), data 8.
/// Limits: columns a multiple of 16.
/// NaN: a block with a NaN, or every block when the global scale is NaN, gets the scale NaN and
/// data 0.
class CUKILN_API Quantize {
 public:
  static Result<Quantize> create(KernelLoader& loader, int device,
                                 Formula formula = Formula::exact);

  Result<void> launch(Stream stream, const MutableQuantizedMatrix& output,
                      const MatrixView& input) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Quantises as `Quantize` does, with a global scale that the host knows: `encode_scale` = 2688 /
/// amax, positive and finite. `output.global_scale` is not used.
class CUKILN_API QuantizeStatic {
 public:
  static Result<QuantizeStatic> create(KernelLoader& loader, int device);

  Result<void> launch(Stream stream, const MutableQuantizedMatrix& output, const MatrixView& input,
                      float encode_scale) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
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

/// Quantises a gate and an up matrix of `columns` columns each, which are one input.
///
/// Shapes: input bf16 [rows, 2 · columns]. `launch` writes [gate | up], [rows, 2 · columns];
/// `launch_swiglu` writes y, [rows, columns]. The global scale is that of what is written. The rest
/// as in `Quantize`.
class CUKILN_API DeinterleaveQuantize {
 public:
  static Result<DeinterleaveQuantize> create(KernelLoader& loader, int device,
                                             Formula formula = Formula::exact);

  Result<void> launch(Stream stream, const MutableQuantizedMatrix& output, const MatrixView& input,
                      GateUpLayout layout) const noexcept;
  Result<void> launch_swiglu(Stream stream, const MutableQuantizedMatrix& output,
                             const MatrixView& input, GateUpLayout layout,
                             const SwiGlu& activation) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Computes the global scale of y = SwiGLU(gate, up), of the very values that
/// `DeinterleaveQuantize::launch_swiglu` quantises from the same input: an activation is then
/// quantised with a scale of its own, and y is never written. The shipped kernel is
/// `swiglu_amax_gsa`.
///
/// Shapes and alignment as in `DeinterleaveQuantize`; workspace, NaN and divisor as in
/// `ComputeGlobalScale`.
class CUKILN_API ComputeSwiGluGlobalScale {
 public:
  static Result<ComputeSwiGluGlobalScale> create(KernelLoader& loader, int device);

  /// Bytes of workspace for any shape; 0 for an empty launcher.
  std::size_t workspace_bytes() const noexcept;

  Result<void> launch(Stream stream, GlobalScale* scale, const MatrixView& input,
                      GateUpLayout layout, const SwiGlu& activation,
                      const Workspace& workspace) const noexcept;
  Result<void> launch(Stream stream, GlobalScale* scale, const MatrixView& input,
                      GateUpLayout layout, const SwiGlu& activation, const Workspace& workspace,
                      float divisor) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

struct GemmOptions {
  VectorView bias;  ///< bf16 [n], 16-byte aligned, or absent
  /// The kernel that precedes this one in the stream, amax kernels not counted, does not write B,
  /// as with weights: B's data and block scales may then be loaded while that kernel ends. A is
  /// always loaded after it. Kernels before that one may write B: they have completed when this one
  /// starts. Where the preceding kernel is the host's own and launched with programmatic stream
  /// serialisation, it must execute griddepcontrol.wait before griddepcontrol.launch_dependents, as
  /// cukiln's do.
  bool constant_b = false;
  /// Tactic in [0, the launcher's `tactics(m, n, k)`), for hosts that tune their own shapes; -1:
  /// the one that the store has for this shape (`save_tactics`), else that of the built-in table,
  /// else the heuristic's choice. Tactics that split K differently may round differently.
  int tactic = -1;
};

/// A way to compute a GEMM: the kernel, whose name says its tile, and into how many parts K is
/// split.
struct GemmTacticName {
  std::string kernel;
  int splits = 1;
};

/// The fastest tactic that was measured for B [n, k], for numbers of tokens above that of the
/// previous row of the same n and k, up to m.
struct MeasuredGemm {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;
  GemmTacticName tactic;
  std::int64_t nanoseconds = 0;  ///< of m tokens
};

namespace detail {
struct GemmKernels;
}

/// What `Gemm` and `W4a16Gemm` have in common: workspace and tactics. Each has tactics of its own.
class CUKILN_API GemmLauncher {
 public:
  /// Bytes of workspace for this shape, and no less than for any smaller m. May be 0.
  std::size_t workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept;

  /// The number of tactics for a shape, see `GemmOptions::tactic`.
  int tactics(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept;
  /// Names a tactic of a shape; -1: the one that `launch` takes. Errors: invalid_argument (no such
  /// tactic, a size below 1).
  Result<GemmTacticName> tactic(std::int64_t m, std::int64_t n, std::int64_t k,
                                int tactic = -1) const;

  /// Saves tactics in a store, in place of those that it has for the same n and k. They are in
  /// force where a launcher is created by a loader that did not read them before (once each, so
  /// that all launchers of a process agree), for a card of this name, compute capability and number
  /// of SMs, and as long as the kernels' sources are these. They are a blob of the kind
  /// `cukiln.tactics`: bundles and remote stores carry it, `cukiln rm` removes it.
  /// Errors: invalid_argument, with the row that is wrong; those of BlobStore::put.
  Result<void> save_tactics(Store& store, const std::vector<MeasuredGemm>& rows) const;
  /// Returns what a store has, in ascending order of n, k, m; empty: nothing. Errors:
  /// invalid_argument (what is there cannot be used).
  Result<std::vector<MeasuredGemm>> load_tactics(Store& store) const;

 protected:
  std::shared_ptr<const detail::GemmKernels> impl_;
};

/// Computes D = alpha · A · Bᵀ + bias: A [m, k], B [n, k] quantised, D bf16 [m, n], dense. alpha is
/// the product of the two decode scales, read on the device. Products of elements are exact, sums
/// in float, rounded once; the same inputs give the same bytes by the same tactic on equal devices.
///
/// Limits: k a multiple of 32, n of 8; any m, of which 0 launches nothing.
/// Alignment: D, data and scales 16 bytes.
/// NaN: a NaN scale makes the row of its A, or the column of its B, NaN.
/// Workspace: `workspace_bytes(m, n, k)`, 16-byte aligned, any contents. `launch` queues at most
/// three kernels, with programmatic stream serialisation. A preceding kernel of the host's own that
/// has tensor memory must allocate it before griddepcontrol.launch_dependents.
class CUKILN_API Gemm : public GemmLauncher {
 public:
  /// Errors: incompatible (a device below 9.0).
  static Result<Gemm> create(KernelLoader& loader, int device);
  static ModuleNames modules(int capability, std::int64_t max_tokens, std::int64_t n,
                             std::int64_t k);

  Result<void> launch(Stream stream, const MutableMatrixView& output, const QuantizedMatrix& a,
                      const QuantizedMatrix& b, const Workspace& workspace,
                      const GemmOptions& options = {}) const noexcept;
};

/// Computes D = alpha · A · Bᵀ + bias with an A that is not quantised (W4A16): A bf16 [m, k], B [n,
/// k] quantised, D bf16 [m, n], dense. alpha is B's decode scale, read on the device. B times its
/// block scales is exact in bf16, products are exact, sums in float, rounded once; the same inputs
/// give the same bytes by the same tactic on equal devices.
///
/// Limits: k a multiple of 32, n of 8; any m, of which 0 launches nothing.
/// Alignment: rows of A (so its row stride is a multiple of 8), D, data and scales 16 bytes.
/// NaN: a NaN scale makes its column NaN; NaN and infinities of A count as in any GEMM.
/// Workspace: `workspace_bytes(m, n, k)`, 16-byte aligned, of any contents. `launch` queues at most
/// two kernels, tuned on sm_90; other devices have the kernels for few tokens only.
class CUKILN_API W4a16Gemm : public GemmLauncher {
 public:
  /// Errors: incompatible (a device below 9.0).
  static Result<W4a16Gemm> create(KernelLoader& loader, int device);
  static ModuleNames modules(int capability, std::int64_t max_tokens, std::int64_t n,
                             std::int64_t k);

  Result<void> launch(Stream stream, const MutableMatrixView& output, const MatrixView& a,
                      const QuantizedMatrix& b, const Workspace& workspace,
                      const GemmOptions& options = {}) const noexcept;
};

struct GroupedGemmOptions {
  MatrixView bias;  ///< bf16 [experts, n], dense, 16-byte aligned, or absent
  /// `a.global_scale` points to one for each expert, as `b.global_scale` does; else to one.
  bool a_scale_per_expert = false;
  /// `a.global_scale` points to one for each of its rows, of which only `decode` is read. Not
  /// together with the above.
  bool a_scale_per_row = false;
  /// On the device, or null for all: how many groups there are. Later ones are neither computed nor
  /// written, and the SMs share the tiles of these evenly.
  const std::uint32_t* group_count = nullptr;
};

/// Multiplies groups of 128 rows, each by the matrix of its expert, in one launch: what a mixture
/// of experts does with its tokens once they are sorted.
///
///     output[i] = alpha · A[i] · B[e]ᵀ + bias[e], where e = row_experts[i / 128]
///
/// Shapes: A [rows, k]; B [experts · n, k], one expert's rows after the other's; output bf16 [rows,
/// n], dense; row_experts i32 [ceil(rows / 128)]: where it is negative, the 128 rows are neither
/// computed nor written. alpha is the product of the decode scales: `b.global_scale` points to one
/// for each expert. Limits: n a multiple of 128, k of 32. Devices of compute capability 10.0,
/// 10.3, 10.7 and 11.0. Rounding, NaN, alignment and how it is launched as in `Gemm`; there is no
/// workspace.
class CUKILN_API GroupedGemm {
 public:
  /// Errors: incompatible (another compute capability).
  static Result<GroupedGemm> create(KernelLoader& loader, int device);

  /// 100 for compute capability 10.0.
  static constexpr bool runs_on(int capability) noexcept {
    return capability == 100 || capability == 103 || capability == 107 || capability == 110;
  }

  Result<void> launch(Stream stream, const MutableMatrixView& output, const QuantizedMatrix& a,
                      const QuantizedMatrix& b, const VectorView& row_experts,
                      const GroupedGemmOptions& options = {}) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace cukiln::nvfp4
