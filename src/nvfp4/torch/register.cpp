// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "bindings/c/last_error.hpp"
#include "bindings/c/structs.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/mutex.hpp"
#include "core/base/result.hpp"
#include "nvfp4/torch/host.hpp"
#include "nvfp4/torch/ops.hpp"
#include "nvfp4/torch/runners.hpp"

#include <cukiln/extension.hpp>

namespace cukiln::torch {

namespace {

// Process-wide state: see ARCHITECTURE.md. It lives as long as the ops do.
std::atomic<Host*> the_host{nullptr};
Mutex host_mutex;

Result<void> check(ShimError error, const char* what) {
  if (error != 0) {
    return make_error(ErrorCode::incompatible,
                      "PyTorch refused to register {}: another copy of cukiln may have done so in "
                      "this process; load one only",
                      what);
  }
  return {};
}

Result<void> register_ops(const Shim& shim, const char* name_space, std::span<const Op> ops) {
  // Libraries are never freed: that would remove their ops.
  LibraryHandle definitions = nullptr;
  LibraryHandle cpu = nullptr;
  LibraryHandle cuda = nullptr;
  CUKILN_CHECK(check(shim.aoti_torch_library_init_fragment(name_space, "cukiln", 0, &definitions),
                     name_space));
  CUKILN_CHECK(
      check(shim.aoti_torch_library_init_impl(name_space, "CPU", "cukiln", 0, &cpu), name_space));
  CUKILN_CHECK(
      check(shim.aoti_torch_library_init_impl(name_space, "CUDA", "cukiln", 0, &cuda), name_space));
  for (const Op& op : ops) {
    CUKILN_CHECK(check(shim.aoti_torch_library_def(definitions, op.schema), op.schema));
    CUKILN_CHECK(check(shim.torch_library_impl(cpu, op.name, op.run, kStackVersion), op.name));
    CUKILN_CHECK(check(shim.torch_library_impl(cuda, op.name, op.run, kStackVersion), op.name));
  }
  return {};
}

Result<void> register_all() {
  const ForkSafeLock lock(host_mutex);
  if (the_host.load() != nullptr) {
    return {};
  }
  CUKILN_TRY(const Shim shim, open_shim());
  auto made = std::make_unique<Host>();
  made->shim = shim;
  CUKILN_CHECK(register_ops(shim, "nvfp4", runner_ops()));
  CUKILN_CHECK(register_ops(shim, "nvfp4", quantize_ops()));
  CUKILN_CHECK(register_ops(shim, "nvfp4", training_ops()));
  CUKILN_CHECK(register_ops(shim, "cukiln", sampling_ops()));
  the_host.store(made.release(), std::memory_order_release);
  return {};
}

Result<Host*> registered() {
  Host* const found = find_host();
  if (found == nullptr) {
    return Error(ErrorCode::invalid_argument,
                 "cukiln's ops are not registered: call cukiln_torch_register first");
  }
  return found;
}

Result<void> set_loader(cukiln_loader* loader) {
  CUKILN_TRY(Host* const here, registered());
  if (loader == nullptr) {
    return c::null_argument("loader");
  }
  CUKILN_TRY(
      auto cuda,
      Cuda::create(extension::loader_of(*loader)));  // not under the lock: it opens the driver
  const ForkSafeLock lock(host_mutex);
  if (here->cuda.load() != nullptr) {
    return Error(ErrorCode::invalid_argument,
                 "a loader was set already: the ops of a process use one");
  }
  here->cuda.store(cuda.release(), std::memory_order_release);
  return {};
}

/// The CUDA side for a device that is visible; null for the CPU.
Result<const Cuda*> backend(Host& here, int device) {
  if (device < 0) {
    return static_cast<const Cuda*>(nullptr);
  }
  const Cuda* const cuda = here.cuda.load(std::memory_order_acquire);
  if (cuda == nullptr) {
    return make_error(ErrorCode::invalid_argument,
                      "the device is {}, and no kernels are loaded: call cukiln_torch_set_loader "
                      "first",
                      device);
  }
  CUKILN_TRY([[maybe_unused]] const auto launchers, cuda->on(device));
  return cuda;
}

Result<void> check_multiple(const char* name, std::int64_t value, std::int64_t of) {
  if (value <= 0 || value % of != 0) {
    return make_error(ErrorCode::invalid_argument, "{} is {}; expected a positive multiple of {}",
                      name, value, of);
  }
  return {};
}

Result<void> check_given(const char* name, const void* pointer) {
  return pointer == nullptr ? c::null_argument(name) : Result<void>();
}

/// The error of a launcher that the device or the compiler refused.
template <class Launcher>
Result<void> status_of(const Result<Launcher>& launcher) {
  return launcher ? Result<void>() : Result<void>(launcher.error());
}

template <class Kind, class Weights>
Result<void> add(Host& here, const Weights& weights, std::int64_t* id) {
  CUKILN_TRY(const Cuda* const cuda, backend(here, weights.device));
  auto runner = std::make_unique<Kind>(cuda, weights);
  runner->set_fingerprint(weights.fingerprint);
  if (weights.max_tokens > 0) {
    CUKILN_CHECK(runner->reserve(weights.max_tokens));
  }
  CUKILN_TRY(*id, here.registry.add(std::move(runner)));
  return {};
}

Result<void> create_linear(const cukiln_torch_linear* given, std::int64_t* id) {
  CUKILN_TRY(Host* const here, registered());
  CUKILN_CHECK(check_given("linear", given));
  CUKILN_CHECK(check_given("id", id));
  CUKILN_TRY(const cukiln_torch_linear weights, c::read_struct(*given, "cukiln_torch_linear"));
  CUKILN_CHECK(check_multiple("in_features", weights.in_features, 32));
  CUKILN_CHECK(check_multiple("out_features", weights.out_features, 8));
  CUKILN_CHECK(check_given("data", weights.data));
  CUKILN_CHECK(check_given("scales", weights.scales));
  CUKILN_CHECK(check_given("global_scale", weights.global_scale));
  CUKILN_TRY(const Cuda* const cuda, backend(*here, weights.device));
  if (cuda != nullptr) {
    CUKILN_TRY(const DeviceLaunchers* const launchers, cuda->on(weights.device));
    if (weights.w4a16 != 0) {
      CUKILN_CHECK(status_of(launchers->w4a16_gemm));
    } else {
      CUKILN_CHECK(status_of(launchers->gemm));
      CUKILN_CHECK(status_of(launchers->quantize));
      CUKILN_CHECK(status_of(launchers->global_scale));
    }
  }
  return add<LinearRunner>(*here, weights, id);
}

Result<void> create_moe(const cukiln_torch_moe* given, std::int64_t* id) {
  CUKILN_TRY(Host* const here, registered());
  CUKILN_CHECK(check_given("moe", given));
  CUKILN_CHECK(check_given("id", id));
  CUKILN_TRY(const cukiln_torch_moe weights, c::read_struct(*given, "cukiln_torch_moe"));
  CUKILN_CHECK(check_multiple("hidden", weights.hidden, 32));
  CUKILN_CHECK(check_multiple("width", weights.width, 32));
  if (weights.experts < 1 || weights.experts > 1024) {
    return make_error(ErrorCode::invalid_argument, "experts is {}; expected 1 to 1024",
                      weights.experts);
  }
  if (!(weights.limit > 0)) {
    return make_error(ErrorCode::invalid_argument,
                      "limit is {}; expected a positive number, infinity for no limit",
                      weights.limit);
  }
  CUKILN_CHECK(check_given("up_data", weights.up_data));
  CUKILN_CHECK(check_given("up_scales", weights.up_scales));
  CUKILN_CHECK(check_given("up_decode", weights.up_decode));
  CUKILN_CHECK(check_given("down_data", weights.down_data));
  CUKILN_CHECK(check_given("down_scales", weights.down_scales));
  CUKILN_CHECK(check_given("down_decode", weights.down_decode));
  CUKILN_TRY(const Cuda* const cuda, backend(*here, weights.device));
  if (cuda != nullptr) {
    CUKILN_TRY(const DeviceLaunchers* const launchers, cuda->on(weights.device));
    CUKILN_CHECK(status_of(launchers->moe));
    if (weights.activation_global_scale != nullptr || weights.dynamic_activations != 0) {  // W4A4
      CUKILN_CHECK(status_of(launchers->global_scale));
    }
  }
  return add<MoeRunner>(*here, weights, id);
}

Result<void> list_modules(const cukiln_torch_linear* linear, const cukiln_torch_moe* moe,
                          int capability, const char** names, std::size_t capacity,
                          std::size_t* count) {
  CUKILN_CHECK(check_given("count", count));
  if ((linear == nullptr) == (moe == nullptr)) {
    return make_error(ErrorCode::invalid_argument, "linear and moe are both {}; expected one",
                      moe == nullptr ? "NULL" : "given");
  }
  nvfp4::ModuleNames found;
  if (linear != nullptr) {
    CUKILN_TRY(const auto weights, c::read_struct(*linear, "cukiln_torch_linear"));
    found = modules_of(weights, capability);
  } else {
    CUKILN_TRY(const auto weights, c::read_struct(*moe, "cukiln_torch_moe"));
    found = modules_of(weights, capability);
  }
  *count = found.size();
  for (const std::string_view name : found) {
    if (capacity > 0) {
      *names++ = name.data();  // a literal
      --capacity;
    }
  }
  return {};
}

Result<void> create_python(std::int64_t* id) {
  CUKILN_TRY(Host* const here, registered());
  CUKILN_CHECK(check_given("id", id));
  CUKILN_TRY(*id, here->registry.add(std::make_unique<PythonRunner>()));
  return {};
}

Result<void> reserve(std::int64_t id, std::int64_t tokens) {
  CUKILN_TRY(Host* const here, registered());
  Runner* const runner = here->registry.find(id);
  return runner != nullptr ? runner->reserve(tokens) : Result<void>(no_runner(id));
}

Result<void> destroy(std::int64_t id) {
  CUKILN_TRY(Host* const here, registered());
  return here->registry.remove(id);
}

}  // namespace

Host* find_host() noexcept { return the_host.load(std::memory_order_acquire); }

}  // namespace cukiln::torch

using cukiln::c::to_code;

extern "C" {

cukiln_code cukiln_torch_register(void) {
  return to_code([] { return cukiln::torch::register_all(); });
}

cukiln_code cukiln_torch_set_loader(cukiln_loader* loader) {
  return to_code([&] { return cukiln::torch::set_loader(loader); });
}

cukiln_code cukiln_torch_linear_create(const cukiln_torch_linear* linear, int64_t* id) {
  return to_code([&] { return cukiln::torch::create_linear(linear, id); });
}

cukiln_code cukiln_torch_moe_create(const cukiln_torch_moe* moe, int64_t* id) {
  return to_code([&] { return cukiln::torch::create_moe(moe, id); });
}

cukiln_code cukiln_torch_modules(const cukiln_torch_linear* linear, const cukiln_torch_moe* moe,
                                 int capability, const char** names, size_t capacity,
                                 size_t* count) {
  return to_code(
      [&] { return cukiln::torch::list_modules(linear, moe, capability, names, capacity, count); });
}

cukiln_code cukiln_torch_python_create(int64_t* id) {
  return to_code([&] { return cukiln::torch::create_python(id); });
}

cukiln_code cukiln_torch_runner_reserve(int64_t id, int64_t tokens) {
  return to_code([&] { return cukiln::torch::reserve(id, tokens); });
}

cukiln_code cukiln_torch_runner_destroy(int64_t id) {
  return to_code([&] { return cukiln::torch::destroy(id); });
}

}  // extern "C"
