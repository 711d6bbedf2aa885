// SPDX-License-Identifier: Apache-2.0
#include "cli/mdoc.hpp"

#include "cli/help.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"

#include <cukiln/version.hpp>

namespace cukiln::cli {

namespace {

/// Escapes text so that roff finds no request and no escape in it.
std::string escaped(std::string_view text) {
  std::string out;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) {
    out += "\\&";
  }
  for (const char c : text) {
    switch (c) {
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '~': out += "\\(ti"; break;
      case '^': out += "\\(ha"; break;
      case '\n': out += "\n.Pp\n"; break;
      default: out += c;
    }
  }
  return out;
}

/// Escapes text as an argument of a macro, which a quote would end.
std::string argument(std::string_view text) {
  std::string out = escaped(text);
  for (std::size_t at = 0; (at = out.find('"', at)) != std::string::npos; at += 4) {
    out.replace(at, 1, "\\(dq");
  }
  return "\"\\&" + out + "\"";
}

/// Puts each sentence on a line of its own, as mdoc requires for the space between sentences.
std::string sentences(std::string_view text) {
  std::string out = escaped(text);
  for (std::size_t at = 0; (at = out.find(". ", at)) != std::string::npos; at += 2) {
    out.replace(at, 2, ".\n");
    if (out.compare(at + 2, 1, ".") == 0) {
      out.insert(at + 2, "\\&");
    }
  }
  return out + "\n";
}

std::string option_list(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : listed_options(app)) {
    std::string line;
    for (const std::string& name : names_of(*option)) {  // `.Fl` adds a dash
      line += (line.empty() ? ".It Fl " : " , Fl ") + escaped(name.substr(1));
    }
    const std::string value = value_of(*option);
    out += line + (value.empty() ? "" : " Ar " + argument(value)) + "\n" +
           sentences(option->get_description());
  }
  return out.empty() ? out : ".Bl -tag -width Ds\n" + out + ".El\n";
}

std::string page_of(const Command& command, const CLI::App& options) {
  const CommandHelp help = command.help();
  std::string out = std::string(".Ss cukiln ") + help.name;
  out += *help.arguments == '\0' ? "\n" : " " + argument(help.arguments) + "\n";
  out += sentences(help.description) + option_list(options);
  out += ".Pp\nExamples:\n.Bl -tag -width Ds\n";
  for (const auto& [line, what] : help.examples) {
    out += ".It Li " + argument(line) + "\n" + sentences(what);
  }
  return out + ".El\n";
}

void replace(std::string& text, std::string_view marker, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(marker, at)) != std::string::npos; at += by.size()) {
    text.replace(at, marker.size(), by);
  }
}

}  // namespace

Result<void> write_manual(const CLI::App& app, const Commands& commands, const std::string& frame,
                          const std::string& page) {
  CUKILN_TRY(const FileContent content, read_file(frame));
  std::string text(content.bytes.view());
  std::string all;
  for (const auto& command : commands) {
    all += page_of(*command, *app.get_subcommand(command->help().name));
  }
  replace(text, "@VERSION@\n", std::string(version()) + "\n");
  replace(text, "@OPTIONS@\n", option_list(app));
  replace(text, "@COMMANDS@\n", all);
  return write_output(page, text);
}

}  // namespace cukiln::cli
