// SPDX-License-Identifier: Apache-2.0
#include "cli/help.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/text.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kNameColumn = 24;
constexpr std::size_t kMaxWidth = 100;  // longer lines are hard to read

/// Returns `  --arch TARGET         what it does`, with the text wrapped in its column.
std::string entry(const Terminal& terminal, const std::string& name, const std::string& text) {
  const std::size_t width = std::min(terminal.width(), kMaxWidth);
  std::string out = "  " + terminal.paint(Color::cyan, name);
  const std::size_t used = display_width(name) + 2;
  out += used + 2 > kNameColumn ? "\n" + std::string(kNameColumn, ' ')
                                : std::string(kNameColumn - used, ' ');
  return out + wrap_indented(text, width, kNameColumn) + "\n";
}

std::string paragraph(const Terminal& terminal, std::string_view text) {
  std::string out;
  for (const std::string& line : wrap(text, std::min(terminal.width(), kMaxWidth))) {
    out += line + "\n";
  }
  return out;
}

std::string options_of(const CLI::App& app, const Terminal& terminal) {
  std::string out;
  for (const CLI::Option* option : listed_options(app)) {
    out += entry(terminal, spelling_of(*option), option->get_description());
  }
  return out;
}

}  // namespace

std::vector<const CLI::Option*> listed_options(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return !option->get_positional() && !option->get_group().empty();
  });
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  return names;
}

std::string value_of(const CLI::Option& option) {
  return option.get_type_size() == 0 ? "" : option.get_type_name();
}

std::string spelling_of(const CLI::Option& option) {
  const std::string value = value_of(option);
  return fmt::format("{}{}{}", fmt::join(names_of(option), ", "), value.empty() ? "" : " ", value);
}

std::string general_help(const CLI::App& app, const Commands& commands, const Terminal& terminal) {
  std::string out =
      paragraph(terminal,
                "cukiln compiles CUDA kernels once, stores the cubins and loads them before they "
                "are needed.");
  out += heading(terminal, "Usage:") + "  cukiln COMMAND [options]\n";
  out += heading(terminal, "Commands:");
  for (const auto& command : commands) {
    out += entry(terminal, command->help().name, command->help().summary);
  }
  out += heading(terminal, "Options of every command:") + options_of(app, terminal);
  out += heading(terminal, "Examples:");
  out +=
      "  cukiln doctor                       check what cukiln needs on this machine\n"
      "  cukiln preload --no-load            compile the shipped kernels into the store\n"
      "  cukiln compile k.cu --arch sm_90a   compile one file through the cache\n"
      "  cukiln help compile                 show a command's options and examples\n";
  out += heading(terminal, "Exit codes:");
  out +=
      "  0  done\n"
      "  1  the work failed: a kernel does not compile, a check found damage\n"
      "  2  usage: an unknown flag or target, a missing source\n"
      "  3  the machine lacks something: NVRTC, the driver, a permission\n"
      "  4  the store cannot be used\n";
  return out;
}

std::string command_help(const CLI::App& app, const Command& command, const Terminal& terminal) {
  const CommandHelp help = command.help();
  const CLI::App& options = *app.get_subcommand(help.name);
  const std::string own_options = options_of(options, terminal);
  std::string out = paragraph(terminal, help.description);
  out += heading(terminal, "Usage:") + "  cukiln " + help.name;
  out += (*help.arguments == '\0' ? "" : " ") + std::string(help.arguments);
  out += own_options.empty() ? "\n" : " [options]\n";
  if (!own_options.empty()) {
    out += heading(terminal, "Options:") + own_options;
  }
  out += heading(terminal, "Options of every command:") + options_of(app, terminal);
  out += heading(terminal, "Examples:");
  for (const auto& [line, what] : help.examples) {
    out += fmt::format("  {}\n      {}\n", terminal.paint(Color::cyan, line),
                       wrap_indented(what, std::min(terminal.width(), kMaxWidth), 6));
  }
  return out;
}

}  // namespace cukiln::cli
