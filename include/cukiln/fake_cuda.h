// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Controls libcuda_fake.so, a libcuda for tests on machines without a GPU: it loads cubins, runs
/// nothing and records its calls (examples/testing.md). Functions of the driver are named without
/// `_v2`. Counters and records are read while nothing launches.

// NOLINTBEGIN(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers): C
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUctx_st;
struct CUkern_st;
struct CUstream_st;

/// A launch as the driver received it.
typedef struct fake_cuda_launch_record {
  char kernel[96];  ///< the symbol in the cubin
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  struct CUstream_st* stream;
  uint32_t cluster[3];
  bool programmatic;
  bool cooperative;
  bool balanced;          ///< clusters, by their scheduling policy
  bool extended;          ///< cuLaunchKernelEx
  size_t argument_bytes;  ///< of those with known sizes, contiguous
  unsigned char arguments[1024];
  uint64_t image;  ///< a hash of the image that the kernel is in
} fake_cuda_launch_record;

/// Sets counters to zero, and settings to those of the environment.
void fake_cuda_reset(void);

/// Returns the calls of a function; NULL: of all functions.
int64_t fake_cuda_calls(const char* function);
/// Returns the largest number of its calls that ran concurrently.
int fake_cuda_most_at_once(const char* function);
/// Returns the launches since the last reset.
size_t fake_cuda_launches(void);
/// Copies one of the last 16 launches, 0 being the newest. False if there is none.
bool fake_cuda_launch(size_t newest_first, fake_cuda_launch_record* out);
/// Returns a hash of the image that a kernel is in.
uint64_t fake_cuda_image(struct CUkern_st* kernel);
/// Returns the launches that had to load code first.
int64_t fake_cuda_lazy_loads(void);
/// Returns the libraries that are loaded now.
int fake_cuda_libraries(void);
/// Returns the references of a device's primary context.
int fake_cuda_retained(int device);
/// Returns the contexts that are pushed in this thread.
int fake_cuda_current_depth(void);

void fake_cuda_set_devices(int count);  ///< at most 16
void fake_cuda_set_capability(int device, int capability);
void fake_cuda_set_num_sms(int num_sms);  ///< of every device; 148 unless set
void fake_cuda_set_version(int version);  ///< of the driver: 13000
/// The next `times` calls of a function return `result`; -1: all.
void fake_cuda_fail(const char* function, unsigned result, int times);
void fake_cuda_delay(const char* function, int milliseconds);
/// The only symbols that any image has.
void fake_cuda_set_kernels(const char* comma_separated);
/// The sizes of a kernel's parameters.
void fake_cuda_set_parameters(const char* kernel, const size_t* sizes, size_t count);
/// 1: the sizes are read from the cubin where none are set.
void fake_cuda_read_parameters(int on);
/// A variable that every image has.
void fake_cuda_set_global(const char* symbol, size_t bytes);
/// What cuStreamIsCapturing reports of a stream: 1 while it captures.
void fake_cuda_set_capture(struct CUstream_st* stream, int status);
/// 1: the legacy stream reports a capture (906).
void fake_cuda_set_legacy_capture(int on);
/// 1: another thread captures, so that loads fail with 900 unless they are relaxed.
void fake_cuda_set_foreign_capture(int on);
/// 1: an image of another architecture than the device's is refused (209).
void fake_cuda_check_arch(int on);
/// Makes a device's primary context the only current one in this thread, as the CUDA runtime does
/// for a host; a launch needs one.
void fake_cuda_set_current(int device);
/// Returns a context that is not primary. It lives until the process ends.
struct CUctx_st* fake_cuda_new_context(int device);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming, modernize-use-using, modernize-deprecated-headers)
