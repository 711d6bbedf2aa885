// SPDX-License-Identifier: Apache-2.0
// The options of the sanitisers in the compile worker of preset asan. They are compiled in because
// a worker has no environment. A report goes to a file, because the owner shows only the end of
// what a worker writes; then the worker aborts, which its owner reports as a crash.

#define CUKILN_DEFAULT_OPTIONS \
  extern "C" __attribute__((visibility("default"), used, no_sanitize("address", "undefined")))

CUKILN_DEFAULT_OPTIONS const char* __asan_default_options() {
  return "abort_on_error=1:detect_leaks=0:detect_stack_use_after_return=1:strict_string_checks=1:"
         "log_path=" CUKILN_WORKER_REPORTS "/worker";
}

CUKILN_DEFAULT_OPTIONS const char* __ubsan_default_options() {
  return "halt_on_error=1:print_stacktrace=1:log_path=" CUKILN_WORKER_REPORTS "/worker";
}
