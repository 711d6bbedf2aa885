// SPDX-License-Identifier: Apache-2.0
#include "base/result.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/verb.hpp"

namespace cukiln::cli {

namespace {

class RmVerb final : public Verb {
 public:
  VerbHelp help() const override {
    return {
        "rm",
        "KEY... | --all",
        "remove entries",
        "Removes entries from the user's store. What is still needed is compiled again when it is "
        "asked for. When a KEY is unknown or ambiguous, nothing is removed.",
        {{"cukiln rm 3fa9c01d", "one entry, by the beginning of its key"},
         {"cukiln rm --all", "everything"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("KEY", keys_);
    app.add_flag("--all", all_, "remove every entry");
  }

  Exit run(Context& context) override {
    if (all_ == !keys_.empty()) {
      return context.usage("{}: cukiln rm KEY... | --all",
                           all_ ? "keys and --all exclude each other" : "a key is missing");
    }
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    TieredStore& tiers = (*store)->tiers();
    std::vector<CacheKey> removed;
    std::uint64_t count = 0;
    if (all_) {
      auto all = tiers.remove_all();
      if (!all) {
        return context.fail(Exit::store, all.error());
      }
      count = *all;
    } else {
      auto entries = tiers.list();
      if (!entries) {
        return context.fail(Exit::store, entries.error());
      }
      for (const std::string& text : keys_) {
        const auto key = find_key(*entries, text);
        if (!key) {
          return context.fail(exit_of_key_error(key.error()), key.error());
        }
        removed.push_back(*key);
      }
      for (const CacheKey& key : removed) {
        const auto was_there = tiers.remove(key);
        if (!was_there) {
          return context.fail(Exit::store, was_there.error());
        }
        if (!*was_there) {
          context.messages().warn(fmt::format(
              "{} is in the read-only system store alone and stays there", short_key(key)));
        }
        count += *was_there ? 1 : 0;
      }
    }
    if (context.json()) {
      context.print_json(Json{{"removed", count}});
    } else {
      context.print(fmt::format("Removed {}.\n", counted(count, "entry", "entries")));
    }
    return Exit::done;
  }

 private:
  std::vector<std::string> keys_;
  bool all_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_rm() { return std::make_unique<RmVerb>(); }

}  // namespace cukiln::cli
