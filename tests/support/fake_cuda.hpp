// SPDX-License-Identifier: Apache-2.0
#pragma once

// A fake of libcuda.so.1 (build/<preset>/bin/libcuda_fake.so) that runs nothing and records its
// calls. Tests open it by path, and control it by the environment or by the functions below.
//
//   FAKE_CUDA_DEVICES=2                 number of devices (1)
//   FAKE_CUDA_CAPABILITY=90,100         of the devices; the last one is for the rest (90)
//   FAKE_CUDA_VERSION=12040             of the driver (13000)
//   FAKE_CUDA_FAIL=cuInit=100,cuLibraryLoadData=209*1     results; *N: only the next N calls
//   FAKE_CUDA_KERNELS=scale,add         the only symbols that any image has
//   FAKE_CUDA_PARAMETERS=scale=8:4:4    sizes of a kernel's parameters
//   FAKE_CUDA_GLOBALS=table=80,n=4      sizes of the variables that every image has
//   FAKE_CUDA_LEGACY_CAPTURE=1          the legacy stream reports a capture (906)
//   FAKE_CUDA_CHECK_ARCH=1              209 for an image of another architecture than the device's
//
// An image must be ELF (else 200). It has every symbol that occurs in it as a string, or any symbol
// when it is a bare ELF header. libcuda_fake_old.so is the same without the functions of CUDA 12.4.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/driver/cuda_types.hpp"
#include "support/paths.hpp"

namespace cukiln::testing {

/// A launch as the driver received it.
struct FakeLaunch {
  char kernel[96];
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t shared_bytes;
  CUstream stream;
  std::uint32_t cluster[3];
  bool programmatic;
  bool cooperative;
  bool balanced;               ///< clusters, by their scheduling policy
  bool extended;               ///< cuLaunchKernelEx
  std::size_t argument_bytes;  ///< of those with known sizes, contiguous
  unsigned char arguments[1024];
  std::uint64_t image;  ///< a hash of what the kernel is in
};

/// The exported functions that control the fake. Function names are given without `_v2`.
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
  void (*reset)();                              ///< counters to zero, settings to the environment's
  std::int64_t (*calls)(const char* function);  ///< null: of all functions
  int (*most_at_once)(const char* function);    ///< calls that ran at the same time
  void (*set_devices)(int count);
  void (*set_capability)(int device, int capability);
  void (*set_num_sms)(int num_sms);  ///< of every device; 148 unless set
  void (*set_version)(int version);
  void (*fail)(const char* function, CUresult result, int times);  ///< times -1: always
  void (*delay)(const char* function, int milliseconds);
  void (*set_kernels)(const char* comma_separated);
  void (*set_parameters)(const char* kernel, const std::size_t* sizes, std::size_t count);
  void (*set_global)(const char* symbol, std::size_t bytes);  ///< a variable of every image
  void (*set_capture)(CUstream stream, int status);
  void (*set_legacy_capture)(int on);
  void (*set_foreign_capture)(int on);  ///< another thread captures: 900 unless relaxed
  void (*check_arch)(int on);
  void (*read_parameters)(int on);  ///< from the cubin, where none are set
  CUcontext (*new_context)(int device);
  int (*retained)(int device);   ///< references of its primary context now
  int (*current_depth)();        ///< contexts pushed in this thread
  int (*libraries)();            ///< loaded now
  std::int64_t (*lazy_loads)();  ///< launches that had to load code first
  std::size_t (*launches)();
  bool (*launch)(std::size_t newest_first, FakeLaunch* out);  ///< the last 16 are kept

  std::uint64_t (*image)(CUkernel kernel);  ///< as FakeLaunch::image

  FakeLaunch last_launch() const {
    FakeLaunch out{};
    REQUIRE(launch(0, &out));
    return out;
  }

 private:
  template <class Function>
  void resolve(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(handle, name));
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
