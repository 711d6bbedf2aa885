// SPDX-License-Identifier: Apache-2.0
#pragma once

// A GPU for tests: device memory, streams, events and graphs over libcuda, opened at run time like
// the product does it. No CUDA toolkit, no runtime API. A driver error ends the test case.
//
//     auto& gpu = testing::Device::first();             // its primary context is current from here
//     testing::DeviceBuffer<float> x(host);             // upload; x.data() is a device pointer
//     testing::TestStream stream;
//     kernel.launch(stream, {…}, x.data(), …);
//     std::vector<float> y = x.download();              // waits for everything
//     double us = testing::median_us(stream, [&] { kernel.launch(stream, …); });

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/driver/driver_api.hpp"

#include <cukiln/kernel.hpp>

struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace cukiln::testing {

using DevicePointer = unsigned long long;

/// What tests need of the driver and the product does not.
struct TestFunctions {
  CUresult (*cuMemAlloc)(DevicePointer*, std::size_t);
  CUresult (*cuMemFree)(DevicePointer);
  CUresult (*cuMemcpyHtoD)(DevicePointer, const void*, std::size_t);
  CUresult (*cuMemcpyDtoH)(void*, DevicePointer, std::size_t);
  CUresult (*cuMemsetD8Async)(DevicePointer, unsigned char, std::size_t, CUstream);
  CUresult (*cuCtxCreate)(CUcontext*, unsigned flags, CUdevice);
  CUresult (*cuCtxDestroy)(CUcontext);
  CUresult (*cuCtxSetCurrent)(CUcontext);
  CUresult (*cuCtxSynchronize)();
  CUresult (*cuStreamCreate)(CUstream*, unsigned flags);
  CUresult (*cuStreamDestroy)(CUstream);
  CUresult (*cuStreamSynchronize)(CUstream);
  CUresult (*cuStreamBeginCapture)(CUstream, int mode);
  CUresult (*cuStreamEndCapture)(CUstream, CUgraph_st**);
  CUresult (*cuGraphInstantiate)(CUgraphExec_st**, CUgraph_st*, unsigned long long flags);
  CUresult (*cuGraphLaunch)(CUgraphExec_st*, CUstream);
  CUresult (*cuGraphExecDestroy)(CUgraphExec_st*);
  CUresult (*cuGraphDestroy)(CUgraph_st*);
  CUresult (*cuEventCreate)(CUevent_st**, unsigned flags);
  CUresult (*cuEventDestroy)(CUevent_st*);
  CUresult (*cuEventRecord)(CUevent_st*, CUstream);
  CUresult (*cuEventSynchronize)(CUevent_st*);
  CUresult (*cuEventElapsedTime)(float* milliseconds, CUevent_st*, CUevent_st*);
  CUresult (*cuFuncIsLoaded)(int* state, CUfunction);  ///< null before 12.4
};

/// Device 0. One a process, because a primary context is.
class Device {
 public:
  /// Makes its primary context current in the calling thread.
  static Device& first() {
    static Device device;
    device.check(device.call.cuCtxSetCurrent(device.context_), "cuCtxSetCurrent");
    return device;
  }

  void check(CUresult result, const char* what) const {
    REQUIRE_MESSAGE(result == kCudaSuccess, what, ": ", api_->describe(result));
  }
  void synchronize() const { check(call.cuCtxSynchronize(), "cuCtxSynchronize"); }

  const std::shared_ptr<const DriverApi>& api() const noexcept { return api_; }
  CUdevice handle() const noexcept { return device_; }
  CUcontext context() const noexcept { return context_; }
  int capability() const { return attribute(75) * 10 + attribute(76); }
  int attribute(int id) const {
    int value = 0;
    check(api_->call.cuDeviceGetAttribute(&value, id, device_), "cuDeviceGetAttribute");
    return value;
  }

  TestFunctions call{};

 private:
  Device() {
    auto api = DriverApi::open({});
    REQUIRE_MESSAGE(api, api.error().message());
    api_ = *std::move(api);
    resolve(call.cuMemAlloc, "cuMemAlloc_v2");
    resolve(call.cuMemFree, "cuMemFree_v2");
    resolve(call.cuMemcpyHtoD, "cuMemcpyHtoD_v2");
    resolve(call.cuMemcpyDtoH, "cuMemcpyDtoH_v2");
    resolve(call.cuMemsetD8Async, "cuMemsetD8Async");
    resolve(call.cuCtxCreate, "cuCtxCreate_v2");
    resolve(call.cuCtxDestroy, "cuCtxDestroy_v2");
    resolve(call.cuCtxSetCurrent, "cuCtxSetCurrent");
    resolve(call.cuCtxSynchronize, "cuCtxSynchronize");
    resolve(call.cuStreamCreate, "cuStreamCreate");
    resolve(call.cuStreamDestroy, "cuStreamDestroy_v2");
    resolve(call.cuStreamSynchronize, "cuStreamSynchronize");
    resolve(call.cuStreamBeginCapture, "cuStreamBeginCapture_v2");
    resolve(call.cuStreamEndCapture, "cuStreamEndCapture");
    resolve(call.cuGraphInstantiate, "cuGraphInstantiateWithFlags");
    resolve(call.cuGraphLaunch, "cuGraphLaunch");
    resolve(call.cuGraphExecDestroy, "cuGraphExecDestroy");
    resolve(call.cuGraphDestroy, "cuGraphDestroy");
    resolve(call.cuEventCreate, "cuEventCreate");
    resolve(call.cuEventDestroy, "cuEventDestroy_v2");
    resolve(call.cuEventRecord, "cuEventRecord");
    resolve(call.cuEventSynchronize, "cuEventSynchronize");
    resolve(call.cuEventElapsedTime, "cuEventElapsedTime");
    call.cuFuncIsLoaded =
        reinterpret_cast<decltype(call.cuFuncIsLoaded)>(api_->symbol("cuFuncIsLoaded"));
    check(api_->call.cuDeviceGet(&device_, 0), "cuDeviceGet");
    check(api_->call.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  }

  template <class Function>
  void resolve(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(api_->symbol(name));
    const bool found = function != nullptr;  // doctest cannot print a pointer to a function
    REQUIRE_MESSAGE(found, "the driver has no ", name);
  }

  std::shared_ptr<const DriverApi> api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// `count` elements of T in device memory.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t count) : count_(count) {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuMemAlloc(&pointer_, std::max<std::size_t>(bytes(), 1)), "cuMemAlloc");
  }
  explicit DeviceBuffer(const std::vector<T>& host) : DeviceBuffer(host.size()) { upload(host); }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : pointer_(std::exchange(other.pointer_, 0)), count_(std::exchange(other.count_, 0)) {}
  ~DeviceBuffer() {
    if (pointer_ != 0) {
      Device::first().call.cuMemFree(pointer_);
    }
  }
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;

  T* data() const noexcept { return reinterpret_cast<T*>(pointer_); }
  std::size_t size() const noexcept { return count_; }
  std::size_t bytes() const noexcept { return count_ * sizeof(T); }

  /// Done when it returns: the driver's own copy from pageable memory may still be on its way then,
  /// and a stream that does not wait for the legacy stream would read what was there before.
  void upload(const std::vector<T>& host) {
    REQUIRE(host.size() == count_);
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuMemcpyHtoD(pointer_, host.data(), bytes()), "cuMemcpyHtoD");
    gpu.synchronize();
  }
  /// After everything queued on the device is done.
  std::vector<T> download() const {
    auto& gpu = Device::first();
    gpu.synchronize();
    std::vector<T> host(count_);
    gpu.check(gpu.call.cuMemcpyDtoH(host.data(), pointer_, bytes()), "cuMemcpyDtoH");
    return host;
  }
  void fill_bytes(unsigned char value, Stream stream = nullptr) {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuMemsetD8Async(pointer_, value, bytes(), stream), "cuMemsetD8Async");
  }

 private:
  DevicePointer pointer_ = 0;
  std::size_t count_ = 0;
};

/// A stream that does not wait for the legacy stream, unless `blocking`.
class TestStream {
 public:
  explicit TestStream(bool blocking = false) {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuStreamCreate(&stream_, blocking ? 0 : 1), "cuStreamCreate");
  }
  ~TestStream() { Device::first().call.cuStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  operator Stream() const noexcept { return stream_; }  // NOLINT: so that it can be passed on
  void synchronize() const {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

 private:
  CUstream stream_ = nullptr;
};

class TestEvent {
 public:
  TestEvent() {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuEventCreate(&event_, 0), "cuEventCreate");
  }
  ~TestEvent() { Device::first().call.cuEventDestroy(event_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;

  void record(Stream stream) {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuEventRecord(event_, stream), "cuEventRecord");
  }
  /// Waits for this event. Microseconds since `start`.
  double us_since(const TestEvent& start) const {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuEventSynchronize(event_), "cuEventSynchronize");
    float milliseconds = 0;
    gpu.check(gpu.call.cuEventElapsedTime(&milliseconds, start.event_, event_),
              "cuEventElapsedTime");
    return milliseconds * 1e3;
  }

 private:
  CUevent_st* event_ = nullptr;
};

enum class CaptureMode { global = 0, thread_local_mode = 1, relaxed = 2 };

/// What `body` queues on `stream`, captured and instantiated.
class TestGraph {
 public:
  template <class Body>
  TestGraph(Stream stream, Body&& body, CaptureMode mode = CaptureMode::global) {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuStreamBeginCapture(stream, static_cast<int>(mode)),
              "cuStreamBeginCapture");
    body();
    gpu.check(gpu.call.cuStreamEndCapture(stream, &graph_), "cuStreamEndCapture");
    gpu.check(gpu.call.cuGraphInstantiate(&executable_, graph_, 0), "cuGraphInstantiate");
  }
  ~TestGraph() {
    auto& gpu = Device::first();
    if (executable_ != nullptr) gpu.call.cuGraphExecDestroy(executable_);
    if (graph_ != nullptr) gpu.call.cuGraphDestroy(graph_);
  }
  TestGraph(const TestGraph&) = delete;
  TestGraph& operator=(const TestGraph&) = delete;

  void launch(Stream stream) {
    auto& gpu = Device::first();
    gpu.check(gpu.call.cuGraphLaunch(executable_, stream), "cuGraphLaunch");
  }

 private:
  CUgraph_st* graph_ = nullptr;
  CUgraphExec_st* executable_ = nullptr;
};

/// Median GPU time of one `body()`, in microseconds: `batch` calls between two events, `repeats`
/// times, after a warm-up. `flush_bytes`, when not 0, is written before every batch so that what
/// the body reads is not in L2 (take a batch of 1 then).
template <class Body>
double median_us(Stream stream, Body&& body, int repeats = 21, int batch = 20,
                 std::size_t flush_bytes = 0) {
  DeviceBuffer<unsigned char> flush(flush_bytes);
  TestEvent start;
  TestEvent end;
  std::vector<double> times;
  for (int repeat = -2; repeat < repeats; ++repeat) {
    if (flush_bytes != 0) {
      flush.fill_bytes(static_cast<unsigned char>(repeat), stream);
    }
    start.record(stream);
    for (int i = 0; i < batch; ++i) {
      body();
    }
    end.record(stream);
    const double us = end.us_since(start) / batch;
    if (repeat >= 0) {
      times.push_back(us);
    }
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace cukiln::testing
