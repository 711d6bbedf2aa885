// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/table.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

class VerifyCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "verify",
        "",
        "read every entry and check it",
        "Checks the structure of the database, every entry against its checksum and its key, and "
        "every blob against its checksum. "
        "Exits with 1 if it found damage, repaired or not. A damaged entry is never used: a lookup "
        "that finds one compiles again.",
        {{"cukiln verify", "checks, and changes nothing"},
         {"cukiln verify --repair", "also removes damaged entries"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_flag("--repair", repair_, "remove damaged entries");
  }

  Exit run(Context& context) override {
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    StoreAdmin admin(**store);
    const bool was_unreadable = admin.was_rebuilt();
    auto report = admin.verify(repair_);
    if (!report) {
      return context.fail(Exit::store, report.error());
    }
    if (was_unreadable) {
      ++report->damaged;
      ++report->repaired;
      report->findings.push_back({CacheKey{}, "unreadable; a new database was started"});
    }
    if (context.json()) {
      Json findings = Json::array();
      for (const VerifyReport::Finding& finding : report->findings) {
        const bool whole = finding.key == CacheKey{};
        findings.push_back(
            Json{{"key", whole ? Json() : Json(finding.key.hex())}, {"what", finding.what}});
      }
      context.print_json(Json{{"checked", report->checked},
                              {"blobs", report->checked_blobs},
                              {"damaged", report->damaged},
                              {"repaired", report->repaired},
                              {"findings", std::move(findings)}});
    } else {
      print(context, *report);
    }
    return report->damaged == 0 ? Exit::done : Exit::failed;
  }

 private:
  static void print(const Context& context, const VerifyReport& report) {
    Table table({{""}, {"", Column::Align::left, true, 20}});
    for (const VerifyReport::Finding& finding : report.findings) {
      const bool whole = finding.key == CacheKey{};
      std::string what = finding.what;  // SQLite's findings have several lines
      std::replace(what.begin(), what.end(), '\n', ' ');
      table.add({{whole ? "database" : short_key(finding.key), Color::red}, std::move(what)});
    }
    std::string text = table.text(context.out());
    const std::uint64_t blobs = report.checked_blobs;
    text += fmt::format("{}{} checked, ", counted(report.checked, "entry", "entries"),
                        blobs == 0 ? "" : " and " + counted(blobs, "blob", "blobs"));
    if (report.damaged == 0) {
      text += "no damage found.\n";
    } else {
      text += fmt::format("{} damaged, {} removed.\n", report.damaged, report.repaired);
      text += report.repaired == report.damaged
                  ? ""
                  : "'cukiln verify --repair' removes damaged entries.\n";
    }
    context.print(text);
  }

  bool repair_ = false;
};

}  // namespace

std::unique_ptr<Command> make_verify() { return std::make_unique<VerifyCommand>(); }

}  // namespace cukiln::cli
