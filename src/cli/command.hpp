// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/context.hpp"

namespace cukiln::cli {

/// The help text of a command, without its options.
struct CommandHelp {
  const char* name;
  const char* arguments;                                      ///< `FILE.cu...`, or empty
  const char* summary;                                        ///< one line, in the list of commands
  const char* description;                                    ///< a paragraph or two
  std::vector<std::pair<const char*, const char*>> examples;  ///< a command line and its effect
};

/// A command of the command line. The parser fills the members that `add_options` bound, then `run`
/// is called once.
class Command {
 public:
  virtual ~Command() = default;
  virtual CommandHelp help() const = 0;
  /// The add-on that this build would need for the command; null if it has what it needs.
  virtual const char* absent_addon() const { return nullptr; }
  virtual void add_options(CLI::App& app) = 0;
  virtual Exit run(Context& context) = 0;
};

/// Stands for a command of an add-on that this build is without: the command line refuses it.
std::unique_ptr<Command> make_absent(const char* name, const char* addon);

using Commands = std::vector<std::unique_ptr<Command>>;

std::unique_ptr<Command> make_doctor();
std::unique_ptr<Command> make_compile();
std::unique_ptr<Command> make_preload();
std::unique_ptr<Command> make_ls();
std::unique_ptr<Command> make_show();
std::unique_ptr<Command> make_explain();
std::unique_ptr<Command> make_stats();
std::unique_ptr<Command> make_verify();
std::unique_ptr<Command> make_gc();
std::unique_ptr<Command> make_rm();
std::unique_ptr<Command> make_export();
std::unique_ptr<Command> make_import();
std::unique_ptr<Command> make_push();
std::unique_ptr<Command> make_fits();
std::unique_ptr<Command> make_keygen();
std::unique_ptr<Command> make_record();
std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_daemon();
std::unique_ptr<Command> make_config();
/// Completes the options and commands that `app` has when the command runs.
std::unique_ptr<Command> make_completion(const CLI::App& app);

}  // namespace cukiln::cli
