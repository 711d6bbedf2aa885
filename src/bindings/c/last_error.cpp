// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/last_error.hpp"

#include <pthread.h>

#include <optional>

namespace cukiln::c {

namespace {

// A thread_local object with a destructor would be registered with glibc, which ends the process
// where it has no memory for that. So what a thread has is plain, and the Error is freed by a
// thread-specific key. initial-exec: the linker allocates the place with the thread, not at its
// first use.
struct LastError {
  cukiln_code code;
  const char* fixed;  // the message where there is no Error; null: none
  Error* error;
};
#define CUKILN_TLS __attribute__((tls_model("initial-exec")))
thread_local constinit LastError last CUKILN_TLS{CUKILN_OK, nullptr, nullptr};

void free_at_thread_end(void* error) { delete static_cast<Error*>(error); }

struct Key {
  pthread_key_t key{};
  bool created = ::pthread_key_create(&key, free_at_thread_end) == 0;
  ~Key() {
    if (created) {
      ::pthread_key_delete(key);
    }
  }
};
Key key;  // created when the library is loaded

void forget() noexcept {
  if (last.error != nullptr) {
    static_cast<void>(::pthread_setspecific(key.key, nullptr));
    delete last.error;
    last.error = nullptr;
  }
}

}  // namespace

}  // namespace cukiln::c

namespace cukiln::extension {

using c::forget;
using c::key;
using c::last;

cukiln_code v0::keep_error(Error error) noexcept {
  const auto code = static_cast<cukiln_code>(error.code());
  forget();
  last.code = code;
  last.fixed = "out of memory";
  auto* const copy = new (std::nothrow) Error(std::move(error));
  if (copy != nullptr && (!key.created || ::pthread_setspecific(key.key, copy) != 0)) {
    delete copy;
    return code;
  }
  last.error = copy;
  return code;
}

cukiln_code v0::keep_error(ErrorCode code, const char* message) noexcept {
  forget();
  last.code = static_cast<cukiln_code>(code);
  last.fixed = message;
  return last.code;
}

}  // namespace cukiln::extension

using cukiln::c::last;

extern "C" {

cukiln_code cukiln_last_error_code(void) { return last.code; }

const char* cukiln_last_error(void) {
  return last.error != nullptr ? last.error->message().c_str()
                               : (last.fixed != nullptr ? last.fixed : "");
}

const char* cukiln_last_error_log(void) {
  return last.error != nullptr ? last.error->log().c_str() : "";
}

const char* cukiln_code_name(cukiln_code code) {
  if (code == CUKILN_OK) {
    return "ok";
  }
  const bool has_name = code >= CUKILN_INVALID_ARGUMENT && code <= CUKILN_INTERNAL;
  return has_name ? cukiln::name_of(static_cast<cukiln::ErrorCode>(code)) : "unknown";
}

}  // extern "C"
