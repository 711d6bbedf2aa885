// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "base/result.hpp"
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/table.hpp"

namespace cukiln::cli {

namespace {

class StatsCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {"stats",
            "",
            "show the store's counters",
            "Shows the counters of all processes that used the user's store, since it was made.",
            {{"cukiln stats", "hits, misses by reason, time saved"},
             {"cukiln stats --json", "for a dashboard; times in milliseconds"}}};
  }

  void add_options(CLI::App&) override {}

  Exit run(Context& context) override {
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    StoreAdmin admin(**store);
    auto counters = admin.counters();
    if (!counters) {
      return context.fail(Exit::store, counters.error());
    }
    const StoreStats now = admin.stats();
    const StoreFacts facts = admin.facts();
    const auto count = [&](const char* name) {
      const auto at = counters->find(name);
      return at == counters->end() || at->second < 0 ? 0 : static_cast<std::uint64_t>(at->second);
    };
    const std::uint64_t misses = count("misses_new") + count("misses_header_changed") +
                                 count("misses_header_appeared") + count("misses_header_vanished") +
                                 count("misses_damaged") + count("misses_revoked") +
                                 count("misses_evicted");
    const double saved_ms = static_cast<double>(count("saved_us")) / 1000;
    if (context.json()) {
      context.print_json(Json{{"entries", now.entries},
                              {"bytes", now.bytes},
                              {"hits", count("hits")},
                              {"misses", misses},
                              {"misses_by_reason",
                               {{"new", count("misses_new")},
                                {"header_changed", count("misses_header_changed")},
                                {"header_appeared", count("misses_header_appeared")},
                                {"header_vanished", count("misses_header_vanished")},
                                {"damaged", count("misses_damaged")},
                                {"revoked", count("misses_revoked")},
                                {"evicted", count("misses_evicted")}}},
                              {"compiles", count("compiles")},
                              {"failed", count("failed")},
                              {"stored", count("stored")},
                              {"not_stored", count("not_stored")},
                              {"evicted", count("evicted")},
                              {"corrupt", count("corrupt")},
                              {"singleflight_waits", count("singleflight_waits")},
                              {"saved_ms", saved_ms},
                              {"store_errors", count("store_errors")},
                              {"blobs",
                               {{"blobs", facts.blobs},
                                {"bytes", facts.blob_bytes},
                                {"hits", count("blob_hits")},
                                {"misses", count("blob_misses")},
                                {"waits", count("blob_waits")},
                                {"stored", count("blobs_stored")},
                                {"evicted", count("blobs_evicted")}}},
                              {"remote",
                               {{"hits", count("remote_hits")},
                                {"misses", count("remote_misses")},
                                {"stored", count("remote_stored")},
                                {"dropped", count("remote_dropped")},
                                {"waits", count("remote_waits")},
                                {"errors", count("remote_errors")},
                                {"rejected", count("remote_rejected")}}}});
      return Exit::done;
    }
    Table table({{""}, {"", Column::Align::right}, {""}});
    const auto row = [&](const char* what, const std::string& value, const char* note = "") {
      table.add({what, {value, Color::bold}, {note, Color::dim}});
    };
    row("entries", human_count(now.entries));
    row("files", human_bytes(now.bytes));
    row("hits", human_count(count("hits")));
    row("time saved", human_ms(saved_ms), "compiles that hits saved");
    row("misses", human_count(misses));
    row("  new", human_count(count("misses_new")), "source, flags or target not stored");
    row("  header changed", human_count(count("misses_header_changed")));
    row("  header appeared", human_count(count("misses_header_appeared")));
    row("  header vanished", human_count(count("misses_header_vanished")));
    row("  damaged", human_count(count("misses_damaged")));
    row("  revoked", human_count(count("misses_revoked")), "signed by a key that was revoked");
    row("  evicted", human_count(count("misses_evicted")));
    row("compiles", human_count(count("compiles")));
    row("failed compiles", human_count(count("failed")));
    row("stored", human_count(count("stored")));
    row("not stored", human_count(count("not_stored")), "compiled and used, but not stored");
    row("evicted", human_count(count("evicted")), "least recently used");
    row("damage found", human_count(count("corrupt")), "and removed");
    row("waits", human_count(count("singleflight_waits")),
        "for a concurrent compile of the same request");
    row("store errors", human_count(count("store_errors")), "tolerated");
    blob_rows(facts, count, row);
    remote_rows(count, row);
    context.print(table.text(context.out()));
    return Exit::done;
  }

 private:
  /// Adds the rows of blobs, if there ever was one.
  template <class Count, class Row>
  static void blob_rows(const StoreFacts& facts, const Count& count, const Row& row) {
    if (facts.blobs + count("blob_hits") + count("blob_misses") == 0) {
      return;
    }
    row("blobs", human_count(facts.blobs), "of other compilers");
    row("  bytes", human_bytes(facts.blob_bytes));
    row("  hits", human_count(count("blob_hits")));
    row("  misses", human_count(count("blob_misses")));
    row("  waits", human_count(count("blob_waits")), "for another process that compiled the same");
    row("  stored", human_count(count("blobs_stored")));
    row("  evicted", human_count(count("blobs_evicted")));
  }

  /// Adds the rows of remote stores, if one was ever used.
  template <class Count, class Row>
  static void remote_rows(const Count& count, const Row& row) {
    if (count("remote_hits") + count("remote_misses") + count("remote_errors") == 0) {
      return;
    }
    row("remote hits", human_count(count("remote_hits")), "compiled by other machines");
    row("remote misses", human_count(count("remote_misses")));
    row("uploads", human_count(count("remote_stored")));
    row("uploads dropped", human_count(count("remote_dropped")));
    row("remote waits", human_count(count("remote_waits")), "for another machine's compile");
    row("remote errors", human_count(count("remote_errors")), "tolerated");
    row("remote rejected", human_count(count("remote_rejected")),
        "no valid signature of a trusted key");
  }
};

}  // namespace

std::unique_ptr<Command> make_stats() { return std::make_unique<StatsCommand>(); }

}  // namespace cukiln::cli
