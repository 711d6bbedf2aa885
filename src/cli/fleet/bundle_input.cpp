// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle_input.hpp"

#include <filesystem>

#include "addons/fleet/bundle.hpp"
#include "addons/fleet/envelope.hpp"
#include "addons/fleet/oci_layout.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

const char* advice_on(Rejection why) {
  switch (why) {
    case Rejection::no_signature: return "; --insecure accepts it";
    case Rejection::unknown_signer: return "; --trust PUBKEY trusts a key";
    default: return "";
  }
}

}  // namespace

void BundleInput::add_to(CLI::App& app) {
  app.add_option("--trust", trust_,
                 "trust this public key: name:base64, or a file of such lines; repeatable")
      ->type_name("PUBKEY");
  app.add_flag("--insecure", insecure_, "accept entries without a trusted signature");
}

Result<void> BundleInput::read_keys(const Context& context) {
  std::string list = context.settings().remote.trust;
  for (const std::string& key : trust_) {
    list += (list.empty() ? "" : ",") + key;
  }
  CUKILN_TRY(TrustedKeys trusted, TrustedKeys::parse(list));
  trusted_ = std::make_shared<const TrustedKeys>(std::move(trusted));
  return {};
}

Result<void> BundleInput::for_each_of_layout(const std::string& path, const EntryBody& on_entry,
                                             const BlobBody& on_blob) const {
  const OpenRules rules{trusted_.get(), nullptr, insecure_};
  Rejection why = Rejection::none;
  std::error_code none;
  const auto scratch = std::filesystem::temp_directory_path(none);
  if (none) {
    return make_error(ErrorCode::io,
                      "no folder to unpack {} to: set TMPDIR to one that can be written", path);
  }
  const auto take = [&](StoreEntry entry) {
    entry.origin = Origin::imported;
    return on_entry(entry);
  };
  auto read = for_each_of_oci_layout(path, scratch.string(), rules, why, take, on_blob);
  return read || why == Rejection::none ? std::move(read)
                                        : make_error(read.error().code(), "{}: {}{}", path,
                                                     read.error().message(), advice_on(why));
}

Result<void> BundleInput::for_each(const std::string& path, const EntryBody& on_entry,
                                   const BlobBody& on_blob) const {
  if (is_oci_layout(path)) {
    return for_each_of_layout(path, on_entry, on_blob);
  }
  const OpenRules rules{trusted_.get(), nullptr, insecure_};
  Rejection why = Rejection::none;
  CUKILN_TRY(BundleReader bundle, BundleReader::open(path));
  const auto refused = [&](const Error& error, const char* more = "") {
    return make_error(ErrorCode::corrupt, "{}, {}: {}{}{}", path, bundle.position(),
                      error.message(), advice_on(why), more);
  };
  for (;;) {
    const bool is_blob = bundle.is_at_blob();
    if (is_blob && on_blob == nullptr) {
      return {};
    }
    CUKILN_TRY(auto bytes, bundle.next());
    if (!bytes) {
      return {};
    }
    if (is_blob) {
      auto blob = open_blob(*bytes, rules, why);
      if (!blob) {
        return refused(blob.error(), "; --no-blobs imports the entries alone");
      }
      bytes.reset();  // may be large
      CUKILN_CHECK(on_blob(*blob));
    } else {
      auto entry = open_entry(*bytes, rules, why);
      if (!entry) {
        return refused(entry.error());
      }
      entry->origin = Origin::imported;
      CUKILN_CHECK(on_entry(*entry));
    }
  }
}

Exit exit_of_bundle(const Error& error) noexcept {
  const bool usage =
      error.code() == ErrorCode::not_found || error.code() == ErrorCode::invalid_argument;
  return usage ? Exit::usage : Exit::failed;
}

}  // namespace cukiln::cli
