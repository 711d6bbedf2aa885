// SPDX-License-Identifier: Apache-2.0
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/remote_folders.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

class GcCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "gc",
        "",
        "evict entries and shrink the store",
        "Evicts the least recently used entries and blobs until the store is at most --max-size, "
        "and all that were not used within --max-age, then shrinks the file. The store stays below "
        "the setting max_size without this command. With --remote removes from the folders among "
        "the remote stores (file://) what no machine that can write there has used within "
        "--max-age, 30 days by default, by the file server's clock; nothing of the last hour goes.",
        {{"cukiln gc --max-size 512MiB", "shrinks the store to this size"},
         {"cukiln gc --max-age 30d --dry-run", "prints what would be removed"},
         {"cukiln gc --remote --max-age 60d", "in the folders that machines share"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("--max-size", max_size_,
                   "evict until the store is at most this size, such as 2GiB (default: the setting "
                   "max_size)")
        ->type_name("SIZE");
    app.add_option("--max-age", max_age_,
                   "evict what was not used within this time, such as 30d or 12h")
        ->type_name("AGE");
    app.add_flag("--remote", remote_, "in the folders among the remote stores, not in this store");
    app.add_flag("--dry-run", dry_run_, "print what would be removed, and remove nothing");
  }

  Exit run(Context& context) override {
    GcOptions options;
    options.dry_run = dry_run_;
    if (max_size_.empty()) {
      options.max_bytes = context.settings().store.max_bytes;
    } else if (auto bytes = parse_bytes(max_size_)) {
      options.max_bytes = *bytes;
    } else {
      return context.fail(Exit::usage, std::move(bytes).error().with_context("--max-size"));
    }
    if (!max_age_.empty()) {
      auto age = parse_age(max_age_);
      if (!age) {
        return context.fail(Exit::usage, std::move(age).error().with_context("--max-age"));
      }
      options.max_age_s = *age;
    }
    if (remote_) {
      return collect_remote(context, options);
    }
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    auto report = StoreAdmin(**store).collect(options);
    if (!report) {
      return context.fail(Exit::store, report.error());
    }
    if (context.json()) {
      context.print_json(Json{{"evicted", report->entries},
                              {"blobs", report->blobs},
                              {"evicted_bytes", report->bytes},
                              {"bytes_before", report->bytes_before},
                              {"bytes_after", report->bytes_after},
                              {"dry_run", dry_run_},
                              {"already_running", report->already_running}});
    } else {
      context.print(text_of(*report));
    }
    return Exit::done;
  }

 private:
  Exit collect_remote(Context& context, const GcOptions& options) const {
    constexpr std::int64_t kDefaultAgeS = 30 * 24 * 3600;
    if (!max_size_.empty()) {
      return context.usage("a folder has no size to keep: cukiln gc --remote --max-age AGE");
    }
    const auto all = collect_remote_folders(context.settings().remote.stores,
                                            options.max_age_s.value_or(kDefaultAgeS), dry_run_);
    if (!all) {
      return context.fail(exit_of(all.error()), all.error());
    }
    Json folders = Json::array();
    std::string text;
    for (const CollectedFolder& one : *all) {
      folders.push_back(
          {{"where", one.where}, {"removed_files", one.files}, {"removed_bytes", one.bytes}});
      text += fmt::format("{} {} with {} from {}.\n", dry_run_ ? "Would remove" : "Removed",
                          counted(one.files, "file", "files"), human_bytes(one.bytes), one.where);
    }
    if (context.json()) {
      context.print_json(Json{{"folders", std::move(folders)}, {"dry_run", dry_run_}});
    } else {
      context.print(text);
    }
    return Exit::done;
  }

  std::string text_of(const GcReport& report) const {
    const std::string blobs =
        report.blobs == 0 ? "" : " and " + counted(report.blobs, "blob", "blobs");
    const std::string what =
        fmt::format("{}{} with {}", counted(report.entries, "entry", "entries"), blobs,
                    human_bytes(report.bytes));
    if (report.already_running) {
      return "Another process is evicting; nothing was removed.\n";
    }
    if (report.entries + report.blobs == 0) {
      return dry_run_ ? "Nothing to remove.\n"
                      : fmt::format("Nothing to remove; the store has {}.\n",
                                    human_bytes(report.bytes_after));
    }
    return dry_run_
               ? fmt::format("Would remove {}.\n", what)
               : fmt::format("Removed {}; the store shrank from {} to {}.\n", what,
                             human_bytes(report.bytes_before), human_bytes(report.bytes_after));
  }

  std::string max_size_;
  std::string max_age_;
  bool remote_ = false;
  bool dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> make_gc() { return std::make_unique<GcCommand>(); }

}  // namespace cukiln::cli
