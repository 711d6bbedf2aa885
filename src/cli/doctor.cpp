// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>

#include "cli/checks.hpp"
#include "cli/command.hpp"
#include "cli/text.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

Color color_of(const Check& check) {
  return check.status == Check::Status::ok        ? Color::green
         : check.status == Check::Status::missing ? Color::yellow
                                                  : Color::red;
}

class DoctorCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "doctor",
        "",
        "check what cukiln needs on this machine",
        "Checks NVRTC and its headers, the compile worker and its sandbox, the limits of this "
        "machine, the driver and its devices, the store, SQLite, the daemon and the remote stores. "
        "Each is ok, missing or "
        "wrong, with what to do. "
        "Exits with 0 if kernels can be compiled and stored, else with 3, also for a "
        "remote store that is wrong if remote_sign is set. Missing are no errors: a "
        "driver, without which all but loading works, and what compiles, where the system store "
        "has kernels, as in an image, or the setting offline is 1.",
        {{"cukiln doctor", "every check"},
         {"cukiln doctor --json | jq '.checks[] | select(.status != \"ok\")'",
          "only the checks that are not ok"}}};
  }

  void add_options(CLI::App&) override {}

  Exit run(Context& context) override {
    std::vector<Check> checks;
    check_compiler(context.settings().loader, checks);
    check_limits(context.settings().loader, checks);
    check_driver(context.settings().loader, checks);
    check_store(context, checks);
    check_daemon(context.settings().store, checks);
    check_remote(context, checks);
    const bool healthy = std::all_of(checks.begin(), checks.end(), [](const Check& check) {
      return check.status == Check::Status::ok || !check.needed;
    });
    if (context.json()) {
      Json list = Json::array();
      for (const Check& check : checks) {
        Json one{{"name", check.name},
                 {"status", name_of(check.status)},
                 {"detail", check.detail},
                 {"advice", check.advice}};
        one.update(check.fields);
        list.push_back(std::move(one));
      }
      context.print_json(Json{{"checks", std::move(list)}});
    } else {
      print(context, checks, healthy);
    }
    return healthy ? Exit::done : Exit::environment;
  }

 private:
  static void print(const Context& context, const std::vector<Check>& checks, bool healthy) {
    constexpr std::size_t kNameWidth = 14;
    constexpr std::size_t kStatusWidth = 9;
    constexpr std::size_t kIndent = kNameWidth + kStatusWidth;
    for (const Check& check : checks) {
      const std::string status = name_of(check.status);
      std::string text =
          context.paint(Color::bold, pad_right(check.name, kNameWidth)) +
          context.paint(color_of(check), status) + std::string(kStatusWidth - status.size(), ' ') +
          wrap_indented(printable_lines(check.detail), context.out().width(), kIndent);
      if (!check.advice.empty()) {
        const std::string label = check.status == Check::Status::ok ? "note: " : "do: ";
        text += "\n" + std::string(kIndent, ' ') +
                context.paint(Color::cyan, wrap_indented(label + printable_lines(check.advice),
                                                         context.out().width(), kIndent));
      }
      context.print(text + "\n");
    }
    const bool remote_is_wrong = std::any_of(checks.begin(), checks.end(), [](const Check& check) {
      return check.name == "remote" && check.status == Check::Status::wrong;
    });
    context.print(!healthy ? "\nSomething needed is missing or wrong; see above.\n"
                  : remote_is_wrong
                      ? "\nEverything needed is in place, but a remote store is wrong; see above.\n"
                      : "\nEverything needed is in place.\n");
  }
};

}  // namespace

std::unique_ptr<Command> make_doctor() { return std::make_unique<DoctorCommand>(); }

}  // namespace cukiln::cli
