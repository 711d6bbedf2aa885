// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/fleet/manifest_entries.hpp"
#include "cli/human.hpp"
#include "cli/module_options.hpp"
#include "cli/remote_folders.hpp"
#include "cli/uploads.hpp"
#include "core/base/result.hpp"
#include "core/store/remote_tier.hpp"

namespace cukiln::cli {

namespace {

class PushCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {"push",
            "[MANIFEST|KEY|NAME...]",
            "upload what the remote stores do not have",
            "Uploads entries and blobs of the store that a remote store has not acknowledged: all, "
            "those of a manifest, or those of keys and names of modules. The store marks what each "
            "remote store has acknowledged, for 15 days. Needs remote_sign. Failed uploads are "
            "tried again for 30 s; if one is lost in the end, the exit code is 4.",
            {{"cukiln push", "after the server was away, or the password was wrong"},
             {"cukiln push kernels.json --arch sm_100a",
              "the entries that a manifest hits with its files as they are now"},
             {"cukiln push 3fa9c01d", "one entry or blob"},
             {"cukiln push --again", "to a server that was emptied, or is another one"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("KEY", operands_);
    app.add_option("--arch", arch_, "with a MANIFEST: for this target instead; repeatable")
        ->type_name("TARGET")
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_flag("--again", again_, "also what a remote store has acknowledged");
  }

  Exit run(Context& context) override {
    const bool is_of_manifest = !operands_.empty() && is_manifest(operands_.front());
    if (is_of_manifest && operands_.size() > 1) {
      return context.usage("one manifest at a time, without keys: cukiln push {}",
                           operands_.front());
    }
    if (!is_of_manifest && !arch_.empty()) {
      return context.usage(
          "--arch is for the modules of a manifest: cukiln push MANIFEST --arch A");
    }
    const RemoteSettings& settings = context.settings().remote;
    if (!writes_remote(settings)) {
      return context.usage(
          "no remote store is written: {} is not set; see 'cukiln config'",
          settings.stores.empty() ? "remote (CUKILN_REMOTE)" : "remote_sign (CUKILN_REMOTE_SIGN)");
    }
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    StoreAdmin admin(**store);
    context.remove_revoked_entries(admin);
    Exit exit = Exit::store;
    const auto names = is_of_manifest ? of_manifest(context, exit) : of_keys(admin, exit);
    if (!names) {
      return context.fail(exit, names.error());
    }
    const Uploads uploads = upload(context, *names, /*is_purpose=*/true, again_);
    print(context, uploads);
    const bool was_named_in_vain = !operands_.empty() && uploads.kept != 0;
    return uploads.lost != 0 || was_named_in_vain ? Exit::store : Exit::done;
  }

 private:
  Result<std::vector<ObjectName>> of_manifest(Context& context, Exit& exit) const {
    exit = Exit::usage;
    CUKILN_TRY(const std::vector<Target> targets, parse_targets(arch_));
    CUKILN_TRY(const Manifest manifest, load_manifest(operands_.front(), targets));
    exit = Exit::failed;
    CUKILN_TRY(const auto entries, entries_of_manifest(context, manifest, operands_.front()));
    std::vector<ObjectName> names;
    for (const ManifestEntry& entry : entries) {
      names.push_back(ObjectName::of(entry.key));
    }
    return names;
  }

  /// Returns all objects without an operand.
  Result<std::vector<ObjectName>> of_keys(StoreAdmin& admin, Exit& exit) const {
    CUKILN_TRY(const auto entries, admin.list());
    CUKILN_TRY(const auto blobs, admin.list_blobs());
    std::vector<ObjectName> names;
    const auto add = [&](const std::vector<EntrySummary>& some) {
      for (const EntrySummary& entry : some) {
        names.push_back(ObjectName::of(entry.key));
      }
    };
    for (const std::string& text : operands_) {
      const auto matches = find_entries(entries, text);
      CUKILN_TRY(const auto blob, matches ? std::optional<BlobSummary>() : find_blob(blobs, text));
      if (!matches && !blob) {
        exit = exit_of_key_error(matches.error());
        return matches.error();
      }
      matches ? add(*matches) : names.push_back(ObjectName::of(blob->id));
    }
    if (operands_.empty()) {
      add(entries);
      for (const BlobSummary& blob : blobs) {
        names.push_back(ObjectName::of(blob.id));
      }
    }
    return names;
  }

  static void print(Context& context, const Uploads& uploads) {
    if (context.json()) {
      Json document = json_of(uploads);
      document["already_there"] = uploads.already_there;
      context.print_json(document);
      return;
    }
    for (const RemoteReport::NotUploaded& reason : uploads.reasons) {
      if (!reason.is_loss) {
        context.messages().warn(fmt::format(
            "{} not uploaded: {}", counted(reason.objects, "object", "objects"), reason.detail));
      }
    }
    context.print(fmt::format("{} acknowledged before\n{}",
                              counted(uploads.already_there, "object", "objects"),
                              uploads.acknowledged + uploads.lost == 0 ? "uploads: none needed\n"
                                                                       : upload_line(uploads)));
  }

  std::vector<std::string> operands_;
  std::vector<std::string> arch_;
  bool again_ = false;
};

}  // namespace

std::unique_ptr<Command> make_push() { return std::make_unique<PushCommand>(); }

}  // namespace cukiln::cli
