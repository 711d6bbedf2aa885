// SPDX-License-Identifier: Apache-2.0
#include "core/base/result.hpp"
#include "core/driver/module.hpp"

namespace cukiln {
namespace {

Error capturing_error(const char* which) {
  return make_error(
      ErrorCode::invalid_argument,
      "{} is being captured, and loading kernels now would invalidate the capture: preload "
      "before the capture begins, or end it first",
      which);
}

}  // namespace

Result<void> check_not_capturing(const DriverApi& api, Stream capture_guard) {
  int status = kCaptureNone;
  if (capture_guard != nullptr) {
    const CUresult result = api.call.cuStreamIsCapturing(capture_guard, &status);
    if (result == kCudaStreamCaptureImplicit ||
        (result == kCudaSuccess && status != kCaptureNone)) {
      return capturing_error("the capture_guard stream");
    }
    if (result != kCudaSuccess) {
      return api.error("cuStreamIsCapturing(capture_guard)", result);
    }
  }
  const CUresult result = api.call.cuStreamIsCapturing(legacy_stream(), &status);
  if (result == kCudaStreamCaptureImplicit || (result == kCudaSuccess && status != kCaptureNone)) {
    return capturing_error("a stream that synchronises with the legacy default stream");
  }
  // Without a current context there is no legacy stream to capture.
  if (result != kCudaSuccess && result != kCudaInvalidContext) {
    return api.error("cuStreamIsCapturing(legacy stream)", result);
  }
  return {};
}

}  // namespace cukiln
