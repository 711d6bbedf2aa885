// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include <algorithm>

#include "cli/help.hpp"
#include "cli/module_options.hpp"
#include "core/base/nearest.hpp"
#include "core/base/result.hpp"
#include "core/key/nvcc_flags.hpp"

namespace cukiln::cli {

namespace {

/// Turns an exception of the parser into an error such as `--store needs a value after it`.
Error usage_error(const CLI::ParseError& caught, const std::string& command) {
  std::string what = caught.what();
  if (const auto* mismatch = dynamic_cast<const CLI::ArgumentMismatch*>(&caught)) {
    what = mismatch->what();
    what = what.substr(0, what.find(':')) + " needs a value after it";
  }
  return make_error(ErrorCode::invalid_argument, "{}; see 'cukiln {}--help'", what,
                    command.empty() ? command : command + " ");
}

std::string meant_or_see(const std::string& meant) {
  return meant.empty() ? "; see" : fmt::format("; did you mean \"{}\"? See", meant);
}

}  // namespace

CommandLine::CommandLine() : app_("", "cukiln") {
  const auto last_one = CLI::MultiOptionPolicy::TakeLast;
  app_.set_help_flag();  // help is a plain flag, so that an unknown option does not hide it
  app_.allow_extras();
  app_.add_option("--store", options_.store, "the store's folder (default: see 'cukiln config')")
      ->type_name("DIR")
      ->multi_option_policy(last_one);
  app_.add_flag("--json", options_.json, "print one JSON document on stdout and nothing else");
  app_.add_flag("-q,--quiet", options_.quiet, "on stderr, print errors only");
  app_.add_option("--color", options_.color,
                  "auto (on a terminal, if NO_COLOR is empty), always or never")
      ->type_name("WHEN")
      ->multi_option_policy(last_one);
  app_.add_flag("--version", options_.version, "print the version");
  app_.add_flag("-h,--help", options_.help, "print this text");

  commands_.push_back(make_doctor());
  commands_.push_back(make_compile());
  commands_.push_back(make_preload());
  commands_.push_back(make_ls());
  commands_.push_back(make_show());
  commands_.push_back(make_explain());
  commands_.push_back(make_stats());
  commands_.push_back(make_verify());
  commands_.push_back(make_gc());
  commands_.push_back(make_rm());
  commands_.push_back(make_export());
  commands_.push_back(make_import());
  commands_.push_back(make_push());
  commands_.push_back(make_fits());
  commands_.push_back(make_keygen());
  commands_.push_back(make_record());
  commands_.push_back(make_run());
  commands_.push_back(make_daemon());
  commands_.push_back(make_config());
  commands_.push_back(make_completion(app_));
  for (const auto& command : commands_) {
    CLI::App* sub = app_.add_subcommand(command->help().name, command->help().summary);
    sub->set_help_flag();
    sub->fallthrough();
    sub->allow_extras();
    command->add_options(*sub);
    for (CLI::Option* option : sub->get_options()) {
      if (option->get_items_expected_max() == 1) {
        option->multi_option_policy(last_one);
      }
    }
  }
}

std::vector<std::string> CommandLine::command_names() const {
  std::vector<std::string> names;
  for (const auto& command : commands_) {
    names.emplace_back(command->help().name);
  }
  return names;
}

std::size_t CommandLine::find_command(const std::vector<std::string>& arguments) const {
  std::size_t at = 0;
  while (at < arguments.size() && arguments[at].size() > 1 && arguments[at][0] == '-') {
    const bool takes_value = arguments[at] == "--store" || arguments[at] == "--color";
    at += takes_value ? 2 : 1;
  }
  return std::min(at, arguments.size());
}

Result<void> CommandLine::parse(std::vector<std::string> arguments) {
  std::size_t at = find_command(arguments);
  while (at < arguments.size() && arguments[at] == "help") {  // `cukiln help compile`
    arguments[at] = "--help";
    at = find_command(arguments);
  }
  const std::vector<std::string> names = command_names();
  std::string name;
  if (at < arguments.size()) {
    name = arguments[at];
    const auto match = std::find(names.begin(), names.end(), name);
    if (match == names.end()) {
      const std::string meant = nearest(name, names);
      return make_error(ErrorCode::invalid_argument, "unknown command \"{}\"{} 'cukiln --help'",
                        name, meant_or_see(meant));
    }
    command_ = commands_[static_cast<std::size_t>(match - names.begin())].get();
    if (const char* const addon = command_->absent_addon(); addon != nullptr) {
      return make_error(ErrorCode::not_found,
                        "'cukiln {}' is not in this build, which is without src/addons/{}; build "
                        "cukiln with that folder",
                        name, addon);
    }
    expand_compiler_flags(app_, *app_.get_subcommand(name), at + 1, arguments);
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // the order that the parser expects
    app_.parse(arguments);
  } catch (const CLI::ParseError& caught) {
    return usage_error(caught, name);
  }
  if (options_.store.empty() && app_.get_option("--store")->count() != 0) {
    // A script with an unset variable does not mean the default store.
    return make_error(ErrorCode::invalid_argument, "--store is \"\"; expected a folder");
  }
  const CLI::Option* const output =
      command_ != nullptr ? app_.get_subcommand(name)->get_option_no_throw("--output") : nullptr;
  if (output != nullptr && output->count() != 0 && output->results().back().empty()) {
    return make_error(ErrorCode::invalid_argument, "-o is \"\"; expected a file");
  }
  return options_.help || options_.version ? Result<void>() : check_leftovers();
}

Result<void> CommandLine::check_leftovers() const {
  std::vector<std::string> rest = app_.remaining(true);
  std::erase(rest, "--");  // ends the options
  if (rest.empty()) {
    return {};
  }
  const std::string command = command_ != nullptr ? command_->help().name : "";
  const std::string& argument = rest.front();
  if (argument.size() < 2 || argument[0] != '-') {
    return make_error(ErrorCode::invalid_argument,
                      "\"{}\" is one argument too many for 'cukiln {}'; see 'cukiln {} --help'",
                      argument, command, command);
  }
  std::vector<std::string> spellings;
  const auto add = [&](const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& long_name : option->get_lnames()) {
        spellings.push_back("--" + long_name);
      }
    }
  };
  add(app_);
  if (command_ != nullptr) {
    const CLI::App& app = *app_.get_subcommand(command);
    add(app);
    if (takes_compiler_flags(app)) {
      const std::vector<std::string> flags = known_flags();
      spellings.insert(spellings.end(), flags.begin(), flags.end());
    }
  }
  const std::string name = argument.substr(0, argument.find('='));
  if (std::find(spellings.begin(), spellings.end(), name) != spellings.end()) {
    return make_error(ErrorCode::invalid_argument,
                      "\"{0}\" belongs behind the command: cukiln {1} {0}", name, command);
  }
  const std::string meant = nearest(name, spellings);
  return make_error(ErrorCode::invalid_argument, "unknown option \"{}\"{} 'cukiln {}--help'", name,
                    meant_or_see(meant), command.empty() ? command : command + " ");
}

}  // namespace cukiln::cli
