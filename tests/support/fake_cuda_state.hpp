// SPDX-License-Identifier: Apache-2.0
#pragma once

// State shared by fake_cuda.cpp (the functions that control the fake) and fake_cuda_driver.cpp (the
// functions of libcuda).

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/driver/cuda_types.hpp"

#include <cukiln/fake_cuda.h>

#define FAKE_API extern "C" __attribute__((visibility("default")))

struct CUctx_st {
  int device;
  int id;
};
struct CUlib_st {
  std::uint64_t number;  // of its load
  std::string image;
  std::vector<std::unique_ptr<CUkern_st>> kernels;
};
struct CUkern_st {
  std::string name;
  CUlib_st* library;
  std::vector<std::size_t> parameters;
  std::atomic<std::uint64_t> loaded{0};           // a bit per context
  std::map<int, int> dynamic_shared;              // per device
  std::map<std::pair<int, int>, int> attributes;  // others, per device and attribute
  std::uint64_t image = 0;                        // FakeLaunch::image
};

namespace cukiln::testing::fake {

using FakeLaunch = ::fake_cuda_launch_record;

inline constexpr int kMaxDevices = 16;
inline constexpr int kStaticShared = 1024;
inline constexpr int kSharedOptin = 232448;
inline constexpr int kKeptLaunches = 16;

struct Function {
  std::string name;
  std::atomic<std::int64_t> calls{0};
  std::atomic<CUresult> result{0};
  std::atomic<int> times{0};
  std::atomic<int> delay_ms{0};
  std::atomic<int> now{0};
  std::atomic<int> most{0};
};

struct Settings {
  int devices = 1;
  std::vector<int> capabilities = {90};
  int num_sms = 148;
  int version = 13000;
  std::optional<std::vector<std::string>> kernels;
  std::map<std::string, std::vector<std::size_t>, std::less<>> parameters;
  std::map<std::string, std::size_t, std::less<>> globals;
  std::map<CUstream, int> captures;
  bool legacy_capture = false;
  bool foreign_capture = false;
  bool check_arch = false;
  bool read_parameters = false;
};

// Never destroyed: threads may still be in the driver while the process exits.
inline std::recursive_mutex& mutex = *new std::recursive_mutex;
inline Settings& settings = *new Settings;
inline std::deque<Function>& functions = *new std::deque<Function>;
inline std::deque<CUctx_st>& contexts = *new std::deque<CUctx_st>;
inline std::array<CUctx_st, kMaxDevices> primary = [] {
  std::array<CUctx_st, kMaxDevices> all{};
  for (int i = 0; i < kMaxDevices; ++i) {
    all[i] = {i, i};
  }
  return all;
}();
inline int retained_count[kMaxDevices];
inline std::vector<std::unique_ptr<CUlib_st>>& live = *new std::vector<std::unique_ptr<CUlib_st>>;
inline std::atomic<std::int64_t> lazy{0};
inline std::atomic_flag recording = ATOMIC_FLAG_INIT;  // a mutex could make system calls of its own
inline FakeLaunch recorded[kKeptLaunches];
inline std::size_t recorded_count = 0;

inline thread_local std::vector<CUcontext> current;
inline thread_local int capture_mode = 0;

Function& function_named(std::string_view name);

class Call {
 public:
  explicit Call(Function& function) : function_(function) {
    ++function_.calls;
    const int now = ++function_.now;
    int most = function_.most;
    while (now > most && !function_.most.compare_exchange_weak(most, now)) {
    }
    if (const int ms = function_.delay_ms; ms != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    }
    int times = function_.times;
    while (times > 0 && !function_.times.compare_exchange_weak(times, times - 1)) {
    }
    result_ = times == 0 ? kCudaSuccess : function_.result.load();
  }
  ~Call() { --function_.now; }
  Call(const Call&) = delete;
  CUresult result() const { return result_; }

 private:
  Function& function_;
  CUresult result_;
};

// Counts the call and returns the result that the test has set.
#define FAKE_CALL(name)                          \
  static Function& self = function_named(#name); \
  const Call call(self);                         \
  if (call.result() != kCudaSuccess) return call.result()

}  // namespace cukiln::testing::fake
