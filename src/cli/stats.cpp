// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/start_report.hpp"
#include "cli/table.hpp"
#include "core/base/result.hpp"
#include "core/loader/start_record.hpp"
#include "core/loader/stats_fields.hpp"

namespace cukiln::cli {

namespace {

double ms_of(std::uint64_t us) { return static_cast<double>(us) / 1000; }

Json value_of(const StatsField& field, const Stats& total) {
  const std::uint64_t value = total.*field.member;
  return field.unit == Unit::us ? Json(ms_of(value)) : Json(value);
}

std::string shown(const StatsField& field, const Stats& total) {
  const std::uint64_t value = total.*field.member;
  switch (field.unit) {
    case Unit::bytes: return human_bytes(value);
    case Unit::us: return human_ms(ms_of(value));
    case Unit::count: break;
  }
  return human_count(value);
}

class StatsCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "stats",
        "",
        "show the store's counters",
        "Shows the counters of all processes that used the user's store, since it was made. With "
        "--start it shows how the last starts went, by phase and module, and what to do about "
        "each miss: a loader leaves a record at seal() or its end.",
        {{"cukiln stats", "hits, misses by reason, time saved"},
         {"cukiln stats --start", "what the last starts compiled, and why"},
         {"cukiln stats --json", "for a dashboard; times in milliseconds"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_flag("--start", start_, "how the last 16 starts went");
  }

  Exit run(Context& context) override {
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    if (start_) {
      print_starts(context, read_starts(**store));
      return Exit::done;
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
    Stats total;
    for (const StatsField& field : kStatsFields) {
      total.*field.member = count(field.name);
    }
    total.entries = now.entries;
    total.store_bytes = now.bytes;
    total.misses = 0;  // the store's counter may be older than a reason's
    each_reason([&](const StatsField& reason) { total.misses += total.*reason.member; });
    if (context.json()) {
      Json document;
      for (const StatsField& field : kStatsFields) {
        if (field.json != nullptr) {
          document[field.json] = value_of(field, total);
        }
        if (field.member == &Stats::misses) {
          each_reason([&](const StatsField& reason) {
            document["misses_by_reason"][reason.reason] = total.*reason.member;
          });
        }
      }
      document["blobs"] = {{"blobs", facts.blobs},
                           {"size_bytes", facts.blob_bytes},
                           {"hits", count("blob_hits")},
                           {"misses", count("blob_misses")},
                           {"waits", count("blob_waits")},
                           {"stored", count("blobs_stored")},
                           {"evicted", count("blobs_evicted")}};
      document["failures"] = {{"hits", count("failure_hits")},
                              {"stored", count("failures_stored")},
                              {"evicted", count("failures_evicted")}};
      document["remote"] = {
          {"hits", count("remote_hits")},        {"misses", count("remote_misses")},
          {"stored", count("remote_stored")},    {"dropped", count("remote_dropped")},
          {"waits", count("remote_waits")},      {"errors", count("remote_errors")},
          {"rejected", count("remote_rejected")}};
      document["remote"]["dropped_by_reason"] = Json::object();
      for (const auto& [reason, lost] : dropped_by_reason(*counters)) {
        document["remote"]["dropped_by_reason"][reason] = lost;
      }
      context.print_json(document);
      return Exit::done;
    }
    Table table({{""}, {"", Column::Align::right}, {""}});
    const auto row = [&](const std::string& what, const std::string& value, const char* note = "") {
      table.add({what, {value, Color::bold}, {note, Color::dim}});
    };
    for (const StatsField& field : kStatsFields) {
      if (field.reason == nullptr && field.label != nullptr) {
        row(field.label, shown(field, total), field.note);
      }
      if (field.member == &Stats::misses) {
        each_reason([&](const StatsField& reason) {
          row("  " + std::string(reason.label), shown(reason, total), reason.note);
        });
      }
    }
    if (count("failures_stored") != 0) {
      row("failures", human_count(count("failures_stored")), "programs that NVRTC refused, stored");
      row("  hits", human_count(count("failure_hits")), "not compiled again");
    }
    blob_rows(facts, count, row);
    remote_rows(count, row);
    for (const auto& [reason, lost] : dropped_by_reason(*counters)) {
      row("  uploads lost: " + reason, human_count(lost));
    }
    context.print(table.text(context.out()));
    return Exit::done;
  }

 private:
  static std::map<std::string, std::uint64_t> dropped_by_reason(
      const std::map<std::string, std::int64_t>& counters) {
    constexpr std::string_view kPrefix = "remote_dropped_";
    std::map<std::string, std::uint64_t> reasons;
    for (const auto& [name, value] : counters) {
      if (name.starts_with(kPrefix) && value > 0) {
        reasons[name.substr(kPrefix.size())] = static_cast<std::uint64_t>(value);
      }
    }
    return reasons;
  }

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
    if (count("remote_hits") + count("remote_misses") + count("remote_errors") +
            count("remote_stored") + count("remote_dropped") ==
        0) {
      return;
    }
    row("remote hits", human_count(count("remote_hits")), "compiled by other machines");
    row("remote misses", human_count(count("remote_misses")));
    row("uploads", human_count(count("remote_stored")), "acknowledged");
    row("uploads lost", human_count(count("remote_dropped")), "'cukiln push' makes up for them");
    row("remote waits", human_count(count("remote_waits")), "for another machine's compile");
    row("remote errors", human_count(count("remote_errors")), "tolerated");
    row("remote rejected", human_count(count("remote_rejected")),
        "no valid signature of a trusted key");
  }

  bool start_ = false;
};

}  // namespace

std::unique_ptr<Command> make_stats() { return std::make_unique<StatsCommand>(); }

}  // namespace cukiln::cli
