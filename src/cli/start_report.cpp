// SPDX-License-Identifier: Apache-2.0
#include "cli/start_report.hpp"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "cli/human.hpp"
#include "cli/module_report.hpp"
#include "cli/table.hpp"
#include "cli/text.hpp"
#include "core/base/result.hpp"
#include "core/loader/miss.hpp"
#include "core/loader/phase_meter.hpp"

namespace cukiln::cli {

namespace {

std::string text_field(const Json& object, const char* field) {
  return object.at(field).get<std::string>();
}
std::string time_field(const Json& object, const char* field) {
  return human_ms(object.at(field).get<double>());
}

/// What to do so that the next start finds a module; empty for one that was found.
std::string advice_for(const Json& module) {
  const std::string outcome = text_field(module, "outcome");
  if (outcome == name_of(Outcome::hit)) {
    return {};
  }
  if (outcome == name_of(Outcome::failed)) {
    return "cukiln compile SOURCE prints the compiler's log";
  }
  if (outcome == name_of(Outcome::missing)) {
    return "cukiln import BUNDLE, or cukiln preload MANIFEST where it may compile";
  }
  if (!module.at("stored").get<bool>()) {
    return "it was not stored: each start compiles it until the reason is gone";
  }
  const std::string known(Miss::advice_for(text_field(module, "reason")));
  return known.empty() ? "cukiln explain SOURCE says why" : known;
}

/// The text of a start; throws if it is no record. `is_last`: with modules that were found.
std::string start_text(const Context& context, const Json& start, bool is_last) {
  const std::size_t width = context.out().width();
  std::string text =
      context.paint(Color::bold, fmt::format("{}  {}, process {}",
                                             human_time(start.at("time").get<std::int64_t>()),
                                             shorten(printable(text_field(start, "program")), 20),
                                             start.at("process").get<std::int64_t>()));
  text += fmt::format("\n  {} after {}, {} of them opening the store\n",
                      start.at("sealed").get<bool>() ? "sealed" : "ended",
                      time_field(start, "milliseconds"), time_field(start, "open_ms"));
  PreloadPhases phases;
  for (const NamedPhase& phase : kPhases) {
    phases.*phase.time = Milliseconds(start.at("phases").at(phase.field).get<double>());
  }
  text += indented(time_line(phases, width - 2), 2);
  const auto hits = start.at("hits").get<std::size_t>();
  const auto compiled = start.at("compiled").get<std::size_t>();
  const auto failed = start.at("failed").get<std::size_t>();
  text +=
      fmt::format("  {}: {} in the store, {} compiled, {} failed\n",
                  counted(hits + compiled + failed, "module", "modules"), hits, compiled, failed);
  Table table({{"", Column::Align::left, true, 12},
               {""},
               {""},
               {"", Column::Align::right},
               {"", Column::Align::left, true, 12}});
  std::set<std::string> to_do;
  for (const Json& module : start.at("modules")) {
    const std::string advice = text_field(module, "advice");
    if (is_last || !advice.empty()) {
      table.add({text_field(module, "name"),
                 text_field(module, "target"),
                 {text_field(module, "outcome"), advice.empty() ? Color::plain : Color::yellow},
                 time_field(module, "milliseconds"),
                 text_field(module, "reason")});
    }
    if (!advice.empty()) {
      to_do.insert(advice);
    }
  }
  text += table.text(context.out(), 2);
  for (const std::string& advice : to_do) {
    text += "  " + wrap_indented("to do: " + advice, width - 2, 9) + "\n";
  }
  return text;
}

}  // namespace

void print_starts(const Context& context, const std::vector<std::string>& records) {
  Json starts = Json::array();
  std::string shown;
  for (const std::string& record : records) {
    const auto read = guarded([&]() -> Result<Json> {
      Json start = Json::parse(record);
      for (Json& module : start.at("modules")) {
        module["advice"] = advice_for(module);
      }
      shown += start_text(context, start, &record == &records.back());
      return start;
    });
    if (read) {
      starts.push_back(*read);
    }
  }
  if (context.json()) {
    context.print_json(Json{{"starts", std::move(starts)}});
  } else {
    context.print(!shown.empty() ? shown
                                 : "No start left a record: a loader does at seal() or its end, "
                                   "once it loaded a module.\n");
  }
}

}  // namespace cukiln::cli
