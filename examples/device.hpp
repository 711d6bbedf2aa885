// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device memory for the examples, through libcuda opened at run time, so that building them takes
// no CUDA toolkit. Memory is a host's own business: cukiln only launches.

#include <dlfcn.h>

#include <cstddef>
#include <vector>

/// Device 0, its primary context current in this thread. Nothing is freed: an example ends soon.
class Device {
 public:
  /// False: no driver, or no device.
  bool open() {
    int device = 0;
    void* context = nullptr;
    return (cuda_ = dlopen("libcuda.so.1", RTLD_NOW)) != nullptr && call("cuInit", 0u) &&
           call("cuDeviceGet", &device, 0) && call("cuDevicePrimaryCtxRetain", &context, device) &&
           call("cuCtxSetCurrent", context) && call("cuDeviceGetAttribute", &num_sms, 16, device);
  }

  template <class T>
  T* allocate(std::size_t count) {  // zeroed
    unsigned long long pointer = 0;
    call("cuMemAlloc_v2", &pointer, count * sizeof(T));
    call("cuMemsetD8_v2", pointer, static_cast<unsigned char>(0), count * sizeof(T));
    return reinterpret_cast<T*>(pointer);
  }

  template <class T>
  T* upload(const std::vector<T>& host) {
    T* const pointer = allocate<T>(host.size());
    call("cuMemcpyHtoD_v2", reinterpret_cast<unsigned long long>(pointer),
         static_cast<const void*>(host.data()), host.size() * sizeof(T));
    return pointer;
  }

  template <class T>
  bool write(unsigned long long address, const T& value) {
    return call("cuMemcpyHtoD_v2", address, static_cast<const void*>(&value), sizeof(T));
  }

  template <class T>
  std::vector<T> download(const T* pointer, std::size_t count) {  // waits for the default stream
    std::vector<T> host(count);
    call("cuMemcpyDtoH_v2", static_cast<void*>(host.data()),
         reinterpret_cast<unsigned long long>(pointer), count * sizeof(T));
    return host;
  }

  int num_sms = 0;

 private:
  template <class... Args>
  bool call(const char* function, Args... args) {
    void* const symbol = dlsym(cuda_, function);
    return symbol != nullptr && reinterpret_cast<int (*)(Args...)>(symbol)(args...) == 0;
  }

  void* cuda_ = nullptr;
};
