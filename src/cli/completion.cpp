// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "cli/command.hpp"

namespace cukiln::cli {

namespace {

struct OptionWords {
  std::string words;  ///< `-j --jobs`
  std::string type;   ///< `N`; empty: a flag
  std::string what;
};

std::vector<OptionWords> option_words(const CLI::App& app) {
  std::vector<OptionWords> list;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      continue;
    }
    OptionWords words;
    for (const std::string& name : option->get_snames()) {
      words.words += (words.words.empty() ? "-" : " -") + name;
    }
    for (const std::string& name : option->get_lnames()) {
      words.words += (words.words.empty() ? "--" : " --") + name;
    }
    words.type = option->get_type_size() == 0 ? "" : option->get_type_name();
    words.what = option->get_description().substr(0, option->get_description().find_first_of(";("));
    while (!words.what.empty() && words.what.back() == ' ') {
      words.what.pop_back();
    }
    list.push_back(std::move(words));
  }
  return list;
}

/// Returns the words that may follow an option of this type; empty if files or any text may.
std::string_view values_of(const std::string& type) {
  if (type == "TARGET") return "sm_80 sm_86 sm_89 sm_90a sm_100a sm_103a sm_120a";
  if (type == "WHEN") return "auto always never";
  if (type == "ORDER") return "age size time hits";
  if (type == "STD") return "c++17 c++20";
  return "";
}

bool takes_keys(std::string_view command) {
  return command == "show" || command == "rm" || command == "explain" || command == "export";
}
bool takes_files(std::string_view command) {
  return command == "compile" || command == "preload" || command == "explain" ||
         command == "import";
}

// Prints the names of the store's modules and the keys of its entries. A name with other characters
// is left out: a shell would split it or expand it.
constexpr std::string_view kKeys =
    "cukiln ls --json --quiet 2>/dev/null | "
    "sed -n 's/^ \\{6\\}\"\\(key\\|name\\)\": \"\\([A-Za-z0-9_.-]*\\)\".*/\\2/p'";

/// Returns the words of which a command takes one; empty if it has none.
std::string_view words_of(const std::string& command) {
  return command == "completion" ? "bash zsh fish" : command == "daemon" ? "start stop status" : "";
}

std::string bash_script(const CLI::App& app) {
  std::string commands;
  std::string cases;
  std::string values;
  const auto add_values = [&](const CLI::App& from) {
    for (const OptionWords& option : option_words(from)) {
      std::string pattern = option.words;
      std::replace(pattern.begin(), pattern.end(), ' ', '|');
      if (const std::string_view words = values_of(option.type); !words.empty()) {
        values += fmt::format("    {}) words=\"{}\" ;;\n", pattern, words);
      } else if (!option.type.empty()) {
        values +=
            fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n", pattern);
      }
    }
  };
  add_values(app);
  std::string global;
  for (const OptionWords& option : option_words(app)) {
    global += option.words + " ";
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    commands += (commands.empty() ? "" : " ") + command->get_name();
    std::string words;
    for (const OptionWords& option : option_words(*command)) {
      words += option.words + " ";
    }
    const std::string others = takes_keys(command->get_name())
                                   ? fmt::format(" $({})", kKeys)
                                   : std::string(words_of(command->get_name()));
    cases += fmt::format("    {}) words=\"{}\"; others=\"{}\"; files={} ;;\n", command->get_name(),
                         words, others, takes_files(command->get_name()) ? 1 : 0);
    add_values(*command);
  }
  return fmt::format(R"sh(# bash completion of cukiln: eval "$(cukiln completion bash)"
_cukiln() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command= word words= others= files=0 i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    case $word in
      --store|--color) ((i++)) ;;
      -*) ;;
      *) command=$word; break ;;
    esac
  done
  case $previous in
{values}  esac
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    return
  fi
  if [[ -z $command ]]; then
    COMPREPLY=($(compgen -W "{commands} help {global}" -- "$current"))
    return
  fi
  case $command in
{cases}    help) others="{commands}" ;;
  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$words {global}" -- "$current"))
    return
  fi
  COMPREPLY=($(compgen -W "$others" -- "$current"))
  ((files)) && COMPREPLY+=($(compgen -f -- "$current"))
}}
complete -o filenames -F _cukiln cukiln
)sh",
                     fmt::arg("values", values), fmt::arg("commands", commands),
                     fmt::arg("global", global), fmt::arg("cases", cases));
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) {
    text.replace(at, 1, "'\\''");
  }
  return "'" + text + "'";
}

/// Formats an option for zsh's _arguments, which needs brackets and colons escaped.
std::string zsh_option(const OptionWords& option) {
  std::string what;
  for (const char c : option.what) {
    what += (c == '[' || c == ']' || c == ':') ? std::string("\\") + c : std::string(1, c);
  }
  const std::string_view values = values_of(option.type);
  const std::string value = option.type.empty() ? ""
                            : values.empty()    ? ":" + option.type + ":_files"
                                                : fmt::format(":{}:({})", option.type, values);
  std::string out;
  for (std::size_t at = 0; at < option.words.size();) {
    const std::size_t end = std::min(option.words.find(' ', at), option.words.size());
    const std::string word = option.words.substr(at, end - at);
    out += " " + quoted("*" + word + "[" + what + "]" + value);
    at = end + 1;
  }
  return out;
}

std::string zsh_script(const CLI::App& app) {
  std::string global;
  for (const OptionWords& option : option_words(app)) {
    global += zsh_option(option);
  }
  std::string commands;
  std::string cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string name = command->get_name();
    commands += "    " + quoted(name + ":" + command->get_description()) + "\n";
    std::string words;
    for (const OptionWords& option : option_words(*command)) {
      words += zsh_option(option);
    }
    const std::string rest = !words_of(name).empty() ? fmt::format(" '1:what:({})'", words_of(name))
                             : name == "explain"     ? " '*:file or key:_cukiln_files_or_keys'"
                             : takes_keys(name)      ? " '*:key:_cukiln_keys'"
                             : takes_files(name)     ? " '*:file:_files'"
                                                     : "";
    cases += fmt::format("    {}) _arguments{}{} $global ;;\n", name, words, rest);
  }
  return fmt::format(R"sh(#compdef cukiln
# zsh completion of cukiln: cukiln completion zsh > "${{fpath[1]}}/_cukiln"
_cukiln_keys() {{ compadd -- $({keys}) }}
_cukiln_files_or_keys() {{ _files; _cukiln_keys }}
_cukiln() {{
  local -a cukiln_commands global
  cukiln_commands=(
{commands}  )
  global=({global})
  local context state line
  _arguments -C $global '1:command:->command' '*::argument:->argument'
  case $state in
  command) _describe command cukiln_commands ;;
  argument)
    case $line[1] in
{cases}    esac ;;
  esac
}}
if [[ $funcstack[1] == _cukiln ]]; then _cukiln "$@"; else compdef _cukiln cukiln; fi
)sh",
                     fmt::arg("keys", kKeys), fmt::arg("commands", commands),
                     fmt::arg("global", global), fmt::arg("cases", cases));
}

std::string fish_options(const CLI::App& app, const std::string& condition) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      continue;
    }
    out += "complete -c cukiln -n " + quoted(condition);
    for (const std::string& name : option->get_snames()) {
      out += " -s " + name;
    }
    for (const std::string& name : option->get_lnames()) {
      out += " -l " + name;
    }
    const std::string type = option->get_type_size() == 0 ? "" : option->get_type_name();
    if (const std::string_view values = values_of(type); !values.empty()) {
      out += fmt::format(" -x -a {}", quoted(std::string(values)));
    } else if (!type.empty()) {
      out += " -r";
    }
    const std::string& what = option->get_description();
    out += " -d " + quoted(what.substr(0, what.find_first_of(";("))) + "\n";
  }
  return out;
}

std::string fish_script(const CLI::App& app) {
  std::string out = "# fish completion of cukiln: cukiln completion fish | source\n";
  out += "complete -c cukiln -f\n";
  out += fish_options(app, "true");
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string name = command->get_name();
    out += fmt::format("complete -c cukiln -n __fish_use_subcommand -a {} -d {}\n", name,
                       quoted(command->get_description()));
    const std::string condition = "__fish_seen_subcommand_from " + name;
    out += fish_options(*command, condition);
    if (takes_keys(name)) {
      out += fmt::format("complete -c cukiln -n {} -a {}\n", quoted(condition),
                         quoted("(" + std::string(kKeys) + ")"));
    }
    if (takes_files(name)) {
      out += fmt::format("complete -c cukiln -n {} -F\n", quoted(condition));
    }
    if (!words_of(name).empty()) {
      out += fmt::format("complete -c cukiln -n {} -a '{}'\n", quoted(condition), words_of(name));
    }
  }
  return out;
}

class CompletionCommand final : public Command {
 public:
  explicit CompletionCommand(const CLI::App& app) : app_(app) {}

  CommandHelp help() const override {
    return {
        "completion",
        "bash|zsh|fish",
        "print the completion script of a shell",
        "Prints a script with which a shell completes commands, options, targets and keys.",
        {{"eval \"$(cukiln completion bash)\"", "in ~/.bashrc"},
         {"cukiln completion zsh > \"${fpath[1]}/_cukiln\"", "once, for zsh"},
         {"cukiln completion fish > ~/.config/fish/completions/cukiln.fish", "once, for fish"}}};
  }

  void add_options(CLI::App& app) override { app.add_option("SHELL", shell_); }

  Exit run(Context& context) override {
    const std::string script = shell_ == "bash"   ? bash_script(app_)
                               : shell_ == "zsh"  ? zsh_script(app_)
                               : shell_ == "fish" ? fish_script(app_)
                                                  : "";
    if (script.empty()) {
      return shell_.empty()
                 ? context.usage("a shell is missing: cukiln completion bash|zsh|fish")
                 : context.usage("unknown shell \"{}\": expected bash, zsh or fish", shell_);
    }
    if (context.json()) {
      context.print_json(Json{{"shell", shell_}, {"script", script}});
    } else {
      context.print(script);
    }
    return Exit::done;
  }

 private:
  const CLI::App& app_;
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> make_completion(const CLI::App& app) {
  return std::make_unique<CompletionCommand>(app);
}

}  // namespace cukiln::cli
