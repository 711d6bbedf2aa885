// SPDX-License-Identifier: Apache-2.0
#include "cli/entry_page.hpp"

#include <algorithm>
#include <utility>

#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/table.hpp"
#include "cli/text.hpp"
#include "core/base/result.hpp"
#include "core/store/signers.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kShownDigits = 12;
constexpr std::size_t kMaxAbsent = 12;

std::string short_digest(const ContentHash& digest) { return digest.hex().substr(0, kShownDigits); }

std::string time_and_age(std::int64_t unix_s) {
  if (unix_s == 0) {
    return "not recorded in a system store";
  }
  const std::string age = human_age(now_s() - unix_s);
  return fmt::format("{} ({})", human_time(unix_s), age == "now" ? age : age + " ago");
}

/// Shortens a long path at its front: its end says more.
Cell path_cell(const Terminal& terminal, const std::string& path, std::size_t beside) {
  const std::size_t room = terminal.width() > beside + 20 ? terminal.width() - beside : 20;
  return {shorten_front(printable(path), room)};
}

}  // namespace

Result<EntryPage> EntryPage::make(const EntrySummary& summary, const StoreEntry& entry) {
  CUKILN_TRY(RequestFields fields, RequestFields::parse(entry.request_canonical));
  return EntryPage(summary, entry, std::move(fields));
}

Json EntryPage::json() const { return json_of(summary_, entry_, fields_); }

std::string EntryPage::inputs(const Terminal& terminal) const {
  Table table({{""}, {"", Column::Align::left, true, 20}});
  table.add({"key", {summary_.key.hex(), Color::yellow}});
  table.add({"request", entry_.request.hex()});
  table.add({"target", fields_.target.name()});
  if (fields_.program) {
    table.add({"output", name_of(fields_.output())});
    table.add({"folder", {printable(fields_.program->working_folder)}});
  }
  table.add({"compiler", fmt::format("nvrtc {}, library {}", fields_.toolchain.version,
                                     short_digest(fields_.toolchain.content))});
  if (fields_.link) {
    const Toolchain& linker = fields_.link->linker;
    table.add({"linker", fmt::format("nvjitlink {}, library {}", linker.version,
                                     short_digest(linker.content))});
    table.add({"", fmt::format("{}", fmt::join(fields_.link->options, " "))});
    for (const RequestFields::Source& object : fields_.link->objects) {
      table.add({"object", fmt::format("{}  {}  {}", short_digest(object.digest), object.path,
                                       counted(object.size, "byte", "bytes"))});
    }
  }
  for (const RequestFields::Source& source : fields_.sources) {
    table.add({"source", fmt::format("{}  {}  {}", short_digest(source.digest), source.path,
                                     counted(source.size, "byte", "bytes"))});
  }
  for (const RequestFields::Source& header : fields_.headers) {
    table.add(
        {"header", fmt::format("{}  {}  {}", short_digest(header.digest), printable(header.path),
                               counted(header.size, "byte", "bytes"))});
  }
  for (std::size_t i = 0; i < fields_.options.arguments.size(); ++i) {
    table.add({i == 0 ? "flags" : "", fields_.options.arguments[i]});
  }
  if (const std::string dropped = dropped_flags(summary_.labels); !dropped.empty()) {
    table.add({"dropped", dropped});
  }
  for (std::size_t i = 0; i < fields_.options.name_expressions.size(); ++i) {
    table.add({i == 0 ? "names" : "", fields_.options.name_expressions[i]});
  }
  return heading(terminal, "Inputs") + table.text(terminal, 2);
}

std::string EntryPage::dependencies(const Terminal& terminal) const {
  const DependencySet& set = entry_.dependencies;
  constexpr std::size_t kBeside = 2 + kShownDigits + 2;
  Table table({{""}, {"", Column::Align::left, true, 20}});
  for (const Observation& seen : set.observations) {
    if (seen.kind == Observation::Kind::file) {
      table.add({{short_digest(seen.hash), Color::dim}, path_cell(terminal, seen.path, kBeside)});
    }
  }
  const std::vector<std::string> absent = set.paths(Observation::Kind::absent);
  for (std::size_t i = 0; i < std::min(absent.size(), kMaxAbsent); ++i) {
    table.add({{"absent", Color::dim}, path_cell(terminal, absent[i], kBeside)});
  }
  std::string text =
      heading(terminal, "Dependencies",
              fmt::format("{} read, {} searched and absent", counted(set.files(), "file", "files"),
                          human_count(absent.size()))) +
      table.text(terminal, 2);
  if (absent.size() > kMaxAbsent) {
    text += fmt::format("  and {} more absent paths; --json lists them\n",
                        human_count(absent.size() - kMaxAbsent));
  }
  if (!set.portable()) {
    text += "  not portable: a file outside the source and include folders was read\n";
  }
  return text;
}

std::string EntryPage::kernels(const Terminal& terminal) const {
  Table table({{"NAME", Column::Align::left, true, 16},
               {"REGS", Column::Align::right},
               {"SHARED", Column::Align::right},
               {"LOCAL", Column::Align::right},
               {"SPILLS", Column::Align::right},
               {"SYMBOL", Column::Align::left, true, 16}});
  for (const KernelInfo& kernel : kernels_among(entry_.cubin.kernels)) {
    const bool same = kernel.lowered == kernel.name;
    table.add(
        {{kernel.name, Color::bold},
         std::to_string(kernel.registers),
         human_bytes(kernel.shared_bytes),
         human_bytes(kernel.local_bytes),
         {human_bytes(kernel.spill_bytes), kernel.spill_bytes == 0 ? Color::plain : Color::red},
         same ? Cell("same", Color::dim) : Cell(kernel.lowered)});
  }
  return heading(terminal, "Kernels") + table.text(terminal, 2);
}

std::string EntryPage::variables(const Terminal& terminal) const {
  const std::vector<VariableInfo> variables = variables_among(entry_.cubin.kernels);
  if (variables.empty()) {
    return {};
  }
  Table table({{"NAME", Column::Align::left, true, 16},
               {"SIZE", Column::Align::right},
               {"MEMORY"},
               {"SYMBOL", Column::Align::left, true, 16}});
  for (const VariableInfo& variable : variables) {
    const bool same = variable.lowered == variable.name;
    table.add({{variable.name, Color::bold},
               human_bytes(variable.size_bytes),
               variable.is_constant ? "constant" : "global",
               same ? Cell("same", Color::dim) : Cell(variable.lowered)});
  }
  return heading(terminal, "Variables") + table.text(terminal, 2);
}

std::string EntryPage::history(const Terminal& terminal) const {
  Table table({{""}, {"", Column::Align::left, true, 20}});
  table.add({name_of(summary_.origin), time_and_age(summary_.created_s)});
  if (summary_.compile_us != 0) {
    table.add({"compile time", human_ms(static_cast<double>(summary_.compile_us) / 1000)});
  }
  if (summary_.peak_bytes != 0) {
    table.add({"memory", human_bytes(summary_.peak_bytes) + " at most"});
  }
  table.add({"last used", time_and_age(summary_.last_used_s)});
  table.add(
      {"hits", human_count(static_cast<std::uint64_t>(std::max<std::int64_t>(summary_.hits, 0)))});
  for (const auto& [label, signer] : signer_rows(summary_.signer)) {
    table.add({label, signer});
  }
  return heading(terminal, "History") + table.text(terminal, 2);
}

std::string EntryPage::text(const Terminal& terminal) const {
  std::string text = fmt::format(
      "{}  {} for {}, {} of {}\n", terminal.paint(Color::bold, printable(summary_.labels.name)),
      printable(summary_.labels.source), printable(summary_.labels.target),
      name_of(fields_.output()), human_bytes(summary_.cubin_bytes));
  text += inputs(terminal) + dependencies(terminal) + kernels(terminal) + variables(terminal);
  text += history(terminal) + heading(terminal, "Log");
  if (entry_.cubin.log.empty()) {
    return text + "  empty\n";
  }
  return text + indented(printable_lines(entry_.cubin.log), 2);
}

}  // namespace cukiln::cli
