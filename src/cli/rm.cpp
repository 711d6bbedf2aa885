// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

class RmCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "rm",
        "KEY|NAME... | --all",
        "remove entries",
        "Removes entries from the user's store: one by a prefix of its key, or all of a module "
        "by its name; a blob by a prefix of its id. The next request compiles a removed entry "
        "again. If a KEY is unknown or ambiguous, nothing is removed. --all removes all entries "
        "and blobs.",
        {{"cukiln rm 3fa9c01d", "one entry, by a prefix of its key"},
         {"cukiln rm amax --arch sm_90a", "a module's entries for one target"},
         {"cukiln rm --name 'test_*'", "the entries of all matching modules"},
         {"cukiln rm --all", "every entry and blob"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("KEY", keys_);
    filter_.add_to(app);
    app.add_flag("--all", all_, "remove every entry and every blob");
  }

  Exit run(Context& context) override {
    if (all_ == (!keys_.empty() || !filter_.empty())) {
      return context.usage(
          "{}: cukiln rm KEY|NAME... | --all",
          all_ ? "--all and other choices exclude each other" : "a key or name is missing");
    }
    if (auto usable = filter_.apply({}); !usable) {
      return context.fail(Exit::usage, usable.error());
    }
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    StoreAdmin admin(**store);
    std::uint64_t count = 0;
    if (all_) {
      auto all = admin.remove_all();
      if (!all) {
        return context.fail(Exit::store, all.error());
      }
      count = *all;
    } else if (const Exit exit = remove_chosen(context, admin, count); exit != Exit::done) {
      return exit;
    }
    if (context.json()) {
      context.print_json(Json{{"removed", count}});
    } else {
      context.print(fmt::format("Removed {}.\n", counted(count, "entry", "entries")));
    }
    return Exit::done;
  }

 private:
  /// Removes what keys and filter choose, and counts it.
  Exit remove_chosen(Context& context, StoreAdmin& admin, std::uint64_t& count) const {
    auto entries = admin.list();
    if (!entries) {
      return context.fail(Exit::store, entries.error());
    }
    const auto blobs = admin.list_blobs();
    if (!blobs) {
      return context.fail(Exit::store, blobs.error());
    }
    std::vector<BlobId> blob_ids;
    const auto keys = choose(*std::move(entries), *blobs, blob_ids);
    if (!keys) {
      return context.fail(exit_of_key_error(keys.error()), keys.error());
    }
    for (const CacheKey& key : *keys) {
      const auto was_there = admin.remove(ObjectName::of(key));
      if (!was_there) {
        return context.fail(Exit::store, was_there.error());
      }
      if (!*was_there) {
        context.messages().warn(
            fmt::format("{} is only in the system store, which is read-only", short_key(key)));
      }
      count += *was_there ? 1 : 0;
    }
    for (const BlobId& id : blob_ids) {
      const auto was_there = admin.remove(ObjectName::of(id));
      if (!was_there) {
        return context.fail(Exit::store, was_there.error());
      }
      count += *was_there ? 1 : 0;
    }
    return Exit::done;
  }

  /// Returns the entries, and adds the blobs that are named by their ids.
  Result<std::vector<CacheKey>> choose(std::vector<EntrySummary> entries,
                                       const std::vector<BlobSummary>& blobs,
                                       std::vector<BlobId>& blob_ids) const {
    std::vector<CacheKey> keys;
    const auto add = [&](const std::vector<EntrySummary>& matches) {
      for (const EntrySummary& entry : matches) {
        if (std::find(keys.begin(), keys.end(), entry.key) == keys.end()) {
          keys.push_back(entry.key);
        }
      }
    };
    for (const std::string& text : keys_) {
      const auto matches = find_entries(entries, text);
      if (!matches && filter_.empty()) {
        CUKILN_TRY(const auto blob, find_blob(blobs, text));
        if (blob) {
          blob_ids.push_back(blob->id);
          continue;
        }
      }
      if (!matches) {
        return matches.error();
      }
      CUKILN_TRY(const auto filtered, filter_.apply(*matches));
      add(filtered);
    }
    const std::size_t all = entries.size();
    if (keys_.empty()) {
      CUKILN_TRY(const auto of_all, filter_.apply(std::move(entries)));
      add(of_all);
    }
    if (keys.empty() && blob_ids.empty()) {
      return make_error(ErrorCode::not_found, "no entry matches; {}", where_to_look(all));
    }
    return keys;
  }

  EntryFilter filter_;
  std::vector<std::string> keys_;
  bool all_ = false;
};

}  // namespace

std::unique_ptr<Command> make_rm() { return std::make_unique<RmCommand>(); }

}  // namespace cukiln::cli
