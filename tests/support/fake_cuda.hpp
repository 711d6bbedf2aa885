// SPDX-License-Identifier: Apache-2.0
#pragma once

// Opens build/<preset>/bin/libcuda_fake.so, or libcuda_fake_old.so, which has no functions of
// CUDA 12.4.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/driver/cuda_types.hpp"
#include "support/paths.hpp"

#include <cukiln/fake_cuda.h>

namespace cukiln::testing {

using FakeLaunch = ::fake_cuda_launch_record;

/// The functions of <cukiln/fake_cuda.h>.
struct FakeCuda {
  explicit FakeCuda(const char* file = "libcuda_fake.so") : path(bin() + "/" + file) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(handle != nullptr, std::string(dlerror()));
    resolve(reset, "fake_cuda_reset");
    resolve(calls, "fake_cuda_calls");
    resolve(most_at_once, "fake_cuda_most_at_once");
    resolve(set_devices, "fake_cuda_set_devices");
    resolve(set_capability, "fake_cuda_set_capability");
    resolve(set_num_sms, "fake_cuda_set_num_sms");
    resolve(set_version, "fake_cuda_set_version");
    resolve(fail, "fake_cuda_fail");
    resolve(delay, "fake_cuda_delay");
    resolve(set_kernels, "fake_cuda_set_kernels");
    resolve(set_parameters, "fake_cuda_set_parameters");
    resolve(set_global, "fake_cuda_set_global");
    resolve(set_capture, "fake_cuda_set_capture");
    resolve(set_legacy_capture, "fake_cuda_set_legacy_capture");
    resolve(set_foreign_capture, "fake_cuda_set_foreign_capture");
    resolve(check_arch, "fake_cuda_check_arch");
    resolve(read_parameters, "fake_cuda_read_parameters");
    resolve(new_context, "fake_cuda_new_context");
    resolve(retained, "fake_cuda_retained");
    resolve(current_depth, "fake_cuda_current_depth");
    resolve(libraries, "fake_cuda_libraries");
    resolve(lazy_loads, "fake_cuda_lazy_loads");
    resolve(launches, "fake_cuda_launches");
    resolve(launch, "fake_cuda_launch");
    resolve(image, "fake_cuda_image");
    reset();
  }
  ~FakeCuda() { reset(); }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  std::string path;
  void* handle = nullptr;
  decltype(&::fake_cuda_reset) reset = nullptr;
  decltype(&::fake_cuda_calls) calls = nullptr;
  decltype(&::fake_cuda_most_at_once) most_at_once = nullptr;
  decltype(&::fake_cuda_set_devices) set_devices = nullptr;
  decltype(&::fake_cuda_set_capability) set_capability = nullptr;
  decltype(&::fake_cuda_set_num_sms) set_num_sms = nullptr;
  decltype(&::fake_cuda_set_version) set_version = nullptr;
  decltype(&::fake_cuda_fail) fail = nullptr;
  decltype(&::fake_cuda_delay) delay = nullptr;
  decltype(&::fake_cuda_set_kernels) set_kernels = nullptr;
  decltype(&::fake_cuda_set_parameters) set_parameters = nullptr;
  decltype(&::fake_cuda_set_global) set_global = nullptr;
  decltype(&::fake_cuda_set_capture) set_capture = nullptr;
  decltype(&::fake_cuda_set_legacy_capture) set_legacy_capture = nullptr;
  decltype(&::fake_cuda_set_foreign_capture) set_foreign_capture = nullptr;
  decltype(&::fake_cuda_check_arch) check_arch = nullptr;
  decltype(&::fake_cuda_read_parameters) read_parameters = nullptr;
  decltype(&::fake_cuda_new_context) new_context = nullptr;
  decltype(&::fake_cuda_retained) retained = nullptr;
  decltype(&::fake_cuda_current_depth) current_depth = nullptr;
  decltype(&::fake_cuda_libraries) libraries = nullptr;
  decltype(&::fake_cuda_lazy_loads) lazy_loads = nullptr;
  decltype(&::fake_cuda_launches) launches = nullptr;
  decltype(&::fake_cuda_launch) launch = nullptr;
  decltype(&::fake_cuda_image) image = nullptr;

  FakeLaunch last_launch() const {
    FakeLaunch out{};
    REQUIRE(launch(0, &out));
    return out;
  }

 private:
  template <class Function>
  void resolve(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    [[maybe_unused]] const bool found = function != nullptr;
    REQUIRE_MESSAGE(found, name);
  }
};

/// The smallest ELF file that is accepted as a cubin for `capability` with `symbols`.
inline std::string fake_cubin(const std::vector<std::string>& symbols, int capability = 90,
                              const std::string& release = "13.0") {
  std::string strings(1, '\0');
  for (const std::string& symbol : symbols) {
    strings += symbol + '\0';
  }
  strings += "Cuda compilation tools, release " + release + ", V" + release + ".88" + '\0';
  std::string image(64, '\0');
  const auto put = [](std::string& to, std::size_t at, auto value) {
    std::memcpy(to.data() + at, &value, sizeof value);
  };
  std::memcpy(image.data(),
              "\x7f"
              "ELF\x02\x01\x01\x41\x08",
              9);
  put(image, 16, std::uint16_t{2});                             // e_type
  put(image, 18, std::uint16_t{190});                           // e_machine
  put(image, 40, std::uint64_t{64 + strings.size()});           // e_shoff
  put(image, 48, static_cast<std::uint32_t>(capability) << 8);  // e_flags
  put(image, 58, std::uint16_t{64});                            // e_shentsize
  put(image, 60, std::uint16_t{2});                             // e_shnum
  std::string sections(128, '\0');
  put(sections, 64 + 4, std::uint32_t{3});  // SHT_STRTAB
  put(sections, 64 + 24, std::uint64_t{64});
  put(sections, 64 + 32, std::uint64_t{strings.size()});
  return image + strings + sections;
}

}  // namespace cukiln::testing
