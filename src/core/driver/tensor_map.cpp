// SPDX-License-Identifier: Apache-2.0
#include <cukiln/tensor_map.hpp>

#include "core/base/result.hpp"
#include "core/driver/kernel_state.hpp"

namespace cukiln {
namespace {

int type_of(TensorBox::Element element) noexcept {
  switch (element) {
    case TensorBox::Element::u8: return kTensorU8;
    case TensorBox::Element::u16: return kTensorU16;
    case TensorBox::Element::f16: return kTensorF16;
    case TensorBox::Element::bf16: return kTensorBf16;
  }
  return kTensorU8;
}

int swizzle_of(const TensorBox& tensor) noexcept {
  if (!tensor.swizzled) {
    return kTensorSwizzleNone;
  }
  const bool is_bytes = tensor.element == TensorBox::Element::u8;
  return tensor.box[0] * (is_bytes ? 1 : 2) == 64 ? kTensorSwizzle64 : kTensorSwizzle128;
}

}  // namespace

Result<TensorMap> v0::tensor_map(const Kernel& kernel, const TensorBox& tensor) noexcept {
  const detail::KernelState* state = detail::KernelAccess::state(kernel);
  if (state == nullptr) [[unlikely]] {
    return guarded([]() -> Result<TensorMap> {
      return make_error(ErrorCode::invalid_argument,
                        "a tensor map was requested for an empty kernel handle");
    });
  }
  TensorMap map{};
  const std::uint32_t step[3] = {1, 1, 1};
  const CUresult result = state->api->call.cuTensorMapEncodeTiled(
      &map, type_of(tensor.element), tensor.rank, const_cast<void*>(tensor.data), tensor.size,
      tensor.stride, tensor.box, step, kTensorInterleaveNone, swizzle_of(tensor),
      tensor.fetches_256_bytes ? kTensorPromotion256 : kTensorPromotion128, kTensorFillZero);
  if (result != kCudaSuccess) [[unlikely]] {
    return guarded([&]() -> Result<TensorMap> {
      return state->api->error(
          fmt::format(
              "cuTensorMapEncodeTiled for {} ({} x {} x {} elements at {}, boxes of {} x {} "
              "x {})",
              state->name, tensor.size[0], tensor.size[1], tensor.size[2], tensor.data,
              tensor.box[0], tensor.box[1], tensor.box[2]),
          result);
    });
  }
  return map;
}

}  // namespace cukiln
