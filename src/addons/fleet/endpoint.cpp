// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/endpoint.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>

#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln {

const char* name_of(RemoteStatus status) noexcept {
  switch (status) {
    case RemoteStatus::ok: return "ok";
    case RemoteStatus::absent: return "absent";
    case RemoteStatus::timeout: return "timeout";
    case RemoteStatus::unreachable: return "unreachable";
    case RemoteStatus::busy: return "busy";
    case RemoteStatus::denied: return "denied";
    case RemoteStatus::untrusted: return "untrusted";
    case RemoteStatus::redirected: return "redirected";
    case RemoteStatus::bad_answer: return "bad_answer";
    case RemoteStatus::oversize: return "oversize";
    case RemoteStatus::hung: return "hung";
  }
  return "unknown";
}

const char* name_of(RemoteOp op) noexcept {
  switch (op) {
    case RemoteOp::get: return "get";
    case RemoteOp::put: return "put";
    case RemoteOp::lease: return "lease";
  }
  return "unknown";
}

namespace {

struct Option {
  std::string_view name;
  std::string RemoteOptions::*value;
  bool is_file;
};
constexpr Option kOptions[] = {{"ca", &RemoteOptions::ca, true},
                               {"certificate", &RemoteOptions::certificate, true},
                               {"region", &RemoteOptions::region, false}};

/// An option without a value, of a folder.
struct Flag {
  std::string_view name;
  bool RemoteOptions::*value;
};
constexpr Flag kFlags[] = {{"ro", &RemoteOptions::is_read_only},
                           {"unsigned", &RemoteOptions::is_unsigned}};

/// Null if none of them has that name.
template <class Named, std::size_t count>
const Named* find_named(const Named (&all)[count], std::string_view name) noexcept {
  const auto* const at = std::find_if(std::begin(all), std::end(all),
                                      [&](const Named& one) { return one.name == name; });
  return at != std::end(all) ? at : nullptr;
}

/// Returns an error if a file cannot be read, before libcurl reads it at each connection.
Result<void> check_file(std::string_view option, const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file) {
    return {};
  }
  return make_error(ErrorCode::invalid_argument,
                    "cannot read {}, which {}= of a remote store names: {}", path, option,
                    errno_text(errno));
}

Result<RemoteOptions> parse_options(std::string_view list, std::string_view scheme) {
  const bool tls = scheme == "https" || scheme == "rediss" || scheme == "s3+https";
  const bool is_s3 = scheme.substr(0, 3) == "s3+";
  RemoteOptions options;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find('&'), list.size());
    const std::string_view part = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    const std::string value(part.substr(std::min(equals + 1, part.size())));
    if (const Flag* const flag = scheme == "file" ? find_named(kFlags, part) : nullptr) {
      options.*flag->value = true;
      continue;
    }
    const Option* const option = find_named(kOptions, name);
    if (value.empty() || option == nullptr || !(option->is_file ? tls : is_s3)) {
      return make_error(ErrorCode::invalid_argument,
                        "unknown option \"{}\" in the address of a {} store: expected ca=FILE or "
                        "certificate=FILE "
                        "with https and rediss, region=NAME with s3+http(s), ro or unsigned with "
                        "file",
                        name, scheme);
    }
    if (option->is_file) {
      CUKILN_CHECK(check_file(name, value));
    }
    options.*option->value = value;
  }
  return options;
}

}  // namespace

bool is_remote_option(std::string_view name) noexcept {
  return find_named(kOptions, name) != nullptr || find_named(kFlags, name) != nullptr;
}

std::vector<std::string> split_addresses(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    std::string_view part = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    part = part.substr(0, part.find_last_not_of(' ') + 1);
    if (!part.empty()) {
      parts.emplace_back(part);
    }
  }
  return parts;
}

Result<std::unique_ptr<RemoteEndpoint>> make_remote_endpoint(const std::string& url) {
  const std::string_view scheme = std::string_view(url).substr(0, url.find("://"));
  const std::size_t question = std::min(url.find('?'), url.size());
  const bool redis = scheme == "redis" || scheme == "rediss";
  const bool is_folder = scheme == "file";
  if (!redis && !is_folder && scheme != "http" && scheme != "https" && scheme != "s3+http" &&
      scheme != "s3+https") {
    // The rest may have a password, wherever it is in what is no address.
    const bool has_scheme = scheme.size() < url.size() && scheme.size() <= 16;
    return make_error(ErrorCode::invalid_argument,
                      "a remote store's address {}{}{}; expected redis(s)://host:port[/prefix], "
                      "http(s)://host/path, s3+http(s)://host/bucket or file:///path",
                      has_scheme ? "begins with \"" : "has no scheme",
                      has_scheme ? scheme : std::string_view(), has_scheme ? "://\"" : "");
  }
  CUKILN_TRY(
      const RemoteOptions options,
      parse_options(std::string_view(url).substr(std::min(question + 1, url.size())), scheme));
  const std::string address = url.substr(0, question);
  if (is_folder) {
    return make_folder_remote(address, options);
  }
  return redis ? make_redis_remote(address, options) : make_http_remote(address, options);
}

}  // namespace cukiln
