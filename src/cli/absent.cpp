// SPDX-License-Identifier: Apache-2.0
#include "cli/command.hpp"

namespace cukiln::cli {

namespace {

class AbsentCommand final : public Command {
 public:
  AbsentCommand(const char* name, const char* addon) : name_(name), addon_(addon) {}

  CommandHelp help() const override {
    return {name_,
            "",
            "not in this build",
            "This cukiln was built without the add-on that has the command.",
            {}};
  }
  const char* absent_addon() const override { return addon_; }
  void add_options(CLI::App& /*app*/) override {}
  Exit run(Context& /*context*/) override { return Exit::usage; }

 private:
  const char* name_;
  const char* addon_;
};

}  // namespace

std::unique_ptr<Command> make_absent(const char* name, const char* addon) {
  return std::make_unique<AbsentCommand>(name, addon);
}

}  // namespace cukiln::cli
