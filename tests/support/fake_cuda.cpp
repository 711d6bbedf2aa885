// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "support/fake_cuda_state.hpp"

namespace cukiln::testing::fake {

Function& function_named(std::string_view name) {
  const std::lock_guard lock(mutex);
  for (Function& function : functions) {
    if (function.name == name) {
      return function;
    }
  }
  Function& function = functions.emplace_back();
  function.name = name;
  return function;
}

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

void read_environment() {
  const auto value = [](const char* name) { return std::getenv(name); };
  settings = {};
  if (const char* text = value("FAKE_CUDA_DEVICES")) settings.devices = std::atoi(text);
  if (const char* text = value("FAKE_CUDA_VERSION")) settings.version = std::atoi(text);
  if (const char* text = value("FAKE_CUDA_KERNELS")) settings.kernels = split(text, ',');
  if (const char* text = value("FAKE_CUDA_LEGACY_CAPTURE")) settings.legacy_capture = *text == '1';
  if (const char* text = value("FAKE_CUDA_CHECK_ARCH")) settings.check_arch = *text == '1';
  if (const char* text = value("FAKE_CUDA_READ_PARAMETERS"))
    settings.read_parameters = *text == '1';
  if (const char* text = value("FAKE_CUDA_CAPABILITY")) {
    settings.capabilities.clear();
    for (const std::string& part : split(text, ',')) {
      settings.capabilities.push_back(std::atoi(part.c_str()));
    }
  }
  if (const char* text = value("FAKE_CUDA_PARAMETERS")) {
    for (const std::string& part : split(text, ',')) {
      const std::size_t equals = part.find('=');
      auto& sizes = settings.parameters[part.substr(0, equals)];
      for (const std::string& size : split(part.substr(equals + 1), ':')) {
        sizes.push_back(std::strtoul(size.c_str(), nullptr, 10));
      }
    }
  }
  if (const char* text = value("FAKE_CUDA_GLOBALS")) {
    for (const std::string& part : split(text, ',')) {
      const std::size_t equals = part.find('=');
      settings.globals[part.substr(0, equals)] =
          std::strtoul(part.substr(equals + 1).c_str(), nullptr, 10);
    }
  }
  if (const char* text = value("FAKE_CUDA_FAIL")) {
    for (const std::string& part : split(text, ',')) {
      const std::size_t equals = part.find('=');
      const std::size_t star = part.find('*');
      Function& function = function_named(part.substr(0, equals));
      function.result = static_cast<CUresult>(std::atoi(part.c_str() + equals + 1));
      function.times = star == std::string::npos ? -1 : std::atoi(part.c_str() + star + 1);
    }
  }
}

const bool kEnvironmentRead = (read_environment(), true);

}  // namespace
}  // namespace cukiln::testing::fake

using namespace cukiln;                 // NOLINT: the rest is a C interface
using namespace cukiln::testing;        // NOLINT
using namespace cukiln::testing::fake;  // NOLINT

FAKE_API void fake_cuda_reset() {
  const std::lock_guard lock(mutex);
  for (Function& function : functions) {
    function.calls = 0;
    function.result = 0;
    function.times = 0;
    function.delay_ms = 0;
    function.most = 0;
  }
  lazy = 0;
  recorded_count = 0;
  read_environment();
}
FAKE_API std::int64_t fake_cuda_calls(const char* name) {
  const std::lock_guard lock(mutex);
  if (name != nullptr) {
    return function_named(name).calls;
  }
  std::int64_t sum = 0;
  for (const Function& function : functions) {
    sum += function.calls;
  }
  return sum;
}
FAKE_API int fake_cuda_most_at_once(const char* name) { return function_named(name).most; }
FAKE_API void fake_cuda_set_devices(int count) {
  const std::lock_guard lock(mutex);
  settings.devices = count;
}
FAKE_API void fake_cuda_set_capability(int device, int capability) {
  const std::lock_guard lock(mutex);
  const int last = settings.capabilities.back();
  settings.capabilities.resize(std::max<std::size_t>(settings.capabilities.size(), device + 1),
                               last);
  settings.capabilities[device] = capability;
}
FAKE_API void fake_cuda_set_num_sms(int num_sms) {
  const std::lock_guard lock(mutex);
  settings.num_sms = num_sms;
}
FAKE_API void fake_cuda_set_version(int version) {
  const std::lock_guard lock(mutex);
  settings.version = version;
}
FAKE_API void fake_cuda_fail(const char* name, CUresult result, int times) {
  Function& function = function_named(name);
  function.result = result;
  function.times = times;
}
FAKE_API void fake_cuda_delay(const char* name, int ms) { function_named(name).delay_ms = ms; }
FAKE_API void fake_cuda_set_kernels(const char* names) {
  const std::lock_guard lock(mutex);
  settings.kernels = split(names, ',');
}
FAKE_API void fake_cuda_set_parameters(const char* kernel, const std::size_t* sizes,
                                       std::size_t count) {
  const std::lock_guard lock(mutex);
  settings.parameters[kernel].assign(sizes, sizes + count);
}
FAKE_API void fake_cuda_set_global(const char* symbol, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  settings.globals[symbol] = bytes;
}
FAKE_API void fake_cuda_set_capture(CUstream stream, int status) {
  const std::lock_guard lock(mutex);
  settings.captures[stream] = status;
}
FAKE_API void fake_cuda_set_legacy_capture(int on) {
  const std::lock_guard lock(mutex);
  settings.legacy_capture = on != 0;
}
FAKE_API void fake_cuda_set_foreign_capture(int on) {
  const std::lock_guard lock(mutex);
  settings.foreign_capture = on != 0;
}
FAKE_API void fake_cuda_check_arch(int on) {
  const std::lock_guard lock(mutex);
  settings.check_arch = on != 0;
}
FAKE_API void fake_cuda_read_parameters(int on) {
  const std::lock_guard lock(mutex);
  settings.read_parameters = on != 0;
}
FAKE_API void fake_cuda_set_current(int device) { current.assign(1, &primary[device]); }
FAKE_API CUcontext fake_cuda_new_context(int device) {
  const std::lock_guard lock(mutex);
  contexts.push_back({device, kMaxDevices + static_cast<int>(contexts.size())});
  return &contexts.back();
}
FAKE_API int fake_cuda_retained(int device) {
  const std::lock_guard lock(mutex);
  return retained_count[device];
}
FAKE_API int fake_cuda_current_depth() { return static_cast<int>(current.size()); }
FAKE_API int fake_cuda_libraries() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(live.size());
}
FAKE_API std::int64_t fake_cuda_lazy_loads() { return lazy; }
FAKE_API std::size_t fake_cuda_launches() { return recorded_count; }
FAKE_API bool fake_cuda_launch(std::size_t newest_first, FakeLaunch* out) {
  while (recording.test_and_set(std::memory_order_acquire)) {
  }
  const bool is_kept = newest_first < std::min<std::size_t>(recorded_count, kKeptLaunches);
  if (is_kept) {
    *out = recorded[(recorded_count - 1 - newest_first) % kKeptLaunches];
  }
  recording.clear(std::memory_order_release);
  return is_kept;
}
FAKE_API std::uint64_t fake_cuda_image(CUkernel kernel) {
  const std::lock_guard lock(mutex);
  return kernel->image;
}
