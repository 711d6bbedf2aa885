// SPDX-License-Identifier: Apache-2.0
#include "cli/module_report.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/text.hpp"
#include "cli/uploads.hpp"
#include "core/loader/phase_meter.hpp"

namespace cukiln::cli {

namespace {

bool has_key(const ModuleReport& module) { return module.key != CacheKey{}; }

Color color_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::hit: return Color::green;
    case Outcome::compiled: return Color::cyan;
    case Outcome::failed: return Color::red;
    case Outcome::missing: return Color::yellow;
  }
  return Color::plain;
}

std::string error_text(const ModuleReport& module) {
  const Error& error = *module.error;
  return error.log().empty() ? error.message() : error.message() + "\n" + error.log();
}

/// Returns whether the cubin has no kernel.
bool is_empty(const ModuleReport& module) {
  return !module.error && module.kernels.empty() && module.variables.empty();
}

/// Returns whether this run stored the module; a hit was stored before.
bool is_stored(const ModuleReport& module) {
  return module.outcome == Outcome::compiled && !module.not_stored;
}

std::size_t count_stored(const PreloadReport& report) {
  return static_cast<std::size_t>(
      std::count_if(report.modules.begin(), report.modules.end(), is_stored));
}

Json module_json(const ModuleReport& module) {
  return {
      // schema: report. Written by src/schema/generate.py
      // clang-format off
      {"name", module.name},
      {"source", module.source},
      {"target", module.target.name()},
      {"key", has_key(module) ? Json(module.key.hex()) : Json()},
      {"outcome", name_of(module.outcome)},
      {"reason", module.reason},
      {"error", module.error ? Json(error_text(module)) : Json()},
      {"not_stored", module.not_stored ? module.not_stored->message() : ""},
      {"dropped_flags", module.dropped_flags},
      {"milliseconds", module.elapsed.count()},
      {"load_milliseconds", module.load_time.count()},
      {"cubin_bytes", module.cubin_bytes},
      {"kernels", json_of(module.kernels)},
      {"log", module.log},
      {"peak_bytes", module.peak_bytes},
      {"variables", json_of(module.variables)},
      // clang-format on
      // end of schema
      {"stored", is_stored(module)},
  };
}

/// Returns the exit code of the failed modules. Usage precedes environment, which precedes failed:
/// the first is what the user has to mend first.
Exit worst_exit(const PreloadReport& report) {
  Exit exit = Exit::done;
  for (const ModuleReport& module : report.modules) {
    if (!module.error) {
      continue;
    }
    const Exit one = module.outcome == Outcome::missing ? Exit::failed : exit_of(*module.error);
    const bool replaces = exit == Exit::done || one == Exit::usage ||
                          (one == Exit::environment && exit == Exit::failed);
    exit = replaces ? one : exit;
  }
  return exit;
}

/// Returns `1 stored, 2 not stored: the disk is full`; empty if every result was stored.
std::string stored_summary(const PreloadReport& report) {
  std::map<std::string, std::size_t> reasons;
  for (const ModuleReport& module : report.modules) {
    if (module.not_stored) {
      ++reasons[module.not_stored->message()];
    }
  }
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format(", {} not stored: {}", count, reason);
  }
  return text.empty() ? text : fmt::format("{} stored{}\n", count_stored(report), text);
}

Json phases_json(const PreloadPhases& phases) {
  Json json = Json::object();
  for (const NamedPhase& phase : kPhases) {
    json[phase.field] = (phases.*phase.time).count();
  }
  return json;
}

/// Returns `at most 312 MiB of memory, for nvfp4_gemm`; empty if nothing was measured.
std::string memory_line(const PreloadReport& report) {
  const auto most = std::max_element(
      report.modules.begin(), report.modules.end(),
      [](const ModuleReport& a, const ModuleReport& b) { return a.peak_bytes < b.peak_bytes; });
  return most == report.modules.end() || most->peak_bytes == 0
             ? std::string()
             : fmt::format("a compile took at most {} of memory: {}\n",
                           human_bytes(most->peak_bytes), printable(most->name));
}

std::string summary(const PreloadReport& report) {
  const std::size_t failed = report.modules.size() - report.hits - report.compiled;
  std::string text = counted(report.modules.size(), "module", "modules");
  std::vector<std::string> parts;
  if (report.compiled != 0) {
    parts.push_back(fmt::format("{} compiled", report.compiled));
  }
  if (report.hits != 0) {
    parts.push_back(counted(report.hits, "hit", "hits"));
  }
  if (failed != 0) {
    const auto missing = static_cast<std::size_t>(
        std::count_if(report.modules.begin(), report.modules.end(),
                      [](const ModuleReport& m) { return m.outcome == Outcome::missing; }));
    if (failed > missing) parts.push_back(fmt::format("{} failed", failed - missing));
    if (missing != 0) parts.push_back(fmt::format("{} missing", missing));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? ": " : ", ") + parts[i];
  }
  return text + " in " + human_ms(report.elapsed.count()) + "\n" + stored_summary(report);
}

/// The lines below a module.
std::size_t rows_of(const ModuleReport& module) {
  return module.kernels.size() + module.variables.size() + (is_empty(module) ? 1 : 0);
}

void print_table(const Context& context, const PreloadReport& report, const Uploads& uploads) {
  Table modules({{"MODULE", Column::Align::left, true, 12},
                 {"TARGET"},
                 {"RESULT"},
                 {"TIME", Column::Align::right},
                 {"CUBIN", Column::Align::right},
                 {"KEY"}});
  KernelRows kernels;
  for (const ModuleReport& module : report.modules) {
    const bool has_cubin = has_key(module);
    modules.add({{module.name, Color::bold},
                 module.target.name(),
                 {name_of(module.outcome), color_of(module.outcome)},
                 human_ms(module.elapsed.count()),
                 has_cubin ? human_bytes(module.cubin_bytes) : "-",
                 {has_cubin ? short_key(module.key) : "-", Color::yellow}});
    for (const KernelInfo& kernel : module.kernels) {
      kernels.add(kernel);
    }
    for (const VariableInfo& variable : module.variables) {
      kernels.add(variable);
    }
    if (is_empty(module)) {
      kernels.add_none();
    }
  }
  const auto module_lines = modules.lines(context.out());
  const auto kernel_lines = kernels.lines(context.out());
  std::string text = module_lines.front() + "\n";
  std::size_t next = 0;
  for (std::size_t m = 0; m < report.modules.size(); ++m) {
    text += module_lines[m + 1] + "\n";
    const ModuleReport& module = report.modules[m];
    for (std::size_t k = 0; k < rows_of(module); ++k) {
      text += kernel_lines[next++] + "\n";
    }
  }
  context.print(text + "\n" + time_line(report.phases, context.out().width()) +
                memory_line(report) + summary(report) + upload_line(uploads));
}

/// Uploads the results, hits included, that may be stored.
Uploads upload_results(Context& context, const PreloadReport& report, bool fills_store) {
  std::vector<ObjectName> names;
  for (const ModuleReport& module : report.modules) {
    const bool may_store =
        !module.not_stored || module.not_stored->code() != ErrorCode::incompatible;
    if (!module.error && has_key(module) && may_store) {
      names.push_back(ObjectName::of(module.key));
    }
  }
  return upload(context, names, fills_store);
}

void print_messages(Context& context, const PreloadReport& report) {
  Messages& messages = context.messages();
  const bool disk_is_missing =
      context.settings().store.memory_only || !(*context.store())->bypass_reason().empty();
  std::map<std::string, std::size_t> failures;  // a machine's error is the same for each module
  for (const ModuleReport& module : report.modules) {
    failures[module.error ? error_text(module) : std::string()] += 1;
  }
  for (const ModuleReport& module : report.modules) {
    const std::string subject = module.name + " for " + module.target.name();
    if (module.error) {
      const std::string text = error_text(module);
      const std::size_t count = std::exchange(failures[text], 0);
      const std::string all =
          count == 1 ? subject
                     : fmt::format("{} and {}", subject, counted(count - 1, "other", "others"));
      if (count != 0) {
        messages.log(LogLevel::error, text.starts_with(module.name) ? text : all + ": " + text);
      }
      continue;
    }
    if (!module.log.empty() && module.outcome == Outcome::compiled && !context.json()) {
      messages.warn(subject + ": " + module.log);
    }
    if (module.not_stored && !disk_is_missing &&
        !messages.has_printed(module.not_stored->message())) {
      messages.warn(subject + ": not stored: " + module.not_stored->message());
    }
    if (!module.dropped_flags.empty()) {
      messages.info(fmt::format("{}: dropped flags, which do not change the cubin: {}", subject,
                                fmt::join(module.dropped_flags, " ")));
    }
  }
}

/// Demangles the name of a kernel that is not extern "C": `scale(float*, int)`.
std::string readable_name(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      name.starts_with("_Z") ? abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status)
                             : nullptr,
      &std::free);
  return readable != nullptr ? readable.get() : name;
}

}  // namespace

std::string time_line(const PreloadPhases& phases, std::size_t width) {
  std::string text;
  for (const NamedPhase& phase : kPhases) {
    if (const double time = (phases.*phase.time).count(); time > 0) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", phase.name, human_ms(time));
    }
  }
  return text.empty() ? text : wrap_indented(text, width, 2) + "\n";
}

KernelRows::KernelRows()
    : table_({{"", Column::Align::left, true, 16},
              {"", Column::Align::right},
              {"", Column::Align::right},
              {"", Column::Align::right}}) {}

void KernelRows::add(const KernelInfo& kernel) {
  table_.add({{readable_name(kernel.name), Color::dim},
              {fmt::format("{} regs", kernel.registers), Color::dim},
              {human_bytes(kernel.shared_bytes) + " shared", Color::dim},
              {kernel.spill_bytes == 0 ? "no spills" : human_bytes(kernel.spill_bytes) + " spilled",
               kernel.spill_bytes == 0 ? Color::dim : Color::red}});
}

void KernelRows::add(const VariableInfo& variable) {
  table_.add({{readable_name(variable.name), Color::dim},
              {"variable", Color::dim},
              {human_bytes(variable.size_bytes), Color::dim},
              {variable.is_constant ? "constant" : "global", Color::dim}});
}

void KernelRows::add_none() { table_.add({{"no kernel", Color::yellow}}); }

std::vector<std::string> KernelRows::lines(const Terminal& terminal) const {
  return table_.lines(terminal, 2);
}

Exit print_report(Context& context, const PreloadReport& report, bool fills_store,
                  const Json& more) {
  const Uploads uploads = upload_results(context, report, fills_store);
  print_messages(context, report);
  if (context.json()) {
    Json modules = Json::array();
    for (const ModuleReport& module : report.modules) {
      modules.push_back(module_json(module));
    }
    Json document{{"modules", std::move(modules)},
                  {"hits", report.hits},
                  {"compiled", report.compiled},
                  {"failed", report.failed},
                  {"stored", count_stored(report)},
                  {"uploads", json_of(uploads)},
                  {"milliseconds", report.elapsed.count()},
                  {"phases", phases_json(report.phases)}};
    document.update(more);
    context.print_json(document);
  } else {
    print_table(context, report, uploads);
  }
  const Exit exit = worst_exit(report);
  const bool refused = std::any_of(
      report.modules.begin(), report.modules.end(),
      [](const ModuleReport& m) { return m.not_stored && m.not_stored->code() == ErrorCode::io; });
  const bool is_incomplete = refused || uploads.lost != 0;
  return exit == Exit::done && fills_store && is_incomplete ? Exit::store : exit;
}

}  // namespace cukiln::cli
