// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What can fail to be made comes from a static member that returns a Result: `create`, `open`,
/// `load` or `parse`.
///
/// Includes all of libcukiln but `instantiate.hpp`, templates that few hosts need. Most hosts start
/// at `loader.hpp`. The kernels that come with cukiln are in another library: `nvfp4.hpp`,
/// `nvfp4_moe.hpp`, `sampling.hpp`.

#include <cukiln/blob_store.hpp>
#include <cukiln/cancel_token.hpp>
#include <cukiln/device.hpp>
#include <cukiln/digest.hpp>
#include <cukiln/explain.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/kernel_info.hpp>
#include <cukiln/kernel_table.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/log.hpp>
#include <cukiln/manifest.hpp>
#include <cukiln/module.hpp>
#include <cukiln/module_spec.hpp>
#include <cukiln/name_expression.hpp>
#include <cukiln/result.hpp>
#include <cukiln/settings.hpp>
#include <cukiln/stats.hpp>
#include <cukiln/store.hpp>
#include <cukiln/target.hpp>
#include <cukiln/tensor_box.hpp>
#include <cukiln/tensor_map.hpp>
#include <cukiln/variable_info.hpp>
#include <cukiln/version.hpp>
