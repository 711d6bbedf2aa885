// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.hpp"
#include "cli/help.hpp"
#include "core/base/result.hpp"
#include "core/store/store_admin.hpp"

namespace cukiln::cli {

namespace {

// A script is a table of words, generated from the commands and their options, a function that
// selects from it, and what calls that in one shell; for fish, `sh` runs the function. A line of
// the table has a command (`*`: each), a word that may follow it, the words of its value (`-`: it
// has none) and what it is, with tabs between. The word `*` stands for files, `KEY` for keys and
// names of the store, which a script gets by `cukiln completion --words`.

constexpr const char* kOperands =
    "compile\t*\t-\npreload\t*\t-\nimport\t*\t-\nfits\t*\t-\nexplain\t*\t-\n"
    "explain\tKEY\t-\nshow\tKEY\t-\nrm\tKEY\t-\nexport\tKEY\t-\n"
    "push\t*\t-\npush\tKEY\t-\n"
    "daemon\tstart\t-\ndaemon\tstop\t-\ndaemon\tstatus\t-\n"
    "completion\tbash\t-\ncompletion\tzsh\t-\ncompletion\tfish\t-\nhelp\thelp\t-\n";

std::string_view values_of(const std::string& type) {
  if (type.empty()) return "-";
  if (type == "TARGET") return "sm_80 sm_86 sm_89 sm_90a sm_100a sm_103a sm_120a";
  if (type == "WHEN") return "auto always never";
  if (type == "ORDER") return "age size time hits";
  if (type == "STD") return "c++17 c++20";
  return "*";
}

/// Returns a description without what is in parentheses or behind a semicolon.
std::string short_text(std::string text) {
  text.erase(std::min(text.find(';'), text.size()));
  for (std::size_t at = 0; (at = text.find(" (")) != std::string::npos;) {
    text.erase(at, text.find(')', at) - at + 1);
  }
  return text;
}

std::string option_lines(const CLI::App& app, const std::string& command) {
  std::string lines;
  for (const CLI::Option* option : listed_options(app)) {
    const std::string what = short_text(option->get_description());
    for (const std::string& name : names_of(*option)) {
      lines += fmt::format("{}\t{}\t{}\t{}\n", command, name, values_of(value_of(*option)), what);
    }
  }
  return lines;
}

/// Returns the function, for `sh`. $1 is the current word, and the others are those before it.
std::string words_function(const CLI::App& app) {
  std::string table = option_lines(app, "*") + kOperands;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string& name = command->get_name();
    table += fmt::format("help\t{}\t-\t{}\n", name, command->get_description());
    table += option_lines(*command, name);
  }
  return R"sh(_cukiln_words() {
  local current="$1" command='' previous='' found='' of='' word='' values='' what='' tab line='
'
  tab="$(printf '\t')"
  shift
  for word in "$@"; do
    case $previous in
      --store|--color) ;;
      *) case $word in -*) ;; *) command="${command:-$word}" ;; esac ;;
    esac
    previous="$word"
  done
  while IFS="$tab" read -r of word values what; do
    case $of in "${command:-help}"|'*') ;; *) continue ;; esac
    if [ "$word" = "$previous" ] && [ "$values" != - ]; then
      echo "$values" | tr ' ' '\n'
      return
    fi
    case $current:$word in
      -*:-*) found="$found$word$tab$what$line" ;;
      -*|*:-*) ;;
      *:KEY) found="$found$(cukiln completion --words 2>/dev/null)$line" ;;
      *) found="$found$word${what:+$tab$what}$line" ;;
    esac
  done <<'END'
)sh" + table +
         R"sh(END
  printf '%s' "$found"
}
)sh";
}

std::string bash_script(const CLI::App& app) {
  return R"sh(# bash completion of cukiln: eval "$(cukiln completion bash)"
)sh" + words_function(app) +
         R"sh(_cukiln() {
  local current="${COMP_WORDS[COMP_CWORD]}" word what IFS=$'\n'
  COMPREPLY=()
  while IFS=$'\t' read -r word what; do
    case $word in
      '*') COMPREPLY+=($(compgen -f -- "$current")) ;;
      "$current"*) COMPREPLY+=("$word") ;;
    esac
  done < <(_cukiln_words "$current" "${COMP_WORDS[@]:1:COMP_CWORD-1}")
}
complete -o filenames -F _cukiln cukiln
)sh";
}

std::string zsh_script(const CLI::App& app) {
  return R"sh(#compdef cukiln
# zsh completion of cukiln: cukiln completion zsh > "${fpath[1]}/_cukiln"
)sh" + words_function(app) +
         R"sh(_cukiln() {
  local line
  local -a described
  for line in "${(@f)$(_cukiln_words "${words[CURRENT]}" "${(@)words[2,CURRENT-1]}")}"; do
    case $line in
      '*') _files ;;
      ?*) described+=("${line/$'\t'/:}") ;;
    esac
  done
  _describe cukiln described
}
if [[ $funcstack[1] == _cukiln ]]; then _cukiln "$@"; else compdef _cukiln cukiln; fi
)sh";
}

std::string fish_script(const CLI::App& app) {
  std::string quoted;
  for (const char c : words_function(app)) {
    quoted += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return R"sh(# fish completion of cukiln: cukiln completion fish | source
function __cukiln_words
  set -l current (commandline -ct)
  set -l before (commandline -opc)
  sh -c ')sh" +
         quoted + R"sh(_cukiln_words "$@"' sh "$current" $before[2..-1] | while read -l line
    if test "$line" = '*'
      __fish_complete_path "$current"
    else
      echo $line
    end
  end
end
complete -c cukiln -f -a '(__cukiln_words)'
)sh";
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

  void add_options(CLI::App& app) override {
    app.add_option("SHELL", shell_);
    app.add_flag("--words", words_)->group("");  // for the scripts
  }

  Exit run(Context& context) override {
    if (words_) {
      return print_words(context);
    }
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
  /// Prints the keys of the store's entries, and the names that a shell neither splits nor expands.
  static Exit print_words(Context& context) {
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    const auto listed = StoreAdmin(**store).list();
    if (!listed) {
      return context.fail(Exit::store, listed.error());
    }
    std::set<std::string> words;
    for (const EntrySummary& entry : *listed) {
      words.insert(entry.key.hex());
      const std::string& name = entry.labels.name;
      if (std::all_of(name.begin(), name.end(), is_plain)) {
        words.insert(name);
      }
    }
    if (context.json()) {
      context.print_json(Json{{"words", words}});
    } else {
      context.print(fmt::format("{}\n", fmt::join(words, "\n")));
    }
    return Exit::done;
  }
  static bool is_plain(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  }

  const CLI::App& app_;
  std::string shell_;
  bool words_ = false;
};

}  // namespace

std::unique_ptr<Command> make_completion(const CLI::App& app) {
  return std::make_unique<CompletionCommand>(app);
}

}  // namespace cukiln::cli
