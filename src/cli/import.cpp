#include <set>

#include "base/result.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/verb.hpp"
#include "remote/bundle.hpp"
#include "remote/envelope.hpp"

namespace cukiln::cli {

namespace {

class ImportVerb final : public Verb {
 public:
  VerbHelp help() const override {
    return {"import",
            "BUNDLE",
            "take entries from a bundle",
            "Checks every entry of a bundle that 'cukiln export' wrote, then puts all of them into "
            "the store. A bundle with an entry that no trusted key signed is refused whole: a "
            "cubin is code that runs with your rights. Trusted are the keys of --trust and of "
            "the setting remote_trust.",
            {{"cukiln import kernels.ckb --trust fleet-1.key.pub", "signed by that key"},
             {"cukiln import kernels.ckb --insecure",
              "from yourself: whoever wrote it could have put anything in"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("BUNDLE", bundles_);
    app.add_option("--trust", trust_, "a public key, name:base64, or a file of them; repeatable")
        ->type_name("PUBKEY");
    app.add_flag("--insecure", insecure_, "take what nobody, or anybody, signed");
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
    const auto trusted = insecure_ ? Result<TrustedKeys>(TrustedKeys()) : TrustedKeys::parse(list);
    if (!trusted) {
      return context.fail(Exit::usage, trusted.error());
    }
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    const OpenRules rules{insecure_ ? nullptr : &*trusted, nullptr};
    // Twice: nothing is taken of a bundle that is not good to its end, and none is held in memory.
    const auto nothing = [](const StoreEntry&) { return Result<void>(); };
    if (auto checked = for_each(rules, nothing); !checked) {
      const ErrorCode code = checked.error().code();
      const bool usage = code == ErrorCode::not_found || code == ErrorCode::invalid_argument;
      return context.fail(usage ? Exit::usage : Exit::failed, checked.error());
    }
    std::uint64_t stored = 0;
    std::uint64_t known = 0;
    std::set<std::string> signers;
    const auto put = [&](const StoreEntry& entry) -> Result<void> {
      CUKILN_TRY(const PutOutcome outcome, (*store)->tiers().put(entry));
      if (outcome == PutOutcome::too_large) {
        return make_error(ErrorCode::io, "{} is larger than the store's limit, max_size",
                          entry.labels.name);
      }
      ++(outcome == PutOutcome::stored ? stored : known);
      signers.insert(entry.signer);
      return {};
    };
    if (auto taken = for_each(rules, put); !taken) {
      return context.fail(Exit::store, taken.error());
    }
    if (context.json()) {
      context.print_json(Json{{"bundle", bundles_.front()},
                              {"entries", stored + known},
                              {"imported", stored},
                              {"already_there", known},
                              {"signers", signers}});
    } else {
      context.print(fmt::format("Imported {}; {} already there.\n",
                                counted(stored, "entry", "entries"),
                                known == 1 ? "1 was" : fmt::format("{} were", known)));
    }
    return Exit::done;
  }

 private:
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
      case Rejection::no_signature: return "; --insecure takes it all the same";
      case Rejection::unknown_signer: return "; --trust PUBKEY names a key to believe";
      default: return "";
    }
  }

  std::vector<std::string> bundles_;
  std::vector<std::string> trust_;
  bool insecure_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_import() { return std::make_unique<ImportVerb>(); }

}  // namespace cukiln::cli
