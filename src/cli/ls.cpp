// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>

#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/table.hpp"
#include "core/base/printable.hpp"
#include "core/base/result.hpp"
#include "core/loader/entry_order.hpp"

namespace cukiln::cli {

namespace {

using Entries = std::vector<EntrySummary>;

struct Order {
  const char* name;
  entry_order::Before before;
};

constexpr Order kOrders[] = {{"age", entry_order::latest_used},
                             {"size", entry_order::largest},
                             {"time", entry_order::slowest_compiled},
                             {"hits", entry_order::most_hits}};

class LsCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "ls",
        "",
        "list the entries of the store",
        "Lists the entries of the user's store, and those that only the read-only system store "
        "has; with --blobs, what other compilers keep in the store: Triton, Inductor, cuda.core. "
        "In "
        "JSON, times are seconds since 1970.",
        {{"cukiln ls", "all entries, the latest used first"},
         {"cukiln ls --arch sm_90a --name 'quantize*'", "entries of one target and matching names"},
         {"cukiln ls --sort time", "the slowest compiles first"},
         {"cukiln ls --blobs", "what adapters stored for other compilers, the latest used first"},
         {"cukiln ls --json | jq -r '.entries[].key'", "the keys, for a script"}}};
  }

  void add_options(CLI::App& app) override {
    filter_.add_to(app);
    app.add_option("--sort", sort_,
                   "age (latest used first, the default), size, time (of the compile) or hits")
        ->type_name("ORDER");
    app.add_flag("--blobs", blobs_, "list blobs instead of entries; --name is their kind");
  }

  Exit run(Context& context) override {
    if (auto usable = filter_.apply({}); !usable) {
      return context.fail(Exit::usage, usable.error());
    }
    const auto* const order = std::find_if(std::begin(kOrders), std::end(kOrders),
                                           [&](const Order& o) { return sort_ == o.name; });
    if (order == std::end(kOrders)) {
      return context.usage("--sort takes age, size, time or hits, not \"{}\"", sort_);
    }
    if (blobs_ && (sort_ == "time" || filter_.has_arch())) {
      return context.usage("--blobs excludes {}: a blob has no {}",
                           sort_ == "time" ? "--sort time" : "--arch",
                           sort_ == "time" ? "time of a compile" : "target");
    }
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    StoreAdmin admin(**store);
    if (blobs_) {
      return list_blobs(context, admin);
    }
    auto listed = admin.list();
    if (!listed) {
      return context.fail(Exit::store, listed.error());
    }
    const bool store_is_empty = listed->empty();
    Entries entries = *filter_.apply(*std::move(listed));
    std::stable_sort(entries.begin(), entries.end(), order->before);
    if (context.json()) {
      Json list = Json::array();
      for (const EntrySummary& entry : entries) {
        list.push_back(json_of(entry));
      }
      context.print_json(Json{{"entries", std::move(list)}});
    } else if (entries.empty()) {
      const std::uint64_t blobs = admin.facts().blobs;
      context.print(
          store_is_empty && blobs != 0 ? "No entries; 'cukiln ls --blobs' lists the blobs.\n"
          : store_is_empty
              ? fmt::format("The store in {} is empty; 'cukiln preload --no-load' fills it.\n",
                            printable(context.settings().store.directory))
              : "No entry matches.\n");
    } else {
      print(context, entries);
      if (const StoreFacts facts = admin.facts(); facts.blobs != 0) {
        context.print(fmt::format("and {} with {}: 'cukiln ls --blobs'\n",
                                  counted(facts.blobs, "blob", "blobs"),
                                  human_bytes(facts.blob_bytes)));
      }
    }
    return Exit::done;
  }

 private:
  Exit list_blobs(Context& context, StoreAdmin& admin) const {
    auto blobs = admin.list_blobs();
    if (!blobs) {
      return context.fail(Exit::store, blobs.error());
    }
    std::erase_if(*blobs, [&](const BlobSummary& blob) { return !filter_.names(blob.kind); });
    std::stable_sort(blobs->begin(), blobs->end(), [&](const auto& a, const auto& b) {
      return sort_ == "size"   ? a.size_bytes > b.size_bytes
             : sort_ == "hits" ? a.hits > b.hits
                               : a.last_used_s > b.last_used_s;
    });
    if (context.json()) {
      Json list = Json::array();
      for (const BlobSummary& blob : *blobs) {
        list.push_back(blob_json(blob));
      }
      context.print_json(Json{{"blobs", std::move(list)}});
    } else if (blobs->empty()) {
      context.print("No blobs.\n");
    } else {
      print(context, *blobs);
    }
    return Exit::done;
  }

  static void print(const Context& context, const std::vector<BlobSummary>& blobs) {
    Table table({{"ID"},
                 {"KIND"},
                 {"KEY", Column::Align::left, true, 10},
                 {"SIZE", Column::Align::right},
                 {"HITS", Column::Align::right},
                 {"USED", Column::Align::right}});
    std::uint64_t bytes = 0;
    const std::int64_t now = now_s();
    for (const BlobSummary& blob : blobs) {
      bytes += blob.size_bytes;
      table.add({{short_key(blob.id), Color::yellow},
                 {blob.kind, Color::bold},
                 key_text(blob),
                 human_bytes(blob.size_bytes),
                 human_count(static_cast<std::uint64_t>(blob.hits)),
                 human_age(now - blob.last_used_s)});
    }
    context.print(table.text(context.out()));
    context.print(
        fmt::format("\n{}, {}\n", counted(blobs.size(), "blob", "blobs"), human_bytes(bytes)));
  }

  static void print(const Context& context, const Entries& entries) {
    Table table({{"KEY"},
                 {"NAME", Column::Align::left, true, 10},
                 {"TARGET"},
                 {"CUBIN", Column::Align::right},
                 {"COMPILE", Column::Align::right},
                 {"HITS", Column::Align::right},
                 {"USED", Column::Align::right}});
    std::uint64_t bytes = 0;
    std::int64_t compile_us = 0;
    const std::int64_t now = now_s();
    for (const EntrySummary& entry : entries) {
      bytes += entry.cubin_bytes;
      compile_us += entry.compile_us;
      table.add({{short_key(entry.key), Color::yellow},
                 {entry.labels.name, Color::bold},
                 entry.labels.target,
                 human_bytes(entry.cubin_bytes),
                 human_ms(static_cast<double>(entry.compile_us) / 1000),
                 human_count(static_cast<std::uint64_t>(entry.hits)),
                 entry.last_used_s == 0 ? "-" : human_age(now - entry.last_used_s)});
    }
    context.print(table.text(context.out()));
    context.print(fmt::format("\n{}, {} of cubins, {} of compiling\n",
                              counted(entries.size(), "entry", "entries"), human_bytes(bytes),
                              human_ms(static_cast<double>(compile_us) / 1000)));
  }

  EntryFilter filter_;
  std::string sort_ = "age";
  bool blobs_ = false;
};

}  // namespace

std::unique_ptr<Command> make_ls() { return std::make_unique<LsCommand>(); }

}  // namespace cukiln::cli
