// SPDX-License-Identifier: Apache-2.0
// Which instance the kernel's entry calls: int64 = transform(int32, int32), without nulls. libcudf writes this as text.
#define CUKILN_COLUMN(constness, index, element) \
  cudf::jit::column_accessor<index, cudf::constness##column_device_view_core, element, false, 0>
#define CUDF_KERNEL_INSTANCE                                                                                    \
  cudf::jit::transform_kernel<false, false,                                                                     \
                              cudf::jit::type_list<CUKILN_COLUMN(, 0, int32_t), CUKILN_COLUMN(, 1, int32_t)>,   \
                              cudf::jit::type_list<CUKILN_COLUMN(mutable_, 0, int64_t)>>
