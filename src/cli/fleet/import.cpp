// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "addons/fleet/system_store.hpp"
#include "cli/bundle_input.hpp"
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/uploads.hpp"
#include "core/base/result.hpp"
#include "core/loader/module_request.hpp"

namespace cukiln::cli {

namespace {

class ImportCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "import",
        "BUNDLE",
        "take entries and blobs from a bundle",
        "Checks every entry and blob of a bundle or an OCI image layout that 'cukiln export' "
        "wrote, then stores all of them. If no trusted key signed one of them, the "
        "whole bundle is refused: what it holds is code that runs with your rights. The trusted "
        "keys are those of --trust and of the setting remote_trust. A key with modules= signs no "
        "blobs. A blob that the store has already stays as it is.",
        {{"cukiln import kernels.ckb --trust fleet-1.key.pub", "entries that this key signed"},
         {"cukiln import k.ckb --trust fleet-1.key.pub --system-store /var/cache/cukiln",
          "in the build of an image, or for all users of a machine"},
         {"cukiln import kernels.ckb --trust fleet-1.key.pub --no-blobs",
          "without what other compilers kept in the store that it is from"},
         {"cukiln import kernels.ckb --insecure",
          "a bundle that you wrote yourself. Its entries are marked as unsigned, and "
          "'cukiln export' does not sign them"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("BUNDLE", bundles_);
    input_.add_to(app);
    app.add_option("--system-store", system_store_,
                   "add them to the system store in this folder, which is made if it is missing, "
                   "instead of the user's store")
        ->type_name("DIR");
    app.add_flag("--no-blobs", no_blobs_, "import the entries alone, and do not read the blobs");
  }

  Exit run(Context& context) override {
    if (bundles_.size() != 1) {
      return context.usage("{}: cukiln import BUNDLE [--trust PUBKEY]...",
                           bundles_.empty() ? "a bundle is missing" : "one bundle at a time");
    }
    if (auto keys = input_.read_keys(context); !keys) {
      return context.fail(Exit::usage, keys.error());
    }
    // Reads the bundle twice: stores nothing unless all of it is valid, and keeps none in memory.
    Amount whole;
    const auto count = [&](auto& number) {
      return [&number](const auto&) {
        ++number;
        return Result<void>();
      };
    };
    if (auto checked = for_each(count(whole.entries), count(whole.blobs)); !checked) {
      return context.fail(exit_of_bundle(checked.error()), checked.error());
    }
    Imported imported;
    if (auto read = system_store_.empty() ? fill_user_store(context, whole, imported)
                                          : fill_system_store(whole, imported);
        !read) {  // the file was replaced meanwhile
      return context.fail(Exit::failed, read.error());
    }
    const Uploads uploads = upload(context, imported.names, /*is_purpose=*/true);
    print(context, whole, imported, uploads);
    // A disabled store refuses nothing.
    const bool disabled = system_store_.empty() && context.settings().store.memory_only;
    const bool is_incomplete = (!imported.not_stored.empty() && !disabled) || uploads.lost != 0;
    return is_incomplete ? Exit::store : Exit::done;
  }

 private:
  struct Amount {
    std::uint64_t entries = 0, blobs = 0;

    std::string text() const {
      const std::string some = counted(blobs, "blob", "blobs");
      return blobs == 0     ? counted(entries, "entry", "entries")
             : entries == 0 ? some
                            : counted(entries, "entry", "entries") + " and " + some;
    }
  };

  /// Counts what became of the entries and blobs.
  struct Imported {
    Amount stored;
    Amount already_there;
    std::map<std::string, Amount> not_stored;  // by reason
    std::set<std::string> signers;
    std::vector<ObjectName> names;  // in the user's store

    /// `number`: which of the two numbers counts it.
    void count(const std::string& signer, std::uint64_t Amount::*number,
               const Result<PutOutcome>& outcome) {
      signers.emplace(without_mark(signer));
      if (!outcome) {
        ++(not_stored[outcome.error().message()].*number);
        return;
      }
      switch (*outcome) {
        case PutOutcome::stored: ++(stored.*number); return;
        case PutOutcome::already_there: ++(already_there.*number); return;
        case PutOutcome::too_large:
          ++(not_stored["larger than the store's limit, max_size"].*number);
          return;
        case PutOutcome::not_stored: ++(not_stored["the store is read-only"].*number); return;
      }
    }
    void refuse_all(const Amount& whole, const Error& why) {
      if (whole.entries + whole.blobs != 0) {
        not_stored[why.message()] = whole;
      }
    }
  };

  Result<void> fill_user_store(Context& context, const Amount& whole, Imported& imported) const {
    auto store = context.disk_store();
    if (!store) {
      imported.refuse_all(whole, store.error());
      return {};
    }
    StoreAdmin admin(**store);
    return put_all(imported, [&](const auto& one) {
      auto outcome = admin.put(one);
      const auto id = id_of(one);
      if (outcome && *outcome == PutOutcome::not_stored) {
        const auto there = admin.peek(id);
        outcome = there && *there ? PutOutcome::already_there : PutOutcome::not_stored;
      }
      if (outcome && (*outcome == PutOutcome::stored || *outcome == PutOutcome::already_there)) {
        imported.names.push_back(ObjectName::of(id));
      }
      return outcome;
    });
  }

  /// All of it or nothing: an image that lacks kernels should not be built.
  Result<void> fill_system_store(const Amount& whole, Imported& imported) const {
    const auto refuse = [&](const Error& why) -> Result<void> {
      imported = Imported();
      imported.refuse_all(whole, why);
      return {};
    };
    auto writer = SystemStoreWriter::create(absolute_path(system_store_));
    if (!writer) {
      return refuse(writer.error());
    }
    CUKILN_CHECK(put_all(imported, [&](const auto& one) { return writer->add(one); }));
    if (!imported.not_stored.empty()) {
      return refuse(Error(ErrorCode::io, imported.not_stored.begin()->first));
    }
    const auto written = writer->finish();
    return written ? Result<void>() : refuse(written.error());
  }

  static const CacheKey& id_of(const StoreEntry& entry) { return entry.key; }
  static BlobId id_of(const StoreBlob& blob) { return BlobName::id_of(blob.kind, blob.key); }

  void print(Context& context, const Amount& whole, const Imported& imported,
             const Uploads& uploads) const {
    if (context.json()) {
      Json reasons = Json::array();
      for (const auto& [reason, count] : imported.not_stored) {
        reasons.push_back(
            Json{{"reason", reason}, {"entries", count.entries}, {"blobs", count.blobs}});
      }
      context.print_json(Json{{"bundle", bundles_.front()},
                              {"entries", whole.entries},
                              {"imported", imported.stored.entries},
                              {"stored", imported.stored.entries},
                              {"already_there", imported.already_there.entries},
                              {"blobs",
                               {{"blobs", whole.blobs},
                                {"stored", imported.stored.blobs},
                                {"already_there", imported.already_there.blobs}}},
                              {"not_stored", std::move(reasons)},
                              {"uploads", json_of(uploads)},
                              {"signers", imported.signers}});
      return;
    }
    const std::uint64_t already_there =
        imported.already_there.entries + imported.already_there.blobs;
    context.print(
        fmt::format("Imported {}; {} already there.\n", imported.stored.text(),
                    already_there == 1 ? "1 was" : fmt::format("{} were", already_there)) +
        upload_line(uploads));
    for (const auto& [reason, count] : imported.not_stored) {
      context.messages().log(LogLevel::error,
                             fmt::format("{} not stored: {}", count.text(), reason));
    }
  }

  Result<void> for_each(const BundleInput::EntryBody& on_entry,
                        const BundleInput::BlobBody& on_blob) const {
    return input_.for_each(bundles_.front(), on_entry,
                           no_blobs_ ? BundleInput::BlobBody() : on_blob);
  }

  /// Puts what the bundle holds with `put`, and counts the outcomes.
  template <class Put>
  Result<void> put_all(Imported& imported, const Put& put) const {
    return for_each(
        [&](const StoreEntry& entry) -> Result<void> {
          imported.count(entry.signer, &Amount::entries, put(entry));
          return {};
        },
        [&](const StoreBlob& blob) -> Result<void> {
          imported.count(blob.signer, &Amount::blobs, put(blob));
          return {};
        });
  }

  std::vector<std::string> bundles_;
  BundleInput input_;
  std::string system_store_;
  bool no_blobs_ = false;
};

}  // namespace

std::unique_ptr<Command> make_import() { return std::make_unique<ImportCommand>(); }

}  // namespace cukiln::cli
