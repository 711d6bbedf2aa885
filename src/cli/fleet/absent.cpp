// SPDX-License-Identifier: Apache-2.0
// What the command line has without src/addons/fleet.
#include "cli/bundle_input.hpp"
#include "cli/command.hpp"
#include "cli/remote_folders.hpp"
#include "cli/shown_addresses.hpp"
#include "cli/system_store.hpp"

namespace cukiln::cli {

std::unique_ptr<Command> make_export() { return make_absent("export", "fleet"); }
std::unique_ptr<Command> make_import() { return make_absent("import", "fleet"); }
std::unique_ptr<Command> make_push() { return make_absent("push", "fleet"); }
std::unique_ptr<Command> make_keygen() { return make_absent("keygen", "fleet"); }

std::string shown_addresses(const std::string& addresses) { return addresses.empty() ? "" : "***"; }

Result<std::vector<CollectedFolder>> collect_remote_folders(const std::string& /*addresses*/,
                                                            std::int64_t /*max_age_s*/,
                                                            bool /*dry_run*/) {
  return Error(ErrorCode::not_found,
               "--remote cannot be used: this cukiln was built without src/addons/fleet, which has "
               "the remote stores; build it with that folder");
}

bool writes_remote(const RemoteSettings& settings) {
  return !settings.stores.empty() && !settings.sign.empty();
}

void BundleInput::add_to(CLI::App& /*app*/) {}
Result<void> BundleInput::read_keys(const Context& /*context*/) { return {}; }
Result<void> BundleInput::for_each(const std::string& path, const EntryBody& /*on_entry*/,
                                   const BlobBody& /*on_blob*/) const {
  return Error(ErrorCode::not_found, "cannot read " + path +
                                         ": this cukiln was built without src/addons/fleet, which "
                                         "reads bundles and images; build it with that folder");
}
Exit exit_of_bundle(const Error& error) noexcept { return exit_of(error); }

Result<void> require_system_stores() {
  return Error(
      ErrorCode::not_found,
      "--system-store cannot be used: this cukiln was built without src/addons/fleet, which "
      "writes system stores; build it with that folder");
}
Result<SystemStoreSummary> add_to_system_store(Context& /*context*/,
                                               const std::string& /*directory*/,
                                               const std::vector<CacheKey>& /*keys*/) {
  return require_system_stores().error();
}

}  // namespace cukiln::cli
