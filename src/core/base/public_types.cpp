// SPDX-License-Identifier: Apache-2.0
// Definitions of the small public types: Error, Target, digests, names of enumerators.

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "core/base/result.hpp"
#include "core/base/target_families.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/target.hpp>
#include <cukiln/version.hpp>

namespace cukiln {

const char* v0::name_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::compile_failed: return "compile_failed";
    case ErrorCode::incompatible: return "incompatible";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::io: return "io";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::sealed: return "sealed";
    case ErrorCode::driver: return "driver";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

// Shared by all such errors and never freed, because it must not be allocated.
Error::Detail& Error::no_memory() noexcept {
  static Detail* const detail = [] {
    alignas(Detail) static unsigned char place[sizeof(Detail)];
    return new (place) Detail{ErrorCode::internal, "out of memory", {}};  // short: no allocation
  }();
  return *detail;
}

Error Error::out_of_memory() noexcept {
  Error error;
  error.detail_.reset(&no_memory());
  return error;
}

void Error::Deleter::operator()(Detail* detail) const noexcept {
  if (detail != &no_memory()) {
    delete detail;
  }
}

std::string Error::to_string() const {
  std::string text = fmt::format("{}: {}", name_of(code()), message());
  if (!log().empty()) {
    text.append("\n").append(log());
  }
  return text;
}

// Must not allocate: memory may be exhausted.
void Error::end_without_value(const Error& error) noexcept {
  static_cast<void>(std::fprintf(
      stderr, "cukiln: value() of a Result that has an error (%s: %s); test it before: if (!r)\n",
      name_of(error.code()), error.message().c_str()));
  std::abort();
}

void Error::end_without_error() noexcept {
  static_cast<void>(std::fputs(
      "cukiln: error() of a Result that has a value; test it before: if (!r)\n", stderr));
  std::abort();
}

const char* v0::name_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::hit: return "hit";
    case EventKind::miss: return "miss";
    case EventKind::compile: return "compile";
    case EventKind::load: return "load";
    case EventKind::evict: return "evict";
    case EventKind::corrupt: return "corrupt";
    case EventKind::sealed: return "sealed";
    case EventKind::reload: return "reload";
  }
  return "unknown";
}

const char* v0::name_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::hit: return "hit";
    case Outcome::compiled: return "compiled";
    case Outcome::failed: return "failed";
    case Outcome::missing: return "missing";
  }
  return "unknown";
}

#define CUKILN_TEXT_OF(x) #x
#define CUKILN_VERSION_OF(major, minor, patch) \
  CUKILN_TEXT_OF(major) "." CUKILN_TEXT_OF(minor) "." CUKILN_TEXT_OF(patch)
const char* v0::version() noexcept {
  return CUKILN_VERSION_OF(CUKILN_VERSION_MAJOR, CUKILN_VERSION_MINOR, CUKILN_VERSION_PATCH);
}

std::string v0::hex_of_bytes(const std::uint8_t* bytes, std::size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * size);
  for (std::size_t i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

bool v0::bytes_of_hex(std::string_view hex, std::uint8_t* bytes, std::size_t size) noexcept {
  if (hex.size() != 2 * size) {
    return false;
  }
  for (std::size_t i = 0; i < size; ++i) {
    const char* from = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(from, from + 2, bytes[i], 16);
    if (error != std::errc{} || end != from + 2) {
      return false;
    }
  }
  return true;
}

Result<Target> Target::parse(std::string_view text) {
  std::string_view rest = text;
  for (const std::string_view prefix : {"sm_", "compute_"}) {
    if (rest.substr(0, prefix.size()) == prefix) {
      rest.remove_prefix(prefix.size());
      break;
    }
  }
  Target target;
  const auto [end, error] =
      std::from_chars(rest.data(), rest.data() + rest.size(), target.capability);
  rest.remove_prefix(error == std::errc{} ? static_cast<std::size_t>(end - rest.data()) : 0);
  if (rest == "a" || rest == "f") {
    target.suffix = rest[0];
    rest = {};
  }
  if (error != std::errc{} || !rest.empty() || target.capability < 50 || target.capability > 999) {
    return make_error(
        ErrorCode::invalid_argument,
        "unknown target \"{}\": expected sm_ and a compute capability, such as sm_90a, "
        "sm_100a, sm_100f or sm_120",
        text);
  }
  return target;
}

std::string Target::name() const {
  std::string text = fmt::format("sm_{}", capability);
  if (suffix != 0) {
    text += suffix;
  }
  return text;
}

bool Target::runs_on(int device_capability) const noexcept {
  if (suffix == 'a') {
    return device_capability == capability;
  }
  const bool same_family = suffix == 'f' ? family_of(device_capability) == family_of(capability)
                                         : device_capability / 10 == capability / 10;
  return same_family && device_capability >= capability;
}

}  // namespace cukiln
