#include "bindings/c/last_error.hpp"

#include <optional>

namespace cukiln::c {

namespace {

struct LastError {
  cukiln_code code = CUKILN_OK;
  std::optional<Error> error;
  const char* fixed = "";  // the message where there is no Error
};

LastError& last_error() noexcept {
  thread_local LastError last;
  return last;
}

}  // namespace

cukiln_code keep(Error error) noexcept {
  LastError& last = last_error();
  last.code = static_cast<cukiln_code>(error.code());
  last.error.emplace(std::move(error));
  return last.code;
}

cukiln_code keep_fixed(cukiln_code code, const char* message) noexcept {
  LastError& last = last_error();
  last.code = code;
  last.error.reset();
  last.fixed = message;
  return code;
}

}  // namespace cukiln::c

using cukiln::c::last_error;

extern "C" {

cukiln_code cukiln_last_error_code(void) { return last_error().code; }

const char* cukiln_last_error(void) {
  const auto& last = last_error();
  return last.error ? last.error->message().c_str() : last.fixed;
}

const char* cukiln_last_error_log(void) {
  const auto& last = last_error();
  return last.error ? last.error->log().c_str() : "";
}

const char* cukiln_code_name(cukiln_code code) {
  if (code == CUKILN_OK) {
    return "ok";
  }
  const bool known = code >= CUKILN_INVALID_ARGUMENT && code <= CUKILN_INTERNAL;
  return known ? cukiln::name_of(static_cast<cukiln::ErrorCode>(code)) : "unknown";
}

}  // extern "C"
