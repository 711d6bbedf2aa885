// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>

#include "cli/command_line.hpp"
#include "cli/help.hpp"
#include "cli/mdoc.hpp"

#include <cukiln/version.hpp>

namespace cukiln::cli {

namespace {

std::optional<ColorMode> color_mode(const std::string& text) {
  if (text == "auto") return ColorMode::automatic;
  if (text == "always") return ColorMode::always;
  if (text == "never") return ColorMode::never;
  return std::nullopt;
}

std::string help_text(const CommandLine& line, const Terminal& terminal) {
  return line.command() != nullptr ? command_help(line.app(), *line.command(), terminal)
                                   : general_help(line.app(), line.commands(), terminal);
}

Exit show_help(const CommandLine& line, const Context& context) {
  if (context.json()) {
    context.print_json(Json{{"help", help_text(line, Terminal())}});
  } else {
    context.print(help_text(line, context.out()));
  }
  return Exit::done;
}

Exit show_version(const Context& context) {
  if (context.json()) {
    context.print_json(Json{{"version", version()}});
  } else {
    context.print(std::string("cukiln ") + version() + "\n");
  }
  return Exit::done;
}

/// Handles `cukiln --mdoc FRAME PAGE`, with which the build makes the manual page; not in help.
std::optional<Exit> make_manual(const CommandLine& line,
                                const std::vector<std::string>& arguments) {
  if (arguments.size() != 3 || arguments[0] != "--mdoc") {
    return std::nullopt;
  }
  const auto written = write_manual(line.app(), line.commands(), arguments[1], arguments[2]);
  if (!written) {
    std::fprintf(stderr, "error: %s\n", written.error().message().c_str());
  }
  return written ? Exit::done : Exit::failed;
}

Exit run(const std::vector<std::string>& arguments) {
  CommandLine line;
  if (const auto exit = make_manual(line, arguments)) {
    return *exit;
  }
  auto parsed = line.parse(arguments);
  GlobalOptions options = line.options();
  if (!parsed) {  // parsing may have stopped before --json; after -- it belongs to another program
    const auto end = std::find(arguments.begin(), arguments.end(), "--");
    options.json = options.json || std::find(arguments.begin(), end, "--json") != end;
  }
  const auto color = color_mode(options.color);
  const ColorMode mode = color.value_or(ColorMode::automatic);

  auto settings = Settings::load();
  Context context(options, mode, settings ? *settings : Settings());
  if (!parsed) {
    return context.fail(Exit::usage, parsed.error());
  }
  if (!color) {
    return context.usage("--color takes auto, always or never, not \"{}\"", options.color);
  }
  if (options.help) {
    return show_help(line, context);
  }
  if (options.version) {
    return show_version(context);
  }
  if (line.command() == nullptr) {
    if (options.json) {
      return context.usage("a command is missing; see 'cukiln --help'");
    }
    context.messages().print(help_text(line, context.messages().terminal()));
    return Exit::usage;
  }
  if (!settings) {
    return context.fail(Exit::environment, settings.error());
  }
  for (const std::string& warning : context.settings().warnings) {
    context.messages().warn(warning);
  }
  const Exit exit = line.command()->run(context);
  context.finish_uploads();
  return exit;
}

}  // namespace

}  // namespace cukiln::cli

int main(int count, char** values) {
  using cukiln::cli::Exit;
  // With SIGXFSZ ignored, a file size limit is an error of the store, which a compile survives.
  ::signal(SIGXFSZ, SIG_IGN);
  Exit exit = Exit::failed;
  try {
    exit = cukiln::cli::run({values + 1, values + std::max(count, 1)});
  } catch (const std::exception& caught) {
    std::fprintf(stderr, "error: %s\n", caught.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {  // a full disk is not success
    std::perror("error: stdout");
    exit = exit == Exit::done ? Exit::failed : exit;
  }
  return static_cast<int>(exit);
}
