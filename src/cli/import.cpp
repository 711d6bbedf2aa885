// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "base/result.hpp"
#include "cli/bundle_input.hpp"
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "loader/module_request.hpp"
#include "store/system_store.hpp"

namespace cukiln::cli {

namespace {

class ImportCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "import",
        "BUNDLE",
        "take entries from a bundle",
        "Checks every entry of a bundle or an OCI image layout that 'cukiln export' wrote, then "
        "stores all of them. If no trusted key signed one of the entries, the whole bundle is "
        "refused: a cubin is code that runs with your rights. The trusted keys are those of "
        "--trust and of the setting "
        "remote_trust.",
        {{"cukiln import kernels.ckb --trust fleet-1.key.pub", "entries that this key signed"},
         {"cukiln import kernels.ckb --trust fleet-1.key.pub --system-store /var/cache/cukiln",
          "in the build of an image, or for all users of a machine"},
         {"cukiln import kernels.ckb --insecure",
          "a bundle that you wrote yourself. Its entries are marked as unsigned, and "
          "'cukiln export' does not sign them"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("BUNDLE", bundles_);
    input_.add_to(app);
    app.add_option("--system-store", system_store_,
                   "add the entries to the system store in this folder, which is made if it is "
                   "missing, instead of the user's store")
        ->type_name("DIR");
  }

  Exit run(Context& context) override {
    if (bundles_.size() != 1) {
      return context.usage("{}: cukiln import BUNDLE [--trust PUBKEY]...",
                           bundles_.empty() ? "a bundle is missing" : "one bundle at a time");
    }
    if (auto keys = input_.read_keys(context); !keys) {
      return context.fail(Exit::usage, keys.error());
    }
    // Reads the bundle twice: stores nothing unless every entry is valid, and keeps none in memory.
    std::uint64_t entries = 0;
    const auto count = [&](const StoreEntry&) {
      ++entries;
      return Result<void>();
    };
    if (auto checked = for_each(count); !checked) {
      return context.fail(exit_of_bundle(checked.error()), checked.error());
    }
    Imported imported;
    if (auto read = system_store_.empty() ? fill_user_store(context, entries, imported)
                                          : fill_system_store(entries, imported);
        !read) {  // the file was replaced meanwhile
      return context.fail(Exit::failed, read.error());
    }
    print(context, entries, imported);
    // A disabled store refuses nothing.
    const bool disabled = system_store_.empty() && context.settings().store.memory_only;
    return !imported.not_stored.empty() && !disabled ? Exit::store : Exit::done;
  }

 private:
  /// Counts what became of the entries.
  struct Imported {
    std::uint64_t stored = 0;
    std::uint64_t known = 0;
    std::map<std::string, std::uint64_t> not_stored;  // by reason
    std::set<std::string> signers;

    void count(const StoreEntry& entry, const Result<PutOutcome>& outcome) {
      signers.insert(entry.signer);
      if (!outcome) {
        ++not_stored[outcome.error().message()];
        return;
      }
      switch (*outcome) {
        case PutOutcome::stored: ++stored; return;
        case PutOutcome::already_there: ++known; return;
        case PutOutcome::too_large: ++not_stored["larger than the store's limit, max_size"]; return;
        case PutOutcome::not_stored: ++not_stored["the store is read-only"]; return;
      }
    }
    void refuse_all(std::uint64_t entries, const Error& why) {
      if (entries != 0) {
        not_stored[why.message()] = entries;
      }
    }
  };

  Result<void> fill_user_store(Context& context, std::uint64_t entries, Imported& imported) const {
    auto store = context.disk_store();
    if (!store) {
      imported.refuse_all(entries, store.error());
      return {};
    }
    StoreAdmin admin(**store);
    return for_each([&](const StoreEntry& entry) -> Result<void> {
      imported.count(entry, admin.put(entry));
      return {};
    });
  }

  /// All entries or none: an image that lacks kernels should not be built.
  Result<void> fill_system_store(std::uint64_t entries, Imported& imported) const {
    const auto refuse = [&](const Error& why) -> Result<void> {
      imported = Imported();
      imported.refuse_all(entries, why);
      return {};
    };
    auto writer = SystemStoreWriter::create(absolute_path(system_store_));
    if (!writer) {
      return refuse(writer.error());
    }
    CUKILN_CHECK(for_each([&](const StoreEntry& entry) -> Result<void> {
      imported.count(entry, writer->add(entry));
      return {};
    }));
    if (!imported.not_stored.empty()) {
      return refuse(Error(ErrorCode::io, imported.not_stored.begin()->first));
    }
    const auto written = writer->finish();
    return written ? Result<void>() : refuse(written.error());
  }

  void print(Context& context, std::uint64_t entries, const Imported& imported) const {
    if (context.json()) {
      Json reasons = Json::array();
      for (const auto& [reason, count] : imported.not_stored) {
        reasons.push_back(Json{{"reason", reason}, {"entries", count}});
      }
      context.print_json(Json{{"bundle", bundles_.front()},
                              {"entries", entries},
                              {"imported", imported.stored},
                              {"stored", imported.stored},
                              {"already_there", imported.known},
                              {"not_stored", std::move(reasons)},
                              {"signers", imported.signers}});
      return;
    }
    context.print(fmt::format(
        "Imported {}; {} already there.\n", counted(imported.stored, "entry", "entries"),
        imported.known == 1 ? "1 was" : fmt::format("{} were", imported.known)));
    for (const auto& [reason, count] : imported.not_stored) {
      context.messages().log(
          LogLevel::error,
          fmt::format("{} not stored: {}", counted(count, "entry", "entries"), reason));
    }
  }

  template <class Body>
  Result<void> for_each(const Body& body) const {
    return input_.for_each(bundles_.front(), body);
  }

  std::vector<std::string> bundles_;
  BundleInput input_;
  std::string system_store_;
};

}  // namespace

std::unique_ptr<Command> make_import() { return std::make_unique<ImportCommand>(); }

}  // namespace cukiln::cli
