// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <new>
#include <string>

#include "bindings/c/convert.hpp"
#include "bindings/c/handles.hpp"
#include "bindings/c/last_error.hpp"

using namespace cukiln;  // NOLINT: what is defined here is in no namespace
using c::check_pointers;
using c::from_c;
using c::null_argument;
using c::to_c;
using c::to_code;

namespace {

Dim3 dimensions(const std::uint32_t (&size)[3], std::uint32_t least) noexcept {
  return {std::max(size[0], least), std::max(size[1], least), std::max(size[2], least)};
}

Result<void> launch(cukiln_kernel kernel, cukiln_stream stream, const cukiln_launch_config& from,
                    void* const* arguments) noexcept {
  LaunchConfig config;
  config.grid = dimensions(from.grid, 1);
  config.block = dimensions(from.block, 1);
  config.shared_bytes = from.shared_bytes;
  const bool clusters = (from.cluster[0] | from.cluster[1] | from.cluster[2]) != 0;
  config.cluster = dimensions(from.cluster, clusters ? 1 : 0);
  config.programmatic_launch = from.programmatic_launch != 0;
  config.cooperative = from.cooperative != 0;
  config.balance_clusters = from.balance_clusters != 0;
  return from_c(kernel).launch(stream, config, arguments);
}

}  // namespace

extern "C" {

cukiln_kernel cukiln_loader_find(const cukiln_loader* loader, const char* name) {
  return loader != nullptr && name != nullptr ? to_c(loader->loader.kernels().find(name)) : nullptr;
}

cukiln_kernel cukiln_loader_at(const cukiln_loader* loader, size_t id) {
  return loader != nullptr ? to_c(loader->loader.kernels().at(id)) : nullptr;
}

size_t cukiln_loader_kernel_count(const cukiln_loader* loader) {
  return loader != nullptr ? loader->loader.kernels().size() : 0;
}

size_t cukiln_canonical_name(const char* name, char* out, size_t out_bytes) {
  try {
    const std::string canonical = canonical_name(name != nullptr ? name : "");
    if (out != nullptr && out_bytes != 0) {
      out[canonical.copy(out, out_bytes - 1)] = '\0';
    }
    return canonical.size();
  } catch (const std::bad_alloc&) {
    if (out != nullptr && out_bytes != 0) {
      *out = '\0';
    }
    return 0;
  }
}

cukiln_code cukiln_kernel_launch(cukiln_kernel kernel, cukiln_stream stream,
                                 const cukiln_launch_config* config, void* const* arguments) {
  if (config != nullptr &&
      config->struct_bytes == sizeof *config) {  // the hot path: nothing copied
    Result<void> launched = launch(kernel, stream, *config, arguments);
    return launched ? CUKILN_OK : c::keep_error(std::move(launched).error());
  }
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"config", config}}));
    CUKILN_TRY(const auto complete, c::read_struct(*config, "cukiln_launch_config"));
    return launch(kernel, stream, complete, arguments);
  });
}

cukiln_code cukiln_kernel_check_parameters(cukiln_kernel kernel, const size_t* sizes,
                                           size_t count) {
  return to_code([&]() -> Result<void> {
    if (kernel == nullptr || (sizes == nullptr && count != 0)) {
      return null_argument(kernel == nullptr ? "kernel" : "sizes");
    }
    return from_c(kernel).check_parameters(sizes, count);
  });
}

cukiln_code cukiln_kernel_reserve_shared(cukiln_kernel kernel, uint32_t shared_bytes) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"kernel", kernel}}));
    return from_c(kernel).reserve_shared(shared_bytes);
  });
}

cukiln_code cukiln_kernel_get_attributes(cukiln_kernel kernel, int ordinal,
                                         cukiln_kernel_attributes* attributes) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"kernel", kernel}, {"attributes", attributes}}));
    CUKILN_TRY(const KernelAttributes kernel_attributes, from_c(kernel).attributes(ordinal));
    cukiln_kernel_attributes view{};
    // schema: kernel_attributes to C. Written by src/schema/generate.py
    view.registers = kernel_attributes.registers;
    view.max_block_threads = kernel_attributes.max_block_threads;
    view.static_shared_bytes = kernel_attributes.static_shared_bytes;
    view.dynamic_shared_bytes = kernel_attributes.dynamic_shared_bytes;
    view.constant_bytes = kernel_attributes.constant_bytes;
    view.local_bytes = kernel_attributes.local_bytes;
    // end of schema
    return c::write_struct(view, *attributes, "cukiln_kernel_attributes");
  });
}

cukiln_code cukiln_kernel_max_blocks_per_sm(cukiln_kernel kernel, int ordinal,
                                            uint32_t block_threads, uint32_t shared_bytes,
                                            uint32_t* blocks) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"kernel", kernel}, {"blocks", blocks}}));
    *blocks = 0;
    CUKILN_TRY(*blocks, from_c(kernel).max_blocks_per_sm(ordinal, block_threads, shared_bytes));
    return {};
  });
}

size_t cukiln_kernel_name(cukiln_kernel kernel, char* buffer, size_t buffer_bytes) {
  const std::string_view name = kernel != nullptr ? from_c(kernel).name() : std::string_view();
  if (buffer != nullptr && buffer_bytes != 0) {
    buffer[name.copy(buffer, buffer_bytes - 1)] = '\0';
  }
  return name.size();
}

size_t cukiln_kernel_parameter_count(cukiln_kernel kernel) {
  return kernel != nullptr ? from_c(kernel).parameter_count() : 0;
}

size_t cukiln_kernel_parameter_bytes(cukiln_kernel kernel, size_t index) {
  return kernel != nullptr ? from_c(kernel).parameter_bytes(index) : 0;
}

CUkern_st* cukiln_kernel_native(cukiln_kernel kernel) {
  return kernel != nullptr ? from_c(kernel).native() : nullptr;
}

}  // extern "C"
