// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "base/result.hpp"
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "remote/bundle.hpp"
#include "remote/envelope.hpp"

namespace cukiln::cli {

namespace {

class ImportCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "import",
        "BUNDLE",
        "take entries from a bundle",
        "Checks every entry of a bundle that 'cukiln export' wrote, then stores all of them. If "
        "no trusted key signed one of the entries, the whole bundle is refused: a cubin is code "
        "that runs with your rights. The trusted keys are those of --trust and of the setting "
        "remote_trust.",
        {{"cukiln import kernels.ckb --trust fleet-1.key.pub", "entries that this key signed"},
         {"cukiln import kernels.ckb --insecure",
          "a bundle that you wrote yourself. Its entries are marked as unsigned, and "
          "'cukiln export' does not sign them"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("BUNDLE", bundles_);
    app.add_option("--trust", trust_,
                   "trust this public key: name:base64, or a file of such lines; repeatable")
        ->type_name("PUBKEY");
    app.add_flag("--insecure", insecure_, "accept entries without a trusted signature");
  }

  Exit run(Context& context) override {
    if (bundles_.size() != 1) {
      return context.usage("{}: cukiln import BUNDLE [--trust PUBKEY]...",
                           bundles_.empty() ? "a bundle is missing" : "one bundle at a time");
    }
    std::string list = context.settings().remote.trust;
    for (const std::string& key : trust_) {
      list += (list.empty() ? "" : ",") + key;
    }
    const auto trusted = TrustedKeys::parse(list);
    if (!trusted) {
      return context.fail(Exit::usage, trusted.error());
    }
    const OpenRules rules{&*trusted, nullptr, insecure_};
    // Reads the bundle twice: stores nothing unless every entry is valid, and keeps none in memory.
    std::uint64_t entries = 0;
    const auto count = [&](const StoreEntry&) {
      ++entries;
      return Result<void>();
    };
    if (auto checked = for_each(rules, count); !checked) {
      const ErrorCode code = checked.error().code();
      const bool usage = code == ErrorCode::not_found || code == ErrorCode::invalid_argument;
      return context.fail(usage ? Exit::usage : Exit::failed, checked.error());
    }
    Imported imported;
    auto store = context.disk_store();
    const auto put = [&](const StoreEntry& entry) -> Result<void> {
      imported.put(**store, entry);
      return {};
    };
    if (!store) {
      imported.refuse_all(entries, store.error());
    } else if (auto read = for_each(rules, put); !read) {  // the file was replaced meanwhile
      return context.fail(Exit::failed, read.error());
    }
    print(context, entries, imported);
    // A disabled store refuses nothing.
    const bool refused = !imported.not_stored.empty() && !context.settings().store.memory_only;
    return refused ? Exit::store : Exit::done;
  }

 private:
  /// Counts what became of the entries.
  struct Imported {
    std::uint64_t stored = 0;
    std::uint64_t known = 0;
    std::map<std::string, std::uint64_t> not_stored;  // by reason
    std::set<std::string> signers;

    void put(Store& store, const StoreEntry& entry) {
      signers.insert(entry.signer);
      const auto outcome = StoreAdmin(store).put(entry);
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
  Result<void> for_each(const OpenRules& rules, Body&& body) const {
    CUKILN_TRY(BundleReader bundle, BundleReader::open(bundles_.front()));
    for (std::uint32_t index = 1;; ++index) {
      CUKILN_TRY(const auto bytes, bundle.next());
      if (!bytes) {
        return {};
      }
      Rejection why = Rejection::none;
      auto entry = open_entry(*bytes, rules, why);
      if (!entry) {
        return make_error(ErrorCode::corrupt, "{}, entry {} of {}: {}{}", bundles_.front(), index,
                          bundle.count(), entry.error().message(), advice(why));
      }
      entry->origin = Origin::imported;
      CUKILN_CHECK(body(*entry));
    }
  }

  static const char* advice(Rejection why) {
    switch (why) {
      case Rejection::no_signature: return "; --insecure accepts it";
      case Rejection::unknown_signer: return "; --trust PUBKEY trusts a key";
      default: return "";
    }
  }

  std::vector<std::string> bundles_;
  std::vector<std::string> trust_;
  bool insecure_ = false;
};

}  // namespace

std::unique_ptr<Command> make_import() { return std::make_unique<ImportCommand>(); }

}  // namespace cukiln::cli
