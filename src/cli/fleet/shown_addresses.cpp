// SPDX-License-Identifier: Apache-2.0
#include "cli/shown_addresses.hpp"

#include <algorithm>
#include <string_view>

#include "addons/fleet/endpoint.hpp"

namespace cukiln::cli {

namespace {

/// Returns the options of an address with the values replaced by `***` but of those that are known.
std::string without_secrets(std::string_view options) {
  std::string shown;
  while (!options.empty()) {
    const std::string_view one = options.substr(0, options.find('&'));
    const std::string_view name = one.substr(0, one.find('='));
    shown += shown.empty() ? "?" : "&";
    shown += is_remote_option(name) ? std::string(one) : "***";
    options.remove_prefix(std::min(one.size() + 1, options.size()));
  }
  return shown;
}

}  // namespace

std::string shown_addresses(const std::string& addresses) {
  std::string shown;
  for (std::size_t begin = 0; begin <= addresses.size();) {
    const std::size_t end = std::min(addresses.find(',', begin), addresses.size());
    std::string address = addresses.substr(begin, end - begin);
    const std::size_t scheme = address.find("://");
    const std::size_t host = scheme == std::string::npos ? 0 : scheme + 3;
    const std::size_t at = address.rfind('@');
    if (at != std::string::npos && at > host) {
      address.replace(host, at - host, "***");
    }
    const std::size_t question = std::min(address.find('?'), address.size());
    const std::string options = address.substr(std::min(question + 1, address.size()));
    address = address.substr(0, question) + without_secrets(options);
    shown += (begin == 0 ? "" : ",") + address;
    begin = end + 1;
  }
  return shown;
}

}  // namespace cukiln::cli
